"""The toy of `docs/simulator-in-150-lines.md` against the engine, on random traces and machines that it covers."""

from __future__ import annotations

import contextlib
import io
import re
from math import prod
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import armillary
from armillary.base.errors import StuckError
from armillary.platform import Dimension, Platform, Port
from armillary.report import breakdown
from armillary.trace import CollectiveType, Graph, GraphBuilder, NodeType, Trace, encode

PAGE = Path(__file__).resolve().parents[2] / "docs" / "simulator-in-150-lines.md"
CODE = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.S | re.M)
KINDS = (CollectiveType.ALL_REDUCE, CollectiveType.ALL_GATHER, CollectiveType.REDUCE_SCATTER)
STREAMS = st.sampled_from([-1, 1, 2])
Case = tuple[list[tuple[Any, ...]], list[Graph], list[int]]


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the page defines, after its own example has run."""
    names: dict[str, Any] = {"__name__": "toy"}
    folder = tmp_path_factory.mktemp("toy")
    with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
        exec(compile("".join(CODE), str(PAGE), "exec"), names)
    return names


def test_the_page_has_at_most_150_lines_of_python() -> None:
    assert sum(block.count("\n") for block in CODE) <= 150


@st.composite
def machines(draw: Any) -> list[tuple[Any, ...]]:
    """(topology, size, bytes per ns, latency in ns) of one to three dimensions, at most 24 NPUs."""
    sizes = draw(st.lists(st.integers(2, 6), min_size=1, max_size=3))
    while prod(sizes) > 24:
        sizes.pop()
    topology = st.sampled_from(["Ring", "FullyConnected", "Switch"])
    rate, latency = st.sampled_from([10.0, 5.0, 0.7, 33.3]), st.sampled_from([0, 1, 100, 700])
    return [(draw(topology), size, draw(rate), draw(latency)) for size in sizes]


@st.composite
def cases(draw: Any) -> Case:
    """A machine, one to three programs with the same collectives, and the program of each rank."""
    machine = draw(machines())
    programs = [GraphBuilder() for _ in range(draw(st.integers(1, 3)))]
    for number in range(draw(st.integers(1, 8))):
        after = draw(st.lists(st.integers(0, number - 1), max_size=2, unique=True)) if number else []
        stream, collective = draw(STREAMS), draw(st.booleans())
        attrs: list[tuple[str, str, Any]] = [("stream", "int32", stream)] if stream >= 0 else []
        if collective:
            size = draw(st.sampled_from([1, 7, 1000, 65536, 100_001]))
            involved = draw(st.lists(st.booleans(), min_size=len(machine), max_size=len(machine)))
            attrs += [("comm_type", "int64", int(draw(st.sampled_from(KINDS)))), ("comm_size", "int64", size)]
            attrs.append(("involved_dim", "bool_list", involved))
        for program in programs:
            kind = NodeType.COMM_COLL_NODE if collective else NodeType.COMP_NODE
            micros = 0 if collective else draw(st.sampled_from([0, 1, 2, 5, 30]))
            program.add("", kind, attrs, after=after, duration_micros=micros)
    npus = prod(size for _, size, _, _ in machine)
    of_rank = draw(st.lists(st.integers(0, len(programs) - 1), min_size=npus, max_size=npus))
    return machine, [program.graph() for program in programs], of_rank


@settings(deadline=None, max_examples=100)
@given(case=cases())
def test_the_toy_is_the_engine_tick_for_tick(toy: dict[str, Any], case: Case) -> None:
    machine, programs, of_rank = case
    files = [encode(program) for program in programs]
    dims = [Dimension(f"d{d}", *rest, Port(rest[2], rest[2])) for d, rest in enumerate(machine)]
    trace = Trace.from_ranks([programs[program] for program in of_rank])
    network = [toy["Dimension"](*rest) for rest in machine]
    try:
        timeline = armillary.simulate(trace, Platform(tuple(dims)), profile="physical")
    except StuckError:  # streams raced, so ranks disagree about which collective is the next
        with pytest.raises(ValueError):
            toy["simulate"]([files[program] for program in of_rank], network)
        return
    classes, graphs, start, end = toy["simulate"]([files[program] for program in of_rank], network)
    for rank, cls in enumerate(classes):
        expected = [column.tolist() for column in timeline.spans(timeline.rank_class[rank])]
        ids = [node.id for node in graphs[cls]]
        assert [[ticks[cls, node] for node in ids] for ticks in (start, end)] == expected


def test_the_report_of_the_page_is_that_of_the_engine(toy: dict[str, Any]) -> None:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        toy["report"](*(toy[name] for name in ("classes", "graphs", "start", "end")))
    expected = []
    for cls in range(len(toy["graphs"])):
        parts = breakdown(toy["timeline"], int(toy["timeline"].rank_class[toy["classes"].index(cls)]))
        finish, exposed = parts.finish, parts.communication + parts.waiting
        expected.append(f"{finish:,} ns: {parts.compute:,} compute, {exposed:,} exposed")
    assert [line.split(maxsplit=2)[2] for line in out.getvalue().splitlines()] == expected
