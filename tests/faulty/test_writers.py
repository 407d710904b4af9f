"""Every writer, with a disk that fails at each of its calls: the file is what it was or what it is to be, and alone."""

from __future__ import annotations

import ast
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import armillary
from armillary.base.errors import InputError
from armillary.base.files import filling, replacing, write_text
from armillary.base.kernel_files import KernelFiles
from armillary.engine.common.timeline import Timeline
from armillary.trace import CollectiveType, GraphBuilder, Trace, write_graph, write_group_file, write_trace

Writer = Callable[[Path], object]
Contents = dict[str, bytes]
SOURCES = Path(armillary.__file__ or "").parent


def made_trace() -> Trace:
    builder = GraphBuilder()
    for number in range(30):
        builder.collective(f"step {number}", CollectiveType.ALL_REDUCE, 1 << 20)
    return Trace.replicate(builder.graph("made"), ranks=4)


@pytest.fixture(scope="module")
def timeline() -> Timeline:
    from armillary.platform.files.native import load_platform

    ring = {"topology": "Ring", "size": 4, "bandwidth": "1 GB/s", "latency": "1 us"}
    return armillary.simulate(made_trace(), load_platform({"platform": {"network": [ring]}}))


def figure(path: Path) -> None:
    from armillary.base.pictures import new_figure, save_figure

    drawn = new_figure(3, 2)
    drawn.add_subplot().plot([1, 2, 3])
    save_figure(drawn, path)


def results(path: Path) -> None:
    from armillary.explore.runner import Results
    from armillary.explore.sweep import Row, load_sweep

    ring = {"topology": "Ring", "size": 4, "bandwidth": "1 GB/s", "latency": "1 us", "name": "ring"}
    study = {"workload": {"collective": "all-reduce", "size": "1 MB"}, "platform": {"network": [ring]}}
    sweep = load_sweep({"study": study, "vary": {"workload.size": ["1 MB", "2 MB"]}})
    found = Results(sweep, tuple(Row(at, {"size": at}, "", "ok", "", {"step_time": 1.0}) for at in range(2)))
    (found.write_csv if path.suffix == ".csv" else found.write_json)(path)


def archive(path: Path) -> None:
    from armillary.lab.learned.archive import write_archive

    write_archive(path, {"format": "x"}, {"numbers": np.arange(50_000)})


def corpus(path: Path) -> None:
    from armillary.lab.learned.corpus import write_corpus

    write_corpus(path, [str(path.parent.parent / "given" / "rank")], [])


def legend(path: Path) -> None:
    from armillary.lab.obfuscation.relabel import Legend
    from armillary.lab.obfuscation.restoring import write_legend

    write_legend(path, Legend({"a": "b"}), "key")


def issue_log(path: Path) -> None:
    from armillary.report.issue_log import write_issue_log

    log = path.parent.parent / "log"
    lines = []
    for number in range(200):
        lines += [
            f"issue,sys->id, {number % 4}, tick, {number * 10}, node->id, {number}, node->name, n, node->type, 4"
        ]
        lines += [f"callback,sys->id, {number % 4}, tick, {number * 10 + 5}, node->id, {number}"]
    log.write_text("\n".join(lines))
    write_issue_log(log, path, 4, Fraction(1000))


def folder(path: Path) -> None:
    with filling(path) as filled:
        write_trace(filled / "rank", made_trace())
        write_group_file(filled / "groups.json", made_trace())


def page(path: Path) -> None:
    from armillary.report.trace_graph import write_trace_graph

    write_trace_graph(made_trace().graph(0), path)


def packed(path: Path) -> None:
    with replacing(path) as temporary, temporary.open("wb", buffering=0) as raw:
        for _ in range(3):
            left = memoryview(b"x" * 1000)
            while left:
                left = left[raw.write(left) or 0 :]


def json_layout(path: Path) -> None:
    from armillary.trace.json_layout import write_json

    write_json(path, made_trace().graph(0))


def shown(name: str) -> Callable[[Path, Timeline], object]:
    def write(path: Path, timeline: Timeline) -> None:
        from armillary import report

        getattr(report, name)(timeline, path)

    return write


