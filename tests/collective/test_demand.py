"""What operations need of cuts: the arithmetic, and that no algorithm needs less."""

from __future__ import annotations

import numpy as np
import pytest

from armillary.collective.algorithms import algorithms_for, rounds_for
from armillary.collective.demand import Group, demand, least_ns
from armillary.collective.load import load
from armillary.platform.network import Dimension, InNetwork, Port

OPERATIONS = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
)
TOPOLOGIES = ("Ring", "Mesh", "FullyConnected", "Switch")


def dimension(topology: str, size: int, rate: float = 1.0, able: bool = False) -> Dimension:
    return Dimension("d", topology, size, rate, 0.0, Port(rate, rate), InNetwork() if able else None)  # type: ignore[arg-type]


def group(*dimensions: Dimension) -> Group:
    shape = [d.size for d in dimensions]
    return Group(np.array(np.unravel_index(np.arange(np.prod(shape)), shape)), dimensions)


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("n", [2, 3, 4, 5, 6, 8])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_no_algorithm_needs_less(operation: str, n: int, topology: str) -> None:
    """Bytes through the fullest link or port of any algorithm take at least as long."""
    least = least_ns(group(dimension(topology, n)), operation, 1.0)
    assert least > 0
    for name in algorithms_for(operation):
        if name != "in-switch":
            found = load(rounds_for(name, operation, n), topology, n)
            assert float(found.fullest) >= least * (1 - 1e-9), name


@pytest.mark.parametrize(
    ("operation", "topology", "expected"),
    [
        ("all-reduce", "Switch", 2 * 7 / 8), ("all-reduce", "Ring", 2 * 7 / 8), ("all-reduce", "Mesh", 2.0),
        ("all-gather", "FullyConnected", 7.0), ("all-gather", "Mesh", 14.0), ("reduce-scatter", "Ring", 7 / 8),
        ("all-to-all", "Switch", 7 / 8), ("all-to-all", "Ring", 2.0), ("all-to-all", "Mesh", 4.0),
        ("broadcast", "Switch", 1.0), ("broadcast", "Mesh", 2.0), ("gather", "Ring", 7 / 8),
    ],
)  # fmt: skip
def test_eight_members(operation: str, topology: str, expected: float) -> None:
    assert least_ns(group(dimension(topology, 8)), operation, 1.0) == pytest.approx(expected)


def test_switches_that_add_up_need_each_byte_once() -> None:
    assert least_ns(group(dimension("Switch", 8, able=True)), "all-reduce", 1.0) == 1.0
    # Nodes of eight, joined by a rail each: half of what two dimensions need, one of them adds up.
    machine = group(dimension("Switch", 8, 9.0, able=True), dimension("Switch", 4))
    assert least_ns(machine, "all-reduce", 1.0) == pytest.approx(2 * 3 / 4 / 8)


def test_two_dimensions_share_what_each_could_not_do_alone() -> None:
    machine = group(dimension("Ring", 4), dimension("Ring", 4))
    assert least_ns(machine, "all-reduce", 1.0) == pytest.approx(2 * 15 / 16 / 2)
    assert set(machine.cuts) == {(0,), (1,), (0, 1)}
    alone = machine.cuts[0, 1]
    assert alone.alone and demand(alone, "all-gather", 1.0).each == (1.0, 15.0)


def test_members_on_part_of_a_dimension_use_the_links_between_them() -> None:
    whole = dimension("FullyConnected", 8)
    some = Group(np.array([[0, 1, 2, 3]]), (whole,))
    assert least_ns(some, "all-reduce", 1.0) == pytest.approx(2 * 3 / 4 / (3 / 7))
    near = Group(np.array([[2, 3, 4]]), (dimension("Ring", 8),))  # the way round is longer
    assert least_ns(near, "broadcast", 1.0) == pytest.approx(2.0)


def test_latency_counts_where_it_is_not_short() -> None:
    slow = Dimension("d", "Ring", 8, 1.0, 100.0, Port(1.0, 1.0))
    there = Group(np.arange(8)[None], (slow,), delay=7.0)
    assert least_ns(there, "barrier", 0.0) == 407.0
    assert least_ns(there, "all-reduce", 800.0) == pytest.approx(100 + 7 + 1400)
    assert least_ns(there, "all-reduce", 8e6) == pytest.approx(14e6)


def test_groups_that_are_no_grid() -> None:
    """Three of four places: what leaves a block goes through the ports of all its NPUs."""
    odd = Group(np.array([[0, 1, 0], [0, 0, 1]]), (dimension("Switch", 2), dimension("Switch", 2)))
    assert not odd.grid
    assert least_ns(odd, "all-gather", 6.0) == pytest.approx(12 / 2)
