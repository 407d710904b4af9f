"""The planner finds what simulating everything finds, and says why the rest was not simulated."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import armillary
from armillary.cli import main
from armillary.explore.search import planner
from armillary.explore.search.found import best_of
from armillary.explore.search.planner import plan, serially
from armillary.explore.sweep.constraint import objective
from armillary.explore.sweep.load import load_sweep
from armillary.explore.sweep.point import Row

MODEL = {
    "kind": "decoder", "name": "tiny", "layers": 4, "hidden": 64, "vocabulary": 512, "context": 32, "tied": True,
    "norm": "rms", "activation": "swiglu", "attention": {"heads": 8, "kv_heads": 4}, "mlp": {"size": 128},
}  # fmt: skip
MACHINE = {
    "network": [
        {"name": "node", "topology": "Switch", "size": 4, "bandwidth": "100 GB/s", "latency": "1 us"},
        {"name": "rack", "topology": "Ring", "size": 2, "bandwidth": "10 GB/s", "latency": "2 us"},
    ],
    "npu": {"peak": "1 TFLOP/s", "memory": {"bandwidth": "100 GB/s", "capacity": "2 GB"}},
}
GENERATE = "workload.generate"
AXES: dict[str, list[Any]] = {
    f"{GENERATE}.parallel.tp": [1, 2, 4],
    f"{GENERATE}.parallel.pp": [1, 2, 4],
    f"{GENERATE}.microbatch": [1, 2, 3],
    f"{GENERATE}.recompute": ["none", "selective", "full"],
    f"{GENERATE}.data.sharding": ["ddp", "zero-1", "zero-2", "fsdp"],
    f"{GENERATE}.pipeline.schedule": ["1f1b", "gpipe", "zero-bubble"],
    "platform.collectives.chunks": [1, 4],
    "platform.scheduling": ["fair", "fifo"],
}
OBJECTIVES = (
    ["minimize step_time"], ["maximize tokens_per_second"], ["maximize mfu"],
    ["minimize step_time", "maximize headroom"], ["minimize communication"],
)  # fmt: skip


def sweep(vary: dict[str, Any], objectives: list[str]) -> dict[str, Any]:
    wish = {"model": "tiny.yaml", "batch": 32}
    found = {
        "study": {"platform": MACHINE, "workload": {"generate": wish}},
        "vary": vary,
        "where": ["memory fits"],
    }
    return found | ({"objectives": objectives} if objectives else {})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(MODEL))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@settings(max_examples=10, deadline=None)
@given(
    st.lists(st.sampled_from(sorted(AXES)), min_size=2, max_size=3, unique=True),
    st.sampled_from(OBJECTIVES),
    st.sampled_from([1, 3]),
)
def test_it_finds_what_brute_force_finds(
    folder: Path, names: list[str], objectives: list[str], at_once: int
) -> None:
    given = load_sweep(sweep({name: AXES[name] for name in names}, objectives))
    found = plan(given, at_once=at_once)
    everything = list(serially(given)(list(given.space.points())))
    assert [row.number for row in found.rows] == list(range(given.space.size))
    numbers = [row.number for row in best_of(everything, found.objectives)]
    assert [row.number for row in found.best] == numbers
    for row, real in zip(found.rows, everything, strict=True):
        if row.reason.startswith("cannot"):
            assert row.measures["bound"] <= real.measures["step_time"]
            assert row.number not in numbers
        else:
            assert (row.status, row.reason) == (real.status, real.reason)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 3), st.integers(0, 3), st.booleans()),
        max_size=14,
    ),
    st.integers(1, 2),
    st.integers(1, 3),
)
def test_ties_and_failures_change_nothing(points: list[Any], goals: int, at_once: int) -> None:
    """Each point has two values, how much less its bounds are, and whether it is possible."""
    objectives = tuple(map(objective, ["minimize step_time", "minimize memory"][:goals]))
    rows = [
        Row(
            i,
            {},
            str(i),
            "ok" if possible else "failed",
            "",
            {"step_time": a, "memory": b} if possible else {},
        )
        for i, (a, b, _, _, possible) in enumerate(points)
    ]
    candidates = [
        planner._Candidate(
            tuple(float(value) for value in (a - c, b - d)[:goals]),
            i,
            Row(i, {}, str(i), "rejected", "", {}),
        )
        for i, (a, b, c, d, _) in enumerate(points)
    ]
    asked: list[int] = []

    def evaluate(some: Any) -> Any:
        asked.extend(point.number for point in some)
        return [rows[point.number] for point in some]

    space = SimpleNamespace(at=lambda i: SimpleNamespace(number=i, key=str(i), values={}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planner, "_screened", lambda *_: ({}, candidates))
        fake: Any = SimpleNamespace(objectives=objectives, space=space)
        found = plan(fake, evaluate, at_once=at_once)
    assert [row.number for row in found.best] == [row.number for row in best_of(rows, objectives)]
    assert len(asked) == len(set(asked))
    assert all(row.reason.startswith("cannot win: at least") for row in found.rows if row.number not in asked)


def test_it_simulates_few_of_many(folder: Path) -> None:
    vary = {f"{GENERATE}.parallel.tp": [1, 2, 4], f"{GENERATE}.parallel.pp": [1, 2, 4]}
    vary |= {f"{GENERATE}.recompute": ["none", "full"], f"{GENERATE}.microbatch": [1, 2]}
    found = armillary.search(sweep(vary, []))
    assert found.exact
    assert found.gap == 0
    assert found.simulated <= 4
    reasons = {row.reason for row in found.rows if row.reason.startswith("cannot win")}
    assert all("at least" in reason and "the best takes" in reason for reason in reasons)
    assert reasons


def test_the_command(folder: Path) -> None:
    Path("sweep.yaml").write_text(yaml.safe_dump(sweep({f"{GENERATE}.parallel.tp": [1, 2, 4, 8]}, [])))
    result = CliRunner().invoke(
        main, ["plan", "search", "sweep.yaml", "--csv", "all.csv", "--json", "found.json"]
    )
    assert result.exit_code == 0, result.output
    assert "planner: minimize step_time; 4 points, 4 looked at" in result.output
    assert "Nothing better exists" in result.output
    assert len(Path("all.csv").read_text().splitlines()) == 5
    assert '"exact": true' in Path("found.json").read_text()


def test_errors(folder: Path) -> None:
    Path("sweep.yaml").write_text(
        yaml.safe_dump(sweep({f"{GENERATE}.microbatch": [1]}, []) | {"search": {"method": "plannner"}})
    )
    result = CliRunner().invoke(main, ["plan", "search", "sweep.yaml"])
    assert result.exit_code == 2
    assert "planner" in result.output