def trace_timeline(path: Path) -> None:
    from armillary.report.trace_timeline import write_trace_timeline

    write_trace_timeline(made_trace(), path)


WRITERS: dict[str, tuple[str, Writer]] = {
    "text": ("out.txt", lambda path: write_text(path, *["a line\n"] * 20_000)),
    "raw": ("out.bin", packed),
    "graph": ("out.et", lambda path: write_graph(path, made_trace().graph(0))),
    "graph in JSON": ("out.json", lambda path: write_graph(path, made_trace().graph(0))),
    "graph in JSON, in pieces": ("out.json", json_layout),
    "graph with gzip": ("out.et.gz", lambda path: write_graph(path, made_trace().graph(0), "gzip")),
    "groups": ("groups.json", lambda path: write_group_file(path, made_trace())),
    "PNG": ("out.png", figure),
    "SVG": ("out.svg", figure),
    "PDF": ("out.pdf", figure),
    "drawing as a page": ("out.html", page),
    "drawing as DOT": ("out.dot", page),
    "rows as CSV": ("out.csv", results),
    "rows as JSON": ("out.json", results),
    "archive of a model": ("out.model", archive),
    "legend": ("out.map", legend),
    "timeline of a trace": ("out.json.gz", trace_timeline),
}
OF_TIMELINES: dict[str, tuple[str, Callable[[Path, Timeline], object]]] = {
    "result": ("out.result", lambda path, timeline: timeline.save(path)),
    "report": ("out.json", shown("write_json")),
    "Perfetto": ("out.json.gz", shown("write_perfetto")),
}
OF_FOLDERS: dict[str, tuple[str, Writer]] = {
    "trace": ("rank", lambda path: write_trace(path, made_trace())),
    "generated folder": ("made", folder),
    "corpus": ("corpus", corpus),
}


def contents(folder: Path) -> Contents:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def tried(
    write: Callable[[Path], object], name: str, tmp_path: Path, faults: Any, below: Any
) -> tuple[int, int]:
    """Let each fault meet a writer, over a file and over none; return how many failed, and how many did not meet."""
    (tmp_path / "good").mkdir()
    write(tmp_path / "good" / name)
    good = contents(tmp_path / "good")
    assert good
    failed = went_on = 0
    for number, fault in enumerate(faults):
        for old in ({}, {name: b"old"}) if name in good else ({},):
            place = tmp_path / f"{number}{'b' if old else 'a'}"
            place.mkdir()
            for each, data in old.items():
                (place / each).write_bytes(data)
            try:
                with below(place, fault) as layer:
                    write(place / name)
            except (InputError, KeyboardInterrupt) as error:
                assert layer.failed and "\n" not in str(error), f"{fault}: {error}"
                assert str(place) in str(error) or isinstance(error, KeyboardInterrupt), f"{fault}: {error}"
                failed += 1
                whole = {each: data for each, data in good.items() if each in contents(place)}
                # Of several files that are whole by themselves (parts of a corpus), some may be there.
                assert contents(place) == (whole if name not in good and name == "corpus" else old), (
                    f"{fault}: {error}"
                )
            else:
                assert contents(place) == good, f"{fault} was not told"
                went_on += not layer.failed
    return failed, went_on


@pytest.mark.parametrize("kind", WRITERS)
def test_a_file_is_whole_or_as_it_was(kind: str, tmp_path: Path, faults: Any, below: Any) -> None:
    name, write = WRITERS[kind]
    failed, _ = tried(write, name, tmp_path, faults, below)
    assert failed >= 20


@pytest.mark.parametrize("kind", OF_TIMELINES)
def test_a_file_of_a_result_is_too(
    kind: str, timeline: Timeline, tmp_path: Path, faults: Any, below: Any
) -> None:
    name, write = OF_TIMELINES[kind]
    failed, _ = tried(lambda path: write(path, timeline), name, tmp_path, faults, below)
    assert failed >= 20


@pytest.mark.parametrize("kind", OF_FOLDERS)
def test_several_files_are_all_there_or_none(kind: str, tmp_path: Path, faults: Any, below: Any) -> None:
    (tmp_path / "given").mkdir()
    write_trace(tmp_path / "given" / "rank", made_trace())
    name, write = OF_FOLDERS[kind]
    failed, _ = tried(write, name, tmp_path, faults, below)
    assert failed >= 15


