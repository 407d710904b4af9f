"""Costs against the closed forms of the textbooks, and fast paths against the plain one."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction as F
from math import ceil, log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.collective.algorithms import (
    DEFINITIONS,
    algorithms_for,
    choose,
    find_algorithm,
    natural,
    rounds_alltoallv,
    rounds_for,
)
from armillary.collective.load import Load, line_order, load
from armillary.collective.rounds import Round, Rounds
from armillary.platform.network import TOPOLOGIES, InNetwork
from tests.collective.slow_load import slow_load

OPERATIONS_OF = {name: find_algorithm(name).operations for name in DEFINITIONS}
EVERY = [
    (algorithm, operation)
    for algorithm, has in OPERATIONS_OF.items()
    for operation in has
    if algorithm != "in-switch"
]


def cost(algorithm: str, operation: str, topology: str, n: int) -> tuple[int, F]:
    found = load(rounds_for(algorithm, operation, n), topology, n)
    return found.hops, found.volume


@pytest.mark.parametrize("n", [2, 3, 4, 5, 8, 13, 32])
def test_ring_and_direct_closed_forms(n: int) -> None:
    share = F(n - 1, n)
    for topology in ("Ring", "Torus"):
        assert cost("ring", "all-reduce", topology, n) == (2 * (n - 1), 2 * share)
        assert cost("ring", "reduce-scatter", topology, n) == (n - 1, share)
        assert cost("ring", "all-gather", topology, n) == (n - 1, n - 1)
        assert cost("ring", "all-to-all", topology, n) == (n // 2, F(n * n // 4, n))
    assert cost("ring", "all-reduce", "Switch", n) == (4 * (n - 1), 2 * share)
    for topology, hops in (("FullyConnected", 1), ("Switch", 2)):
        assert cost("direct", "all-reduce", topology, n) == (2 * hops, 2 * share)
        assert cost("direct", "all-gather", topology, n) == (hops, n - 1)
        assert cost("direct", "all-to-all", topology, n) == (hops, share)
        assert cost("direct", "scatter", topology, n) == (hops, share)
        assert cost("direct", "broadcast", topology, n) == (hops, n - 1)
        assert cost("direct", "barrier", topology, n) == (hops, 0)
    assert cost("pairwise", "all-to-all", "Switch", n) == (2 * (n - 1), share)
    assert cost("direct", "all-to-all", "Ring", n) == (n // 2, F(n * n // 4, n))


@pytest.mark.parametrize("n", [2, 4, 8, 64, 512])
def test_halving_doubling_closed_forms(n: int) -> None:
    rounds, share = int(log2(n)), F(n - 1, n)
    for algorithm in ("halvingDoubling", "rabenseifner"):
        assert cost(algorithm, "all-reduce", "Switch", n) == (4 * rounds, 2 * share)
    assert cost("halvingDoubling", "reduce-scatter", "Switch", n) == (2 * rounds, share)
    assert cost("halvingDoubling", "all-gather", "Switch", n) == (2 * rounds, n - 1)
    assert cost("recursiveDoubling", "all-reduce", "Switch", n) == (2 * rounds, rounds)
    assert cost("recursiveDoubling", "all-gather", "Switch", n) == (2 * rounds, n - 1)


@pytest.mark.parametrize("n", range(2, 34))
def test_trees_and_other_sizes_on_a_switch(n: int) -> None:
    levels = ceil(log2(n))
    assert cost("binomialTree", "broadcast", "Switch", n) == (2 * levels, levels)
    assert cost("binomialTree", "reduce", "Switch", n) == (2 * levels, levels)
    assert cost("binomialTree", "all-reduce", "Switch", n) == (4 * levels, 2 * levels)
    assert cost("binomialTree", "scatter", "Switch", n) == (2 * levels, F(n - 1, n))
    assert cost("binomialTree", "gather", "Switch", n) == (2 * levels, F(n - 1, n))
    assert cost("recursiveDoubling", "all-gather", "Switch", n) == (2 * levels, n - 1)
    assert cost("recursiveDoubling", "barrier", "Switch", n) == (2 * levels, 0)
    if n & (n - 1):
        p = 1 << (n.bit_length() - 1)
        rounds = p.bit_length() - 1
        assert cost("halvingDoubling", "all-reduce", "Switch", n) == (
            2 * (2 * rounds + 2),
            2 + 2 * F(p - 1, p),
        )
        assert cost("rabenseifner", "all-reduce", "Switch", n) == (2 * (2 * rounds + 3), 2 + 2 * F(p - 1, p))


def test_double_tree_nears_the_least_bytes_with_many_chunks() -> None:
    for operation, least in (("broadcast", 1), ("reduce", 1), ("all-reduce", 2)):
        found = load(rounds_for("doubleBinaryTree", operation, 31, chunks=1000), "Switch", 31)
        assert least <= found.volume < F(102, 100) * least
        assert found.sent <= least
        few = load(rounds_for("doubleBinaryTree", operation, 31), "Switch", 31)
        assert few.volume <= F(13, 10) * least


def test_bytes_sent_and_added() -> None:
    ring = load(rounds_for("ring", "all-reduce", 8), "Ring", 8)
    assert told(ring)[:5] == (14, F(7, 4), F(7, 4), F(7, 4), F(7, 8))
    assert told(load(rounds_for("direct", "reduce", 5), "Switch", 5))[:5] == (2, F(4), F(4), F(4), F(4))
    # Folding in: each of a pair reduces one half of the vector, or one of them all of it.
    assert load(rounds_for("rabenseifner", "all-reduce", 3), "Switch", 3).reduced == F(1)
    assert load(rounds_for("halvingDoubling", "all-reduce", 3), "Switch", 3).reduced == F(3, 2)


def test_switches_that_reduce_move_half_of_what_a_ring_does() -> None:
    for n in (2, 3, 8, 512):
        assert cost("in-switch", "all-reduce", "Switch", n) == (2, 1)
        assert cost("in-switch", "reduce-scatter", "Switch", n) == (2, F(n - 1, n))
        assert cost("in-switch", "all-gather", "Switch", n) == (2, n - 1)
    with pytest.raises(InputError, match="got topology Ring, expected Switch"):
        cost("in-switch", "all-reduce", "Ring", 4)


def test_auto_takes_switches_only_where_they_can() -> None:
    case = ("Switch", "all-reduce", 8, 1e6, 100.0, 10.0)
    assert choose(*case) == "direct"
    assert choose(*case, in_network=InNetwork()) == "in-switch"
    assert choose(*case, in_network=InNetwork(rate=1.0)) == "direct"
    assert choose(*case, in_network=InNetwork(latency=1e9)) == "direct"


def test_all_to_all_v_is_bound_by_the_fullest_port() -> None:
    rounds = rounds_alltoallv([[0, 10, 30], [0, 0, 50], [7, 0, 0]])
    assert told(load(rounds, "Switch", 3))[:5] == (2, F(80), F(80), F(80), F(0))
    assert told(load(rounds, "FullyConnected", 3))[:5] == (1, F(100), F(100), F(80), F(0))
    assert load(rounds, "Ring", 3).volume == 100
    assert load(rounds, "Mesh", 3).volume == 160
    assert told(load(rounds_alltoallv(np.zeros((3, 3), int)), "Ring", 3))[:5] == (0, F(0), F(0), F(0), F(0))
    huge = rounds_alltoallv([[0, 2**62], [0, 0]])
    assert load(huge, "Switch", 2).volume == 2**62


def told(found: Load) -> tuple[object, ...]:
    """Return hops, volume, fullest, sent, reduced, and the fullest round."""
    return found.hops, found.volume, found.fullest, found.sent, found.reduced, found.step


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize(("algorithm", "operation"), EVERY)
def test_agrees_with_the_slow_way(algorithm: str, operation: str, topology: str) -> None:
    for n in (2, 3, 6, 8):
        rounds = rounds_for(algorithm, operation, n, n - 1, 3)
        line = topology == "Mesh" and find_algorithm(algorithm).around
        order = list(line_order(range(n))) if line else list(range(n))
        assert told(load(rounds, topology, n)) == slow_load(
            rounds, topology.replace("Torus", "Ring"), n, order
        )


@given(st.data())
def test_agrees_anywhere_in_a_dimension(data: st.DataObject) -> None:
    topology = data.draw(st.sampled_from(["Ring", "Mesh", "FullyConnected", "Switch"]))
    algorithm, operation = data.draw(st.sampled_from(EVERY))
    n = data.draw(st.integers(2, 6))
    size = data.draw(st.integers(n, 13))
    if data.draw(st.booleans()):
        gap = data.draw(st.integers(1, max(1, size // n)))
        where = [(k * gap) % size for k in range(n)]
    else:
        where = data.draw(st.permutations(range(size)))[:n]
    rounds = rounds_for(algorithm, operation, n, chunks=2)
    assert told(load(rounds, topology, size, where)) == slow_load(rounds, topology, size, where)


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_compact_rounds_cost_what_expanded_ones_do(topology: str) -> None:
    for algorithm, operation in (
        ("direct", "all-reduce"),
        ("ring", "all-to-all"),
        ("pairwise", "all-to-all"),
    ):
        rounds = rounds_for(algorithm, operation, 12)
        plain = Rounds(
            "", operation, 12, 0, tuple(Round(12, p.moves, repeat=p.repeat) for p in rounds.rounds)
        )
        assert load(plain, topology, 12) == load(rounds, topology, 12, range(12))


def test_a_ring_on_a_line_has_no_long_way_back() -> None:
    assert line_order(range(7)) == (0, 2, 4, 6, 5, 3, 1)
    assert cost("ring", "all-reduce", "Mesh", 8) == (2 * 2 * 7, F(4 * 7, 8))


def test_natural_algorithms() -> None:
    for topology in TOPOLOGIES:
        for operation in {operation for _, operation in EVERY}:
            for n in (2, 6, 8):
                assert natural(topology, operation, n) in algorithms_for(operation)
    assert natural("Ring", "all-to-all", 8) == "ring"
    assert natural("Switch", "all-reduce", 8) == "halvingDoubling"
    assert natural("Switch", "all-reduce", 6) == "ring"
    assert natural("FullyConnected", "barrier", 6) == "direct"
    assert natural("Mesh", "broadcast", 6) == "binomialTree"
    with pytest.raises(InputError, match="did you mean"):
        natural("Ring", "all-reduces", 8)


def test_auto_weighs_latency_against_bytes() -> None:
    assert choose("Ring", "all-reduce", 64, 2**30, 500, 100) == "ring"
    assert choose("Ring", "all-reduce", 64, 8, 500, 100) not in ("ring", "direct")
    assert choose("FullyConnected", "broadcast", 8, 8, 500, 100) == "direct"
    assert choose("Switch", "broadcast", 512, 2**30, 500, 100) == "doubleBinaryTree"
    # Equally fast: the natural one.
    assert choose("Switch", "barrier", 2, 0, 500, 100) == "recursiveDoubling"


def test_refuses_what_is_not_there() -> None:
    rounds = rounds_for("ring", "all-reduce", 4)
    with pytest.raises(InputError, match="did you mean 'Ring'"):
        load(rounds, "Rings", 4)
    for where in ([0, 1, 2], [0, 1, 2, 2], [0, 1, 2, 9]):
        with pytest.raises(ValueError, match="members at positions"):
            load(rounds, "Ring", 5, where)


def test_large_groups_are_cheap(lines: Callable[[Callable[[], object]], int]) -> None:
    assert lines(lambda: cost("ring", "all-reduce", "Ring", 4096)) < 4096 * 10
    assert lines(lambda: cost("direct", "all-reduce", "FullyConnected", 512)) < 512 * 511 / 10
    assert cost("ring", "all-reduce", "Ring", 4096) == (8190, F(4095, 2048))
    assert cost("direct", "all-reduce", "FullyConnected", 512) == (2, F(511, 256))
