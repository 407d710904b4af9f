from __future__ import annotations

import json

import numpy as np
import pytest

import armillary
from armillary.evidence.replay import Replay, compare
from armillary.evidence.replay.plan import plan_of
from armillary.evidence.replay.show import as_json, headline
from armillary.platform import Dimension, Platform
from armillary.trace import GraphBuilder, Node, Trace, graph_of, nodes_of


def two_ranks(**recorded: int) -> Trace:
    graphs = []
    for rank in range(2):
        builder = GraphBuilder(rank=rank)
        builder.all_reduce("sum", 1000, **recorded)
        if rank:
            builder.recv(0, 500)
        else:
            builder.send(1, 500)
        graphs.append(builder.graph())
    return Trace.from_ranks(graphs)


def measured(trace: Trace) -> Replay:
    """Return three iterations; in the second, the sum takes 300 ns and the message 90 ns."""
    begin = np.array([[0, 5], [1000, 1005], [2000, 2005]])
    finish = begin + np.array([[900, 700], [500, 600], [500, 520]])
    sums = [np.array([10, 1010, 2010]), np.array([20, 1100, 2030])]
    return Replay(
        trace, "gloo", "durations", begin, finish,
        [np.stack([sums[0], sums[0] + 400], axis=1), np.stack([sums[1], sums[1] + 410], axis=1)],
        [np.stack([sums[0] + 390, sums[0] + 800], axis=1), np.stack([sums[0] + 390, sums[0] + 580], axis=1)],
        plan_of(trace).instances,
    )  # fmt: skip


def test_the_median_iteration_counts_from_the_first_start_to_the_last_finish() -> None:
    replay = measured(two_ranks())
    assert replay.totals.tolist() == [900, 605, 525]
    assert (replay.median, replay.total_ns) == (1, 605)


def test_a_collective_is_timed_from_its_last_start_and_a_message_to_its_receipt() -> None:
    replay = measured(two_ranks())
    # Sum: 400-20, 1400-1100, 2400-2030; message: 590-430, 1590-1510, 2590-2440.
    assert replay.transfer_ns.tolist() == [370.0, 150.0]


def test_bus_bandwidth_is_that_of_ncclls_tests() -> None:
    rows = {row.kind: row for row in compare(measured(two_ranks())).rows}
    assert rows["all-reduce"].bus_bandwidth == pytest.approx(1000 / 370 * 2 * 1 / 2)
    assert rows["message"].bus_bandwidth == pytest.approx(500 / 150)
    assert [row.error for row in rows.values()] == [None, None]


def test_recorded_durations_are_compared() -> None:
    comparison = compare(measured(two_ranks(duration_micros=1)))
    row = next(row for row in comparison.rows if row.kind == "all-reduce")
    assert (comparison.source, row.expected_ns) == ("recorded", 1000)
    assert row.error == pytest.approx(1000 / 370 - 1)
    assert comparison.expected_ns is None


def test_recorded_start_times_give_the_whole() -> None:
    nodes: list[Node] = nodes_of(two_ranks(duration_micros=3).graph(0))
    nodes[0].start_micros, nodes[1].start_micros = 1_000_000, 1_000_010
    trace = Trace.from_ranks([graph_of(nodes), two_ranks().graph(1)])
    assert compare(measured(trace)).expected_ns == 10_000


def test_a_simulation_of_the_trace_is_compared_node_by_node() -> None:
    trace = two_ranks()
    timeline = armillary.simulate(trace, Platform(dimensions=(Dimension("wire", "Switch", 2, 1.0, 50.0),)))
    comparison = compare(measured(trace), timeline)
    assert comparison.expected_ns == timeline.total_ticks
    spans = [timeline.spans(cls) for cls in timeline.rank_class]
    rows = {row.kind: row for row in comparison.rows}
    assert rows["all-reduce"].expected_ns == spans[0][1][0]
    assert rows["message"].expected_ns == spans[1][1][1] - max(spans[0][0][1], spans[1][0][1])
    assert comparison.error == pytest.approx(timeline.total_ticks / 605 - 1)
    assert f"error {comparison.error:+.1%}".replace("%", " %") in headline(measured(trace), comparison)


def test_the_report_is_json_with_the_nodes_of_the_median_iteration() -> None:
    replay = measured(two_ranks())
    report = json.loads(json.dumps(as_json(replay, compare(replay))))
    assert report["measured_ns"] == 605
    assert report["nodes"][1] == {"id": [0, 1], "start_ns": [100, 510], "end_ns": [400, 590]}
