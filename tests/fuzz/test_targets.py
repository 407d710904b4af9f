"""Every reader has a target of the fuzzer: each module that opens files, and each line of "What a file can do"."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest
from fuzz_coverage import Coverage
from fuzz_readers import Reader, readers
from run import attempt

import armillary

SOURCE = Path(armillary.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "what-a-file-can-do.md"
READING = {
    "read_bytes", "read_plain", "read_unpacked", "read_text", "read_document", "check_size", "open_file",
    "sqlite3.connect", "np.load", "measured_text",
}  # fmt: skip
"""What opens a file of others; `tests/docs/test_what_a_file_can_do.py` sees to it that nothing else does."""
OURS = ""
"""No target: it reads what belongs to the package, or what the command itself has written."""
MODULES: dict[str, str] = {
    "base/jit.py": OURS, "base/machine_code.py": OURS,
    "base/kernel_files.py": OURS, "base/allowed.py": OURS, "base/page.py": OURS,
    "compute/_supervise.py": OURS, "engine/transport/ns3/library.py": OURS, "evidence/replay/run.py": OURS,
    "report/trace_graph_html.py": OURS, "base/patience.py": OURS,
    "capture/objects.py": OURS, "capture/forks.py": OURS, "capture/inputs.py": OURS, "capture/library.py": OURS,
    # Of the size of a topology, not of a file.
    "platform/topology/grids.py": OURS, "platform/topology/trees.py": OURS, "platform/topology/wiring.py": OURS,
    "platform/topology/planes.py": OURS,
    "convert/front_ends/pytorch.py": "pytorch", "convert/pytorch/link_files.py": "link",
    "base/document.py": "study", "base/packing.py": "et-gzip", "base/programs.py": "configuration",
    "base/reading.py": OURS,
    # The checksum of files that `read_cases` has read.
    "cli/calibrate/training.py": OURS,
    "cli/generate/plan_options.py": "plan", "cli/trace/group_file.py": "groups",
    "collective/fitted/read.py": "fit", "collective/msccl_xml.py": "msccl", "compute/gpu/device.py": "device",
    "capture/launch.py": OURS, "capture/rank_files.py": "captured", "collective/mscclpp_read.py": "mscclpp",
    "compute/table_file.py": "gemm-table", "convert/collected.py": "collected", "convert/front_ends/eg.py": "eg",
    "convert/front_ends/flexflow.py": "flexflow", "convert/hlo/source.py": "hlo", "convert/launch.py": OURS,
    "convert/profilers/database.py": "nsight", "convert/profilers/rocprof.py": "rocprof",
    "convert/xplane/space.py": "xplane", "convert/front_ends/stablehlo.py": "stablehlo",
    "convert/nccl/records.py": "nccl", "convert/triosim.py": "triosim", "convert/goal/schedule.py": "goal",
    "convert/goal/binary.py": "goal-binary",
    "convert/pytorch/records.py": "pytorch-host", "convert/text/kinds.py": "text",
    "engine/common/timeline.py": "timeline", "evidence/calibrate/attention.py": "prefills",
    "evidence/calibrate/loaded.py": "kernels-under-load", "evidence/calibrate/nccl_tables.py": "nccl-log",
    "evidence/calibrate/observe/profile.py": "observed-profile", "evidence/calibrate/observe/read.py": "observed",
    "evidence/calibrate/observe/steps.py": "steps", "evidence/calibrate/samples.py": "nccl-csv",
    "evidence/reproduce/summary.py": OURS, "evidence/validate/gemm.py": "validated-gemms",
    "evidence/validate/sniff.py": "measured-csv",
    "evidence/validate/training/markdown.py": "measured-md", "evidence/validate/training/rows.py": "measured-csv",
    "evidence/validate/training/simumax.py": "measured-json",
    "evidence/validate/silicon.py": "silicon", "evidence/validate/vllm.py": "vllm-run",
    "evidence/validate/sim_to_real.py": "sim-to-real", "serving/kernels.py": OURS, "serving/chosen.py": OURS,
    "explore/exchange.py": "routed-tokens",
    "explore/search/storage.py": "trials", "serving/logs.py": "requests",
    "serving/routed.py": "expert-counts", "serving/profile.py": "profile",
    "explore/codesign/load.py": "mix", "explore/compare/sides.py": "side",
    "explore/cost/schema.py": "costs", "explore/runner/forked.py": OURS,
    "explore/runner/identity.py": OURS, "explore/runner/salvage.py": "store", "explore/runner/store.py": "store",
    "explore/runner/stored.py": "store", "explore/sweep/evaluate.py": "evaluated", "explore/sweep/load.py": "sweep",
    "explore/training/among.py": "plans", "explore/training/fitted.py": OURS,
    "explore/whole_run/failures.py": "failures", "lab/learned/archive.py": "learned-archive",
    "lab/learned/corpus.py": "corpus", "lab/learned/requests.py": "learn-plan",
    "lab/obfuscation/restoring.py": "legend", "platform/files/astra_sim.py": "astra-network",
    "platform/files/astra_sim_1.py": "astra-1-system",
    "platform/files/astra_sim_service.py": "astra-service", "trace/chakra_messages.py": "messages",
    "platform/files/astra_sim_custom.py": "astra-system", "platform/files/htsim_topology.py": "htsim-topology",
    "platform/files/infragraph.py": "infragraph", "platform/files/ns3_config.py": "ns3-config",
    "platform/files/ns3_topology.py": "ns3-topology",
    "platform/files/native.py": "study", "platform/files/preset.py": "platform",
    "platform/files/topology.py": "edges", "platform/topology/routing.py": "routing-table",
    "report/astra_log/log_files.py": "loggers", "report/issue_log.py": "issue-log",
    "studio/app.py": OURS,
    "testing/front_end.py": OURS, "trace/files.py": "trace", "trace/other_formats.py": "json",
    "workload/models/hugging_face/__init__.py": "config", "workload/models/read.py": "model",
}  # fmt: skip
"""Module that reads -> the target that reaches it."""
LINES: dict[str, tuple[str, ...]] = {
    "study, platform": ("study", "platform", "side", "evaluated"),
    "sweep (": ("sweep",),
    "mix of workloads": ("mix",),
    "preset, device": ("platform", "device", "fit", "costs", "failures"),
    "plan, model": ("plan", "plans", "model", "learn-plan"),
    "`config.json`": ("config",),
    "question of a page": ("question",),
    "traces that a page sends": ("sent", "sent-pytorch"),
    "configuration of yours": ("configuration",),
    "edge list": ("edges", "edges-yaml", "edges-graphml", "htsim-topology", "ns3-topology"),
    "InfraGraph": ("infragraph",),
    "configuration of ASTRA-sim-service": ("astra-service",),
    "ASTRA-sim's ns-3": ("ns3-config", "htsim-options"),
    "`capture.json`": ("captured", "captured-run"),
    "run of vLLM": ("vllm-run", "profile"),
    "log of requests": ("requests", "requests-json"),
    "routing table": ("routing-table",), "choices of tokens": ("routed-tokens",),
    "counts of experts": ("expert-counts",),
    "ASTRA-sim's configuration of loggers": ("loggers",),
    "ASTRA-sim system": ("astra-network", "astra-system", "astra-memory", "astra-groups", "groups", "astra-1-network",
                         "astra-1-system"),
    "Chakra trace (`.et`": ("messages", "et", "et-twins", "et-gzip", "trace"),
    "Chakra trace (`.json`": ("json",),
    "`pytorch`": (
        "pytorch", "pytorch-host", "pytorch-device", "pytorch-pair-host", "pytorch-pair-device", "pytorch-joined",
        "collected", "link",
    ),
    "`text`": ("text",), "`flexflow`": ("flexflow",), "`msccl`": ("msccl",),
    "`mscclpp`": ("mscclpp",), "`nccl`": ("nccl", "nccl-text"),
    "`rocprof`": ("rocprof",), "`nsight`": ("nsight", "nsight-rows"),
    "`xplane`": ("xplane",), "`stablehlo`": ("stablehlo",),
    "`triosim`": ("triosim", "triosim-tensors"), "`goal`": ("goal", "goal-binary"), "`eg`": ("eg",), "`hlo`": ("hlo",),
    "saved timeline": ("timeline",),
    "learned model": ("learned-model", "learned-archive", "corpus", "corpus-header"),
    "store of a sweep": ("store", "store-rows"),
    "storage of a search": ("trials",),
    "GEMM table": ("gemm-table",),
    "measurements": (
        "measured-csv", "measured-md", "measured-json", "nccl-csv", "prefills", "shares", "steps", "observed-steps",
        "observed-profile", "observed", "validated-gemms", "kernels-under-load", "legend", "silicon",
        "sim-to-real",
    ),
    "logs of nccl-tests": ("nccl-log", "measured-log", "issue-log"),
}  # fmt: skip
"""How a line of the page begins -> the targets that break such files."""
READERS = {reader.name: reader for reader in readers()}


def reading(file: Path) -> set[str]:
    """Return the functions that read which a module calls."""
    calls = (node for node in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(node, ast.Call))
    named = (ast.unparse(call.func) for call in calls if isinstance(call.func, ast.Name | ast.Attribute))
    return {name for name in named if name in READING or name.endswith((".read_bytes", ".read_text"))}


def test_every_module_that_reads_has_a_target() -> None:
    found = {
        file.relative_to(SOURCE).as_posix(): names
        for file in SOURCE.rglob("*.py")
        if (names := reading(file))
    }
    new = {name: sorted(found[name]) for name in found.keys() - MODULES.keys()}
    assert not new, f"give each a row in tests/fuzz/fuzz_files.py, and name it here: {new}"
    assert not set(MODULES.values()) - {OURS} - READERS.keys()


def test_every_line_of_the_page_has_targets_and_every_target_a_line() -> None:
    rows = [line[2:] for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    formats = rows[next(at for at, row in enumerate(rows) if row.startswith("file |")) + 1 :]
    lacking = [row for row in formats if sum(row.startswith(begin) for begin in LINES) != 1]
    assert not lacking, f"name the targets of each in LINES: {lacking}"
    assert all(any(row.startswith(begin) for row in formats) for begin in LINES)
    named = {name for names in LINES.values() for name in names}
    assert named == {name for name in READERS if not READERS[name].slow}


@pytest.mark.slow
@pytest.mark.parametrize("module", sorted(module for module, target in MODULES.items() if target))
def test_a_target_reaches_its_module(module: str, tmp_path: Path) -> None:
    reader: Reader = READERS[MODULES[module]]
    coverage = Coverage()
    for number, data in enumerate(reader.seeds()):
        folder = tmp_path / str(number)
        folder.mkdir()
        with coverage.watching():
            attempt(reader, data, folder, 6)
    coverage.close()
    reached = {line for name, line in coverage.lines if name == os.fspath(SOURCE / module)}
    assert reached
