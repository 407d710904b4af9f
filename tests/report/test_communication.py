"""Bandwidth factors and utilisation, against numbers worked out by hand."""

from __future__ import annotations

import dataclasses

import pytest

from armillary.report.communication import bandwidths, collectives, dimensions, group_size


@pytest.mark.parametrize(
    ("label", "members", "size", "algorithm", "bus"),
    [
        ("all-reduce", 8, 800, 8.0, 8.0 * 14 / 8),
        ("reduce-scatter@2", 8, 800, 8.0, 7.0),
        ("all-to-all", 8, 800, 8.0, 7.0),
        ("all-gather", 8, 100, 8.0, 7.0),
        ("all-gather@1", None, 100, None, None),
        ("all-reduce@1", None, 800, 8.0, None),
        ("broadcast", 8, 800, 8.0, 8.0),
        ("reduce", 8, 800, 8.0, 8.0),
        ("gather", 8, 800, 8.0, 7.0),
        ("scatter", 8, 800, 8.0, 7.0),
        ("reduce-scatter-block", 8, 800, 8.0, 7.0),
        ("barrier", 8, 800, 8.0, None),
        ("custom", 8, 800, 8.0, None),
        ("all-reduce", 1, 800, 8.0, 0.0),
    ],
)
def test_the_factors_of_nccl(label, members, size, algorithm, bus):
    assert bandwidths(label, members, size, 100) == (algorithm, bus)


def test_no_time_is_no_bandwidth():
    assert bandwidths("all-reduce", 8, 800, 0) == (None, None)


def test_collectives_of_a_class_are_grouped(build):
    nodes = [
        {"kind": "collective", "label": "all-reduce", "size": 100, "start": 0, "end": 10},
        {"kind": "collective", "label": "all-reduce", "size": 100, "start": 10, "end": 40},
        {"kind": "collective", "label": "all-reduce", "size": 200, "start": 40, "end": 45},
        {"kind": "collective", "label": "all-gather@5", "size": 100, "start": 45, "end": 145},
        {"kind": "collective", "label": "all-reduce", "size": 100, "start": -1, "end": -1},
        {"kind": "compute", "start": 0, "end": 1000},
    ]
    made = build([{"nodes": nodes}], rank_class=[0, 0], groups={5: 4}, tick_ns=0.5)
    rows = collectives(made, 0)
    assert [(r.label, r.group_size, r.size, r.count, r.time, r.shortest, r.longest) for r in rows] == [
        ("all-gather@5", 4, 100, 1, 100, 100, 100),
        ("all-reduce", 2, 100, 2, 40, 10, 30),
        ("all-reduce", 2, 200, 1, 5, 5, 5),
    ]
    assert rows[0].algorithm_bandwidth == 400 / 50
    assert rows[1].algorithm_bandwidth == 100 / (20 * 0.5) == rows[1].bus_bandwidth


def test_group_sizes(timeline):
    assert group_size(timeline, "all-reduce") == 8
    assert group_size(timeline, "all-gather@3") == 4
    assert group_size(timeline, "all-gather@4") is None


def test_dimensions_of_the_example(timeline):
    node, pod, groups = dimensions(timeline, 2)
    # Chunks start at 400, 420 and 440; dimension 0 is busy in 400-490 and 530-620.
    assert (node.bytes, node.busy, node.phases) == (900, 180, 6)
    assert node.capacity == 4.0  # two links
    assert node.utilisation_busy == 900 / (180 * 4.0)
    assert node.utilisation_run == 900 / (650 * 4.0)
    assert (pod.bytes, pod.busy, pod.capacity) == (150, 120, 1.0)
    assert (groups.index, groups.bytes, groups.utilisation_run) == (-1, 30, None)
    assert [row.index for row in dimensions(timeline, 0)] == [0, 1]


def test_links_of_a_fully_connected_dimension(timeline):
    described = [{"name": "x", "topology": "FullyConnected", "size": 8, "bandwidth_bytes_per_ns": 2.0}]
    made = dataclasses.replace(timeline, info={**timeline.info, "dimensions": described})
    assert dimensions(made, 0)[0].capacity == 14.0
    assert dimensions(made, 0)[1].name == "dim 1"


def test_nothing_ran(empty):
    assert collectives(empty, 0) == []
    assert dimensions(empty, 0) == []
