"""Findings about the ranks of a trace together, held against what the simulator makes of it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

import armillary
from armillary.errors import ArmillaryError
from armillary.trace import CollectiveType, GraphBuilder, Trace
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
