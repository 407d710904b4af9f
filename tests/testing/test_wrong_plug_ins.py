"""What a plug-in does wrong is one line that names it, at every extension point."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from armillary.base.errors import InputError
from armillary.cli import main
from armillary.collective import ListedAlgorithm
from armillary.collective.algorithms import find_algorithm
from armillary.compute import ComputeModel, Times
from armillary.explore.runner import Executor, make_executor

Install = Callable[[Any], None]
STUDY = """
workload: {generate: {model: llama-2-7b, batch: 4, sequence: 2048, parallel: {tp: 4}}}
platform:
  network:
    - {name: node, topology: Switch, size: 2, bandwidth: 100 GB/s, latency: 500 ns}
    - {name: rail, topology: Switch, size: 2, bandwidth: 50 GB/s, latency: 500 ns}
  npu: {peak: 989 TFLOP/s, memory: {bandwidth: 3350 GB/s}}
"""
SWEEP = """
study: study.yaml
vary: {workload.generate.batch: [4, 8]}
objectives: [minimize step_time]
"""


def fails(*_: Any, **__: Any) -> Any:
    raise KeyError("oh")


class Model(ComputeModel):
    @classmethod
    def create(cls, options: Any, device: Any, folder: Any) -> Any:
        return cls()

    def durations(self, work: Any) -> Any:
        return Times(np.zeros(len(work)))


class NoModel(Model):
    create = classmethod(lambda cls, options, device, folder: 7)  # type: ignore[assignment]


class NotMade(Model):
    create = classmethod(fails)


class NotAsked(Model):
    durations = fails


class NoTimes(Model):
    def durations(self, work: Any) -> Any:
        return [1.0] * len(work)


class ListOfTimes(Model):
    def durations(self, work: Any) -> Any:
        return Times([1.0] * len(work))  # type: ignore[arg-type]


class NegativeTimes(Model):
    def durations(self, work: Any) -> Any:
        return Times(np.full(len(work), -1.0))


class Algorithm(ListedAlgorithm):
    operations = ("all-reduce", "all-gather", "reduce-scatter")
    cut = steps = refuses = fails


class NoRounds(ListedAlgorithm):
    operations = ("all-reduce", "all-gather", "reduce-scatter")

    def rounds(self, operation: str, n: int, root: int, chunks: int) -> Any:
        return ["round"]

    def refuses(self, operation: str, n: int) -> str:
        return ""

    cut = steps = fails


class Nowhere(Executor):
    slots = 0

    def __init__(self, workers: int | None = None) -> None:
        pass

    def start(self, job: Any) -> None:
        pass

    submit = wait = fails

    def close(self) -> None:
        pass


class Somewhere(Nowhere):
    slots = 1


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    (tmp_path / "in.txt").write_text("4")
    find_algorithm.cache_clear()
    return tmp_path


def run(folder: Path, more: str, *words: str) -> Result:
    (folder / "study.yaml").write_text(STUDY + more)
    words = tuple(word.replace("FOLDER", str(folder)) for word in words or ("run", "FOLDER/study.yaml"))
    return CliRunner().invoke(main, words)


COMPUTE = "  compute: {model: mine}\n"
ALGORITHM = "  collectives: {all-reduce: [mine, mine]}\n"
ORDER = "  collectives: {chunk_order: mine, chunks: 2}\n"
CONVERT = ("trace", "convert", "--from", "mine", "FOLDER/in.txt", "-o", "FOLDER/out")
EXECUTE = ("sweep", "FOLDER/sweep.yaml", "--executor", "mine")


def untyped(inputs: Any, *, rate=3) -> Any:  # type: ignore[no-untyped-def]
    return None


def oddly_typed(inputs: Any, *, rate: list[int]) -> Any:
    return None


@pytest.mark.parametrize(
    ("what", "more", "words", "problem"),
    [
        (NoModel, COMPUTE, (), "compute model 'mine': create returned 7, expected a ComputeModel"),
        (NotMade, COMPUTE, (), "compute model 'mine' failed: KeyError: 'oh'"),
        (NotAsked, COMPUTE, (), "compute model 'mine' failed: KeyError: 'oh'"),
        (NoTimes, COMPUTE, (), "compute model 'mine' gave [1.0,"),
        (ListOfTimes, COMPUTE, (), "expected Times with ns as an array"),
        (NegativeTimes, COMPUTE, (), "compute model 'mine' gave -1 ns"),
        (Path, COMPUTE, (), "expected a subclass of ComputeModel"),
        (Algorithm, ALGORITHM, (), "collective algorithm 'mine' failed: KeyError: 'oh'"),
        (NoRounds, ALGORITHM, (), "collective algorithm 'mine': rounds: got 'round', expected a Round"),
        (Path, ALGORITHM, (), "expected a subclass of CollectiveAlgorithm"),
        (fails, ORDER, (), "chunk scheduler 'mine' failed: KeyError: 'oh'"),
        (lambda problem: [3], ORDER, (), "chunk scheduler 'mine' failed: TypeError"),
        (lambda problem: [(1, (0,))], ORDER, (), "chunk scheduler 'mine': "),
        (fails, "", CONVERT, "front end 'mine' failed: KeyError: 'oh'"),
        (
            lambda inputs: None,
            "",
            CONVERT,
            "front end 'mine' returned nothing, expected a Converted with a Trace",
        ),
        (
            untyped,
            "",
            CONVERT,
            "front end 'mine': option rate has type nothing, expected int, str, float, bool or Path",
        ),
        (oddly_typed, "", CONVERT, "front end 'mine': option rate has type"),
        (3, "", CONVERT, "front end 'mine' is 3, expected a function convert(inputs, *, …)"),
        (fails, "", EXECUTE, "executor 'mine' failed: KeyError: 'oh'"),
        (lambda workers: 3, "", EXECUTE, "executor 'mine' is 3, expected an Executor"),
        (Nowhere, "", EXECUTE, "executor 'mine': slots: got 0, expected 1 or more"),
        (Somewhere, "", EXECUTE, "executor 'mine' failed: KeyError: 'oh'"),
    ],
)
def test_it_is_one_line(
    what: Any, more: str, words: tuple[str, ...], problem: str, install: Install, files: Path
) -> None:
    install(what)
    done = run(files, more, *words)
    assert problem in done.stderr, done.output
    assert done.exit_code == 2
    assert [line for line in done.stderr.splitlines() if line.startswith("armillary: error: ")]
    assert "Traceback" not in done.output
    assert not list(files.glob("out*"))


@pytest.mark.parametrize(
    ("more", "words"), [(COMPUTE, ()), (ALGORITHM, ()), (ORDER, ()), ("", CONVERT), ("", EXECUTE)]
)
def test_what_cannot_be_imported_is_one_line(
    more: str, words: tuple[str, ...], files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from importlib.metadata import EntryPoint

    points = lambda group: [EntryPoint("mine", "no_such_module:thing", group)]  # noqa: E731
    monkeypatch.setattr("armillary.base.extension.entry_points", points)
    done = run(files, more, *words)
    assert done.exit_code == 2 and "'mine' cannot be loaded: No module named 'no_such_module'" in done.stderr


def test_our_own_mistakes_keep_their_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("armillary.explore.runner.executors.processes.Processes.__init__", fails)
    with pytest.raises(KeyError):
        make_executor("processes")
    with pytest.raises(InputError, match="no executor 'yours'"):
        make_executor("yours")


def test_a_search_does_not_trust_its_bounds_of_other_packages(install: Install, files: Path) -> None:
    """A network model may be faster than what a bound knows of the machine: nothing is left out for it."""
    from armillary.explore.search.optimistic import Optimist
    from armillary.explore.sweep import load_sweep

    install(Path)
    found = []
    for more in ("", "  network_model: flow\n", "  network_model: mine\n", "  remote_memory: {kind: mine}\n"):
        (files / "study.yaml").write_text(STUDY + more)
        sweep = load_sweep(files / "sweep.yaml")
        point = next(iter(sweep.space.points()))
        found.append("step_time" in Optimist(sweep).measures(point))
    assert found == [True, True, False, False]
