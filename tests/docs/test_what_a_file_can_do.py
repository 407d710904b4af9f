"""The page "What a file can do" knows every reader, and no module reads, runs or imports beside those that may."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from armillary import convert
from armillary.base import allowed, counts, packing, reading, yaml_text
from armillary.convert.pytorch import tracks
from armillary.engine.messages import shapes
from armillary.platform.files import infragraph_parts, topology
from armillary.platform.kernels import COMPUTE_MODELS
from armillary.serving.requests import MOST_REQUESTS
from armillary.trace.files import SUFFIXES

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "armillary"
PAGE = (ROOT / "docs/reference/what-a-file-can-do.md").read_text("utf-8")
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ")]

OPENING = {
    "open", "os.open", "gzip.open", "gzip.decompress", "zlib.decompress", "json.load", "json.loads", "yaml.load",
    "yaml.safe_load", "np.load", "np.fromfile", "sqlite3.connect", "zipfile.ZipFile", "tarfile.open",
    "ElementTree.parse", "ast.literal_eval",
}  # fmt: skip
RUNNING = {
    "eval", "exec", "compile", "pickle.load", "pickle.loads", "importlib.import_module", "import_module",
    "runpy.run_path", "os.system", "os.posix_spawn", "os.popen", "urlopen", "torch.load", "__import__",
}  # fmt: skip
MODULES = {"subprocess", "socket", "urllib", "requests", "http", "ftplib", "webbrowser", "shelve", "marshal"}
OURS = "our own modules and files"
SENT = "what this run sends to its own processes"
WRITES = "writes a file, or reads what it has just written"
CHECKED = "its text has been read and bounded, or is our own"
MAY = {
    "base/__init__.py": OURS, "__init__.py": OURS, "base/accessors.py": OURS, "base/checked.py": OURS,
    "base/extension.py": "installed packages, by name", "base/jit.py": OURS, "base/page.py": OURS,
    "base/kernel_files.py": "the user's own cache, if nobody else can have written it",
    "base/patience.py": "the user's own cache",
    "base/machine_code.py": "the compiler's own modules",
    "base/pictures.py": OURS, "base/spans.py": "the compiler's own modules",
    "capture/checkpoints.py": "an installed package, by name",
    "capture/objects.py": SENT, "capture/forks.py": SENT, "capture/launch.py": SENT,
    "capture/library.py": "compiles our own source", "capture/script.py": "the script of the command line",
    "base/allowed.py": "/proc", "base/reading.py": "the one place",
    "base/packing.py": "the one place", "base/json_text.py": "the one place",
    "base/files.py": WRITES,
    "base/document.py": CHECKED, "cli/__init__.py": OURS, "cli/command.py": OURS, "cli/options.py": OURS,
    "cli/programs.py": "the head of a program, to see whether it is ours", "cli/values.py": OURS,
    "compute/_supervise.py": "with consent", "compute/_supervised.py": "with consent",
    "compute/program.py": "answers of a program, bounded", "convert/collect.py": WRITES,
    "convert/collect_script.py": "the script of the command line", "convert/launch.py": WRITES,
    "convert/processes.py": "the script of the command line", "convert/pytorch/link_files.py": WRITES,
    "convert/torch_import.py": OURS,
    "convert/stablehlo/bytecode.py": SENT,
    "convert/profilers/database.py": "tables of a checked file, read only",
    "engine/common/timeline.py": "members are checked before",
    "engine/transport/ns3/library.py": OURS, "evidence/replay/run.py": SENT, "evidence/replay/worker.py": SENT,
    "evidence/reproduce/summary.py": "results that it has written",
    "evidence/validate/suites.py": OURS, "explore/runner/child.py": SENT, "explore/runner/executors/futures.py": SENT,
    "explore/runner/executors/ray.py": SENT, "explore/runner/executors/_ray_driver.py": SENT,
    "explore/runner/forked.py": "asks ps", "explore/runner/identity.py": "hashes of files up to a size",
    "explore/runner/keeper.py": SENT, "explore/runner/seat.py": SENT, "explore/runner/store.py": "stores",
    "explore/runner/stored.py": "stores", "explore/search/storage.py": "storages of Optuna",
    "explore/sweep/expression.py": "a checked tree of arithmetic",
    "explore/sweep/facts.py": CHECKED, "explore/sweep/prepared.py": CHECKED, "explore/training/step.py": CHECKED,
    "explore/training/traces.py": CHECKED,
    "lab/extrapolation/recorded/calls.py": CHECKED,
    "lab/learned/archive.py": "members are checked before", "lab/learned/corpus.py": "members are checked before",
    "lab/learned/neural/network_torch.py": OURS,
    "report/chrome_trace.py": WRITES, "report/track_event.py": WRITES, "report/trace_graph.py": WRITES,
    "studio/app.py": OURS,
    "studio/dropped.py": "a machine that it has just written", "studio/uploads.py": WRITES,
    "studio/server.py": "listens on this computer, for whoever started it",
    "testing/front_end.py": "tests", "trace/json_layout.py": WRITES,
}  # fmt: skip
"""Module -> why it may open, run or import something itself, in place of `armillary.base.reading`."""


def _name(call: ast.Call) -> str:
    return ast.unparse(call.func) if isinstance(call.func, ast.Name | ast.Attribute) else ""


def _doubtful(file: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Call):
            name = _name(node)
            if name in OPENING | RUNNING or (
                name.rpartition(".")[2] in ("read_text", "read_bytes") and "." in name
            ):
                found.add(name)
            # path.open(…), but not the accessor of a table of that name.
            if name.endswith(".open") and not file.name.endswith("_kernel.py"):
                found.add(name)
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names} & MODULES
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] in MODULES:
            found.add(node.module)
    return found


def test_no_other_module_opens_runs_or_imports() -> None:
    found = {
        str(file.relative_to(SOURCE)): names
        for file in sorted(SOURCE.rglob("*.py"))
        if (names := _doubtful(file))
    }
    new = {name: sorted(found[name]) for name in found.keys() - MAY.keys()}
    assert not new, f"use armillary.base.reading, and name new readers on the page: {new}"
    assert not MAY.keys() - found.keys(), "these do no longer"


@pytest.mark.parametrize("name", convert.names())
def test_every_front_end_has_its_line(name: str) -> None:
    assert any(row.startswith(f"| `{name}`: ") for row in ROWS)


@pytest.mark.parametrize("suffix", [*SUFFIXES, *topology.SUFFIXES])
def test_every_suffix_is_named(suffix: str) -> None:
    assert any(f"`{suffix}`" in row.split("|")[1] for row in ROWS)


def test_every_line_is_whole() -> None:
    formats = ROWS[next(at for at, row in enumerate(ROWS) if row.startswith("| file |")) + 1 :]
    assert len(formats) > 20
    for row in formats:
        assert all(cell.strip() for cell in row.strip("|").split("|")) and row.count("|") == 6, row


def test_the_only_model_that_starts_programs_is_named() -> None:
    assert COMPUTE_MODELS.built_in == ("roofline", "gpu", "tiled", "table", "systolic", "subprocess")
    assert "model: subprocess" in PAGE and "--allow-programs" in PAGE


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (reading.MOST_FILE, "4 GiB"), (reading.MOST_TEXT, "256 MiB"), (reading.MOST_YAML, "16 MiB"),
        (packing.SURE_UNPACKED, "64 MiB"), (packing.MOST_UNPACKED, "1 GiB"), (reading.MOST_VALUES, "10 million"),
        (packing.RATIO, "256 times"), (reading.MOST_DEPTH, "200"), (yaml_text.MOST_VALUES, "250,000"),
        (reading.PIPE_SECONDS, "25 s"), (counts.MOST_JOBS, "10,000"), (counts.MOST_RECORDED, "2 million"),
            (counts.MOST_PAIRS, "4 million"), (counts.MOST_ENTRIES, "1,000"),
        (topology.MOST_KINDS, "256"), (tracks.MOST_TRACKS, "256"),
        (infragraph_parts.MOST_PARTS, "1 million"), (MOST_REQUESTS, "2 million"),
        (counts.MOST_CHUNKS, "1 million"), (counts.MOST_EVENTS, "10 billion"), (counts.MOST_POINTS, "10 million"),
        (counts.MOST_TRIALS, "100,000"), (counts.MOST_DRAWS, "100,000"), (allowed.MOST_MEMORY, "8 GB"),
        (allowed.SIMULATED, "1.2 kB"), (shapes.PAIR, "220 B"), (allowed.MOST_SECONDS, "40 minutes"),
    ],
)  # fmt: skip
def test_limits_are_those_of_the_page(value: float, shown: str) -> None:
    number, _, unit = shown.partition(" ")
    scale = {
        "B": 1,
        "KiB": 2**10,
        "MiB": 2**20,
        "GiB": 2**30,
        "GB": 1e9,
        "kB": 1e3,
        "minutes": 60,
        "million": 1e6,
        "billion": 1e9,
    }.get(unit, 1)
    assert value == float(number.replace(",", "")) * scale
    assert any(shown in row for row in ROWS), shown