def test_a_kernel_is_kept_whole_or_not(tmp_path: Path, faults: Any, below: Any) -> None:
    for number, fault in enumerate(faults):
        files = KernelFiles(tmp_path / str(number), "kernel", "1")
        try:
            with below(tmp_path, fault):
                files.save("key", b"code" * 10_000)
        except KeyboardInterrupt:
            assert fault.call == "interrupt"
        assert files.load("key") in (None, b"code" * 10_000)
        assert not list(tmp_path.rglob("*.part"))


def test_lines_are_added_to_a_log_or_it_is_as_it_was(tmp_path: Path, faults: Any, below: Any) -> None:
    from armillary.report.astra_log.log_files import append_lines

    failed = 0
    for number, fault in enumerate(faults):
        for old in ("", "a line of before\n"):
            path = tmp_path / f"{number}{bool(old)}" / "log.log"
            path.parent.mkdir()
            if old:
                path.write_text(old)
            try:
                with below(path.parent, fault) as layer:
                    append_lines(path, "a line\n" * 1000, None, 0)
            except (InputError, KeyboardInterrupt):
                assert layer.failed and contents(path.parent) == ({path.name: old.encode()} if old else {})
                failed += 1
            else:
                assert path.read_text() == old + "a line\n" * 1000, f"{fault} was not told"
    assert failed >= 20


def test_a_trace_that_replaces_another_is_never_a_mixture(tmp_path: Path, faults: Any, below: Any) -> None:
    from armillary.trace import load_trace

    def small() -> Trace:
        builder = GraphBuilder()
        builder.collective("one", CollectiveType.ALL_GATHER, 1 << 10)
        return Trace.replicate(builder.graph("small"), ranks=2)

    for number, fault in enumerate(faults):
        prefix = tmp_path / str(number) / "rank"
        prefix.parent.mkdir()
        write_trace(prefix, made_trace(), "gzip")
        try:
            with below(prefix.parent, fault):
                write_trace(prefix, small())
        except (InputError, KeyboardInterrupt):
            # Removed first, it cannot be read, or nothing was changed yet.
            try:
                assert load_trace(prefix).n_ranks == 4
            except InputError:
                assert not list(prefix.parent.glob("*.0.*"))
        else:
            assert load_trace(prefix).n_ranks == 2 and len(list(prefix.parent.iterdir())) == 2


# To a stream or a name that `replacing` has given; the rest goes into temporary folders of a run.
GIVEN = {
    "base/files.py: path.open",
    "base/pictures.py: figure.savefig",
    "engine/common/timeline.py: np.savez_compressed",
    "lab/learned/archive.py: np.savez_compressed",
    "lab/learned/corpus.py: np.savez_compressed",
    "convert/collect.py: gzip.open",
    "evidence/replay/worker.py: np.savez",
}
TEMPORARY = {
    "capture/forks.py: printed.open",
    "convert/collect.py: self._parts[0].touch",
    "convert/collect_script.py: (Path(options['folder']) / f'{REFUSED}{rank}').write_text",
    "evidence/replay/run.py: (folder / 'stop').touch",
    "evidence/replay/run.py: (Path(folder) / f'job_{rank.rank}.pickle').write_bytes",
}


def test_nothing_is_written_but_through_files() -> None:
    """Calls that open a file for writing stand where `replacing` has given the name."""
    writes = {"write_text", "write_bytes", "savefig", "savez", "savez_compressed", "touch"}
    found = set()
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute | ast.Name):
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
            on = ast.unparse(node.func.value) if isinstance(node.func, ast.Attribute) else ""
            given = [*node.args, *(each.value for each in node.keywords)]
            modes = [each.value for each in given if isinstance(each, ast.Constant)]
            opens = name == "open" and any(
                isinstance(mode, str) and set(mode) & set("wax+") and set(mode) <= set("wraxbt+")
                for mode in modes
            )
            if (opens or (name in writes and on)) and on != "temporary":
                found.add(f"{path.relative_to(SOURCES)}: {ast.unparse(node.func)}")
    assert found <= GIVEN | TEMPORARY | {"testing/front_end.py: tries[what][0].write_bytes"}
