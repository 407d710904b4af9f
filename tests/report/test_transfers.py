"""Transfer and waiting of collectives, apart: by the members that the engine knows, on every kind of network."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary import simulate
from armillary.engine.common.timeline import KINDS, Timeline
from armillary.platform.kernels import Compute
from armillary.platform.model import Platform
from armillary.platform.network import Dimension
from armillary.report import collectives, to_json
from armillary.report.communication import transfers
from armillary.trace import GraphBuilder, Trace

PORT = 100.0
"""Bytes per ns."""


def machine(npus: int) -> Platform:
    return Platform((Dimension("node", "Switch", npus, PORT, 500.0),), compute=Compute(replay=False))


def late_ranks(starts: list[int], operation: str, size: int, group: bool = False) -> Trace:
    graphs = []
    for rank, start in enumerate(starts):
        builder = GraphBuilder(rank=rank)
        after = [builder.compute("work", duration_micros=start)] if start else []
        getattr(builder, operation.replace("-", "_"))(
            "sum", size, after=after, **({"group": 1} if group else {})
        )
        graphs.append(builder.graph())
    return Trace.from_ranks(graphs)


def spans(timeline: Timeline, rank: int) -> tuple[int, int]:
    cls = int(timeline.rank_class[rank])
    node = int(np.flatnonzero(timeline.table(cls).kind == KINDS.index("collective"))[0])
    start, end = timeline.spans(cls)
    return int(start[node]), int(end[node])


@pytest.mark.parametrize("network_model", ["analytical", "flow", "congestion", "packet"])
@pytest.mark.parametrize("fold", [True, False])
def test_a_late_rank_is_no_slow_network(network_model: str, fold: bool) -> None:
    """The complaint: 4 bytes for which ranks waited 279 ms had "27.7 B/s"."""
    timeline = simulate(
        late_ranks([0, 0, 279_000, 0], "all-reduce", 4), machine(4), network_model=network_model, fold=fold
    )
    alone = simulate(late_ranks([0] * 4, "all-reduce", 4), machine(4), network_model=network_model)
    (row,) = collectives(timeline, int(timeline.rank_class[0]))
    assert row.waiting == 279_000_000 and row.time == row.transfer + row.waiting
    assert row.transfer <= alone.total_ticks
    assert row.bus_bandwidth is not None and row.bus_bandwidth > 4 * 1.5 / alone.total_ticks * 0.99
    (last,) = collectives(timeline, int(timeline.rank_class[2]))
    assert last.waiting == 0 and last.transfer == row.transfer


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from([0, 1, 3, 50]), min_size=2, max_size=6),
    st.sampled_from(["all-reduce", "all-gather", "reduce-scatter", "all-to-all"]),
    st.sampled_from([1, 1000, 10**6]),
    st.sampled_from(["analytical", "flow"]),
    st.booleans(),
)
def test_waiting_ends_when_the_last_member_begins(
    starts: list[int], operation: str, size: int, network_model: str, fold: bool
) -> None:
    timeline = simulate(
        late_ranks(starts, operation, size), machine(len(starts)), network_model=network_model, fold=fold
    )
    last = max(spans(timeline, rank)[0] for rank in range(len(starts)))
    for rank in range(len(starts)):
        (row,) = collectives(timeline, int(timeline.rank_class[rank]))
        begun, left = spans(timeline, rank)
        least = int(timeline.node_least.max())
        assert row.time == left - begun
        assert row.transfer in (left - last, min(least, row.time))
        assert row.transfer >= left - last
        if row.bus_bandwidth is not None:
            assert row.bus_bandwidth <= PORT * (1 + 1e-9)


def test_groups_of_one_label_are_not_mixed() -> None:
    """Two halves reduce on their own: the second half is late, the first does not wait for it."""
    graphs = []
    for rank in range(4):
        builder = GraphBuilder(rank=rank)
        after = [builder.compute("work", duration_micros=7)] if rank > 1 else []
        builder.all_reduce("sum", 1000, after=after, group=1 + rank // 2)
        graphs.append(builder.graph())
    platform = Platform(machine(4).dimensions, groups={1: (0, 1), 2: (2, 3)})
    timeline = simulate(Trace.from_ranks(graphs), platform)
    for rank in range(4):
        (row,) = collectives(timeline, int(timeline.rank_class[rank]))
        assert row.waiting == 0


def test_a_root_that_left_before_the_last_came_has_only_transfer(build) -> None:  # type: ignore[no-untyped-def]
    member = {"kind": "collective", "label": "broadcast", "size": 100}
    made = build(
        [{"nodes": [member | {"start": 0, "end": 10}]}, {"nodes": [member | {"start": 20, "end": 25}]}]
    )
    assert transfers(made, 0).tolist() == [10]
    (row,) = collectives(made, 0)
    assert row.algorithm_bandwidth == 10.0


def test_the_report_says_both() -> None:
    report = to_json(simulate(late_ranks([0, 5], "all-gather", 1000), machine(2)))
    (row,) = report["collectives"]
    assert row["total_ns"] == row["transfer_ns"] + row["waiting_ns"] and row["transfer_ns"] > 0


def test_a_saved_timeline_keeps_who_was_late(tmp_path) -> None:  # type: ignore[no-untyped-def]
    timeline = simulate(late_ranks([0, 5], "all-gather", 1000), machine(2))
    timeline.save(tmp_path / "t.npz")
    kept = Timeline.load(tmp_path / "t.npz")
    assert [collectives(kept, cls) for cls in (0, 1)] == [collectives(timeline, cls) for cls in (0, 1)]


def test_a_comparison_tells_waiting_from_transfer() -> None:
    from armillary.explore.compare.nodes import node_changes

    sides = [
        simulate(late_ranks([0, 5], "all-gather", 1000), machine(2)),
        simulate(late_ranks([0, 9], "all-gather", 1000), machine(2)),
    ]
    # Of the rank that is late itself nothing changes but its kernel; the other one waits longer.
    early = [replace(side, finish=np.array([side.total_ticks + 1, 0])) for side in sides]
    changes = {(one.kind, one.name): one.change for one in node_changes(*early)}
    assert changes == {("waiting", "all-gather"): 4000.0}
