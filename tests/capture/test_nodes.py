"""Nodes of captured ranks, packed and by the kernel, against the same one after the other."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.capture import nodes, trace_of
from armillary.capture.chakra import _by_number, _definitions
from armillary.capture.log import (
    ALL,
    COMMUNICATION,
    HOST,
    JOIN,
    OPERATOR,
    RECORD,
    WAIT,
    Communication,
    Log,
    Place,
    Row,
)
from armillary.capture.nodes import HostTimes, RankNodes, graphs_of
from armillary.convert.groups import Groups
from armillary.trace import Graph, Trace, graph_of, write_trace
from armillary.trace.node import nodes_of
from tests.capture.logs import KINDS, log
from tests.capture.slow_nodes import SlowNodes

CALLS = [
    Communication("all-reduce", 1 << 20, 1 << 20, 0, True),
    Communication("all-gather", 1 << 20, 8 << 20, 0, False),
    Communication("send", 64, 0, 0, True, 3, 5),
    Communication("recv", 0, 64, 0, False, 2, 5),
    Communication("all-to-all", 96, 96, 1, True, splits=(32, 64)),
    # Of one member: nothing moves.
    Communication("all-reduce", 8, 8, 2, True),
]
PLACES = [Place("", "", False), Place("layers.0", "train.py:7", False), Place("layers.0", "", True)]


@st.composite
def ranks(draw: st.DrawFn) -> Log:
    """Return a rank whose streams, events, communications and host wait for each other in any way."""
    few, called = st.integers(0, 3), draw(st.lists(st.sampled_from(CALLS), max_size=8))
    rows, issued = [], 0
    for kind in draw(
        st.lists(st.sampled_from([OPERATOR, COMMUNICATION, RECORD, WAIT, JOIN, HOST]), max_size=40)
    ):
        what, stream, place, calls = draw(few), draw(few), draw(st.integers(0, 2)), draw(st.integers(0, 2))
        if kind == OPERATOR:
            what %= len(KINDS)
        elif kind == COMMUNICATION:
            if issued == len(called):
                continue
            what, issued = issued, issued + 1
        elif kind == JOIN:
            if not called:
                continue
            what %= len(called)
        elif kind == HOST and not what and draw(st.booleans()):
            stream = ALL
        rows.append(Row(kind, what, stream, place, calls))
    found = log(draw(st.integers(0, 7)), 8, rows, [tuple(range(8)), (0, 4), (5,)], called)
    found.places = PLACES
    return found


def slow(log: Log, times: HostTimes, groups: Groups) -> Graph:
    return graph_of(
        SlowNodes(log, _definitions(groups), _by_number(log, groups), times).all(), f"rank {log.rank}"
    )


def groups_of(logs: list[Log]) -> Groups:
    groups = Groups(8)
    for each in logs:
        for members in each.groups:
            groups.number(members)
    return groups


@given(
    st.lists(ranks(), min_size=1, max_size=3),
    st.sampled_from([HostTimes(), HostTimes(1500), HostTimes(2, 7, 1900)]),
)
@settings(max_examples=300, deadline=None)
def test_nodes_are_those_made_one_after_the_other(logs: list[Log], times: HostTimes) -> None:
    groups = groups_of(logs)
    packed = graphs_of(
        [RankNodes(each, _by_number(each, groups)) for each in logs], times, _definitions(groups)
    )
    for graph, each in zip(packed, logs, strict=True):
        wanted = slow(each, times, groups)
        assert nodes_of(graph) == nodes_of(wanted)
        assert graph.source == wanted.source


@given(st.lists(ranks(), min_size=1, max_size=2))
@settings(max_examples=25, deadline=None)
def test_compiled_nodes_are_the_same(logs: list[Log]) -> None:
    groups, times = groups_of(logs), HostTimes(2, 7, 1900)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nodes, "_COMPILED_FROM", 0)
        packed = graphs_of(
            [RankNodes(each, _by_number(each, groups)) for each in logs], times, _definitions(groups)
        )
    for graph, each in zip(packed, logs, strict=True):
        assert nodes_of(graph) == nodes_of(slow(each, times, groups))


@given(ranks())
@settings(max_examples=20, deadline=None)
def test_written_traces_are_the_same_files(tmp_path_factory: pytest.TempPathFactory, one: Log) -> None:
    folder = tmp_path_factory.mktemp("written")
    one.ranks, one.rank = 1, 0
    one.groups, one.communications = (
        [(0,)] * 3,
        [each for each in one.communications if each.type not in ("send", "recv")],
    )
    one.rows = [row for row in one.rows if row.kind not in (COMMUNICATION, JOIN)]
    trace = trace_of([one], host_ns=3)
    other = Trace((slow(one, HostTimes(3), Groups(1)),), trace.rank_graph, trace.grid, trace.about)
    for name, each in (("one", trace), ("other", other)):
        write_trace(folder / name, each)
    assert content(folder, "one") == content(folder, "other")


def content(folder: Path, prefix: str) -> dict[str, bytes]:
    return {path.name.removeprefix(prefix): path.read_bytes() for path in folder.glob(f"{prefix}*")}
