"""Findings about the ranks of a trace together, held against what the simulator makes of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import armillary
from armillary.base.errors import ArmillaryError
from armillary.trace import CollectiveType, Graph, GraphBuilder, Node, NodeType, Trace
from armillary.trace.check_ranks import check_ranks, check_trace

GROUPS = {1: (0, 1), 2: (1, 2), 3: (2, 0)}
DIMENSION = {"name": "d", "topology": "Switch", "size": 3, "bandwidth": "1 GB/s", "latency": "10 ns"}
STUDY = {
    "platform": {"network": [DIMENSION], "groups": {str(k): list(v) for k, v in GROUPS.items()}},
    "profile": "physical",
}


def messages(trace: Trace, groups: dict[int, tuple[int, ...]] | None = None) -> list[str]:
    return [f"{finding.severity}: {finding.message}" for finding in check_ranks(trace, groups)]


Operation = tuple[str, int, int, int]
"""What, the group or peer, the size, and how many operations back is the one it waits for (0: none)."""
OPERATION = st.tuples(
    st.sampled_from(("ar", "ag", "message")), st.integers(0, 3), st.sampled_from((8, 16)), st.integers(0, 2)
)


def play(operations: list[Operation], changes: list[tuple[int, int, str]], *, chain: bool) -> Trace:
    """Return a trace of three ranks: operations of all members in one order, then changed on single ranks.

    With `chain` every operation waits for the one before it on its rank.
    """
    mine: list[list[tuple[str, int, int, int, int]]] = [[], [], []]
    for what, number, size, back in operations:
        ranks = (0, 1, 2) if number == 0 else GROUPS[number]
        if what == "message":
            a, b = GROUPS[number or 1]
            mine[a].append(("send", b, size, back, len(mine[a])))
            mine[b].append(("recv", a, size, back, len(mine[b])))
        else:
            for rank in ranks:
                mine[rank].append((what, number, size, back, len(mine[rank])))
    for rank, at, change in changes:
        rows = mine[rank]
        if at + 1 < len(rows):
            if change == "drop":
                del rows[at]
            elif change == "size":
                rows[at] = (*rows[at][:2], 32, *rows[at][3:])
            else:
                rows[at], rows[at + 1] = rows[at + 1], rows[at]
    graphs = []
    for rank, rows in enumerate(mine):
        b = GraphBuilder(rank=rank)
        for what, number, size, back, _ in rows:
            back = 1 if chain else back
            after = [len(b.nodes) - back] if 0 < back <= len(b.nodes) else []
            if what == "send":
                b.send(number, size, after=after)
            elif what == "recv":
                b.recv(number, size, after=after)
            else:
                kind = CollectiveType.ALL_REDUCE if what == "ar" else CollectiveType.ALL_GATHER
                b.collective(what, kind, size, group=number or None, after=after)
        graphs.append(b.graph())
    return Trace.from_ranks(graphs)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(OPERATION, max_size=8),
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 5), st.sampled_from(("drop", "size", "swap"))), max_size=2
    ),
    st.booleans(),
)
def test_the_verdict_is_that_of_the_simulator(
    operations: list[Operation], changes: list[tuple[int, int, str]], chain: bool
) -> None:
    trace = play(operations, changes, chain=chain)
    found = check_trace(trace, GROUPS).all
    platform = armillary.load_platform(STUDY)
    failure = ""
    try:
        armillary.simulate(trace, platform, fold=False)
    except ArmillaryError as error:
        failure = str(error)
    errors = [finding.message for finding in found if finding.severity == "error"]
    if any("no rank receives" not in message for message in errors):
        assert failure, errors
    if chain:
        assert bool(failure) == any("no rank receives" not in message for message in errors), (failure, found)


def ranks(*builders: Callable[[GraphBuilder], object]) -> Trace:
    """Return the trace of what each function builds."""
    graphs = []
    for rank, build in enumerate(builders):
        b = GraphBuilder(rank=rank)
        build(b)
        graphs.append(b.graph())
    return Trace.from_ranks(graphs)


def both(b: GraphBuilder, first: int, second: int) -> None:
    """Two all-reduces, the second after the first."""
    one = b.all_reduce("one", 8, group=first)
    b.all_reduce("two", 8, group=second, after=[one])


def after_receive(b: GraphBuilder, peer: int) -> None:
    """Send only when the peer has sent."""
    b.send(peer, 8, after=[b.recv(peer, 8)])


def to_itself(b: GraphBuilder) -> None:
    """Send to the own rank, which a builder that knows it refuses."""
    b.rank = None
    b.send(0, 8)


FINDINGS: dict[str, tuple[Trace, str]] = {
    "never received": (
        ranks(lambda b: b.send(1, 2048, tag=3), lambda b: None),
        "error: 1 message that no rank receives: rank 0 sends 2 KiB to rank 1 with tag 3 (node 0 "
        "'send to 1')",
    ),
    "never sent": (
        ranks(lambda b: None, lambda b: [b.recv(0, 8), b.recv(0, 8)]),
        "error: 2 receives of a message that no rank sends: rank 1 awaits 8 B from rank 0 with tag 0 (node 0",
    ),
    "sizes": (
        ranks(lambda b: b.send(1, 8), lambda b: b.recv(0, 16)),
        "error: 1 message that the receiver awaits with another size: rank 0 sends 8 B to rank 1 with tag 0 "
        "(node 0 'send to 1'), but rank 1 awaits 16 B from rank 0 with tag 0 (node 0 'recv from 0')",
    ),
    "one too many": (
        ranks(lambda b: [b.send(1, 8), b.send(1, 8)], lambda b: b.recv(0, 8)),
        "error: 1 message that no rank receives: rank 0 sends 8 B to rank 1 with tag 0 (node 1 'send to 1')",
    ),
    "no such rank": (
        ranks(lambda b: b.send(7, 8), lambda b: None),
        "error: 1 message from or to a rank that is not there: rank 0 sends to rank 7 (node 0 'send to 7')",
    ),
    "itself": (
        ranks(to_itself, lambda b: None),
        "error: 1 message of a rank with itself: rank 0 sends to rank 0",
    ),
    "type": (
        ranks(lambda b: b.all_reduce("a", 8), lambda b: b.all_gather("a", 8)),
        "error: 1 group whose members differ in the type of a collective: all ranks: number 1 is "
        "ALL_REDUCE of 8 B (node 0 'a') "
        "on rank 0, but ALL_GATHER of 8 B (node 0 'a') on rank 1",
    ),
    "size": (
        ranks(lambda b: b.all_reduce("a", 8), lambda b: b.all_reduce("a", 16)),
        "error: 1 group whose members differ in the size of a collective: all ranks: number 1 is "
        "ALL_REDUCE of 8 B (node 0 'a') "
        "on rank 0, but ALL_REDUCE of 16 B (node 0 'a') on rank 1",
    ),
    "dimensions": (
        ranks(lambda b: b.all_reduce("a", 8, dims=[True, False]), lambda b: b.all_reduce("a", 8)),
        "error: 1 group whose members differ in the dimensions of a collective: all ranks: number 1 "
        "is ALL_REDUCE of 8 B over "
        "dimensions [0] (node 0 'a') on rank 0",
    ),
    "none at all": (
        ranks(lambda b: b.all_reduce("a", 8, group=1), lambda b: None, lambda b: None),
        "error: 1 group where a member lacks collectives: group 1: rank 1 runs none, rank 0 1, the "
        "first ALL_REDUCE",
    ),
    "fewer": (
        ranks(lambda b: [b.barrier(), b.barrier()], lambda b: b.barrier()),
        "error: 1 group where a member lacks collectives: all ranks: rank 0 runs 2, rank 1 1; only "
        "rank 0 runs number 2",
    ),
    "not a member": (
        ranks(*[lambda b: b.all_reduce("a", 8, group=1)] * 3),
        "error: 1 group where a rank that is no member takes part: group 1: rank 2 runs ALL_REDUCE "
        "of 8 B (node 0 'a'), the "
        "members are 0, 1",
    ),
    "no such group": (
        ranks(*[lambda b: b.all_reduce("a", 8, group=9)] * 2),
        "error: 1 group is not defined, neither by a metadata node nor by --comm-groups (defined: 1): "
        "'9' (rank 0: node 0",
    ),
    "order": (
        ranks(
            lambda b: b.all_gather("b", 8, after=[b.all_reduce("a", 8)]),
            lambda b: b.all_reduce("a", 8, after=[b.all_gather("b", 8)]),
        ),
        "error: 1 group whose members run collectives in another order: all ranks: number 1 is ALL_REDUCE",
    ),
    "order that may change": (
        ranks(
            lambda b: [b.all_gather("b", 8, after=[b.compute("c", duration_micros=1)]), b.all_reduce("a", 8)],
            lambda b: b.all_reduce("a", 8, after=[b.all_gather("b", 8)]),
        ),
        "warning: 1 group whose members may run collectives in another order: all ranks: number 1 is",
    ),
    "crossed groups": (
        ranks(lambda b: both(b, 0, 1), lambda b: both(b, 1, 0)),
        "error: deadlock: ranks wait for each other in a circle: rank 0 runs node 0 'one' of all "
        "ranks before node 1 "
        "'two' of group 1; rank 1 runs node 0 'one' of group 1 before node 1 'two' of all ranks",
    ),
    "crossed groups without dependencies": (
        ranks(
            lambda b: [b.all_reduce("a", 8), b.all_reduce("b", 8, group=1)],
            lambda b: [b.all_reduce("b", 8, group=1), b.all_reduce("a", 8)],
        ),
        "warning: possible deadlock where a rank runs one collective at a time, as in profile astra-sim: rank 0 waits "
        "in node 0 'a' of all ranks for rank 1, which is in node 0 'b' of group 1",
    ),
    "receives before sends": (
        ranks(lambda b: after_receive(b, 1), lambda b: after_receive(b, 0)),
        "error: deadlock: ranks wait for each other in a circle: rank 0 runs node 0 'recv from 1' "
        "before node 1",
    ),
}


@pytest.mark.parametrize("case", FINDINGS)
def test_finding(case: str) -> None:
    trace, message = FINDINGS[case]
    found = messages(trace, {1: (0, 1)})
    assert len(found) == 1, found
    assert found[0].startswith(message)


def test_ranks_that_fit_together_have_no_findings() -> None:
    trace = ranks(
        lambda b: both(b, 0, 1) or [b.send(1, 8), b.recv(1, 8)],  # type: ignore[func-returns-value]
        lambda b: both(b, 0, 1) or [b.send(0, 8), b.recv(0, 8)],  # type: ignore[func-returns-value]
    )
    assert messages(trace, {1: (1, 0)}) == []


@given(
    st.lists(st.integers(0, 1), min_size=3, max_size=3),
    st.lists(
        st.lists(st.tuples(st.booleans(), st.integers(0, 2), st.sampled_from((8, 16)))),
        min_size=2,
        max_size=2,
    ),
)
def test_shared_graphs_count_as_those_of_every_rank(
    rank_graph: list[int], rows: list[list[tuple[bool, int, int]]]
) -> None:
    graphs = []
    for messages_ in rows:
        b = GraphBuilder()
        for send, peer, size in messages_:
            (b.send if send else b.recv)(peer, size)
        graphs.append(b.graph())
    shared = Trace.from_ranks([graphs[i] for i in rank_graph])
    nodes = [armillary.trace.nodes_of(graphs[i]) for i in rank_graph]
    copies = Trace.from_ranks([armillary.trace.graph_of(each) for each in nodes])
    if not any("itself" in text for text in messages(copies)):
        assert unmet(shared) == unmet(copies)


def unmet(trace: Trace) -> tuple[int, int]:
    """Return how many sends and how many receives meet nothing."""
    texts = [text.split(" ", 2)[1:] for text in messages(trace)]
    counts = {what.split(":")[0]: int(count) for count, what in texts if count.isdecimal()}
    sizes = sum(n for what, n in counts.items() if "another size" in what)
    sent = sum(n for what, n in counts.items() if "no rank receives" in what)
    return sizes + sent, sizes + sum(n for what, n in counts.items() if "no rank sends" in what)


def test_groups_come_from_metadata_nodes() -> None:
    table = [{"pg_name": "4", "ranks": [0, 1], "group_size": 2}]

    def build(b: GraphBuilder) -> None:
        b.metadata("## process_group:init ##", f"['{json.dumps(table)}']")
        b.all_reduce("a", 8, group=4)

    assert messages(ranks(build, build)) == []
    assert "is not defined" in messages(ranks(build, build, lambda b: b.all_reduce("a", 8, group=5)))[0]
    table[0]["ranks"] = [0, 5]
    assert "group 4 has rank 5; expected ranks from 0 to 1" in messages(ranks(build, build))[0]
    contradictory = ranks(build, lambda b: b.metadata("g", '[\'[{"pg_name": "4", "ranks": [1, 0]}]\']'))
    table[0]["ranks"] = [0, 1]
    assert messages(contradictory)
    broken = ranks(lambda b: b.metadata("g", "pg_name"), lambda b: None)
    assert "process groups that cannot be used" in messages(broken)[0]


def test_a_cycle_is_found_once_and_stops_the_comparison() -> None:
    b = GraphBuilder()
    b.nodes = [
        Node(0, "a", NodeType.COMP_NODE, data_deps=[1]),
        Node(1, "b", NodeType.COMP_NODE, data_deps=[0]),
    ]
    found = check_trace(Trace.replicate(b.graph(), 4))
    assert [finding.severity for finding in found.all] == ["error", "warning"]
    assert "not compared" in found.ranks[0].message


def test_a_replicated_trace_is_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    b = GraphBuilder()
    for _ in range(100):
        b.all_reduce("a", 8)
    asked: list[Graph] = []
    monkeypatch.setattr("armillary.trace.check_ranks.check", lambda graph: asked.append(graph) or [])
    assert check_trace(Trace.replicate(b.graph(), 4096)).all == []
    assert len(asked) == 1


@pytest.mark.shared
def test_the_stage_sample_can_be_simulated(shared: Path) -> None:
    folder = shared / "traces" / "stage_samples" / "default_dp2tp2pp2"
    groups = {int(k): tuple(v) for k, v in json.loads((folder / "workload.json").read_text()).items()}
    trace = armillary.load_trace(folder / "workload")
    assert messages(trace, groups) == []
    assert "8 groups are not defined" in messages(trace)[0]
