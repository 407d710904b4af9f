"""Graphs of nested dimensions: what links there are, and dimension-order routing on them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.engine.common.network import path
from armillary.platform.network import Dimension, Port, port
from armillary.platform.topology import (
    DimensionOrder,
    Failure,
    Shortest,
    Topology,
    check_connected,
    degraded,
    fat_tree,
    from_dimensions,
    hypercube,
    optical_torus,
    wafer_mesh,
)

NAMES = ("Ring", "FullyConnected", "Switch", "Mesh", "Torus")


@st.composite
def machines(draw: st.DrawFn) -> tuple[Dimension, ...]:
    sizes = draw(st.lists(st.integers(2, 5), min_size=1, max_size=4).filter(lambda s: math.prod(s) <= 120))
    return tuple(Dimension(f"d{i}", draw(st.sampled_from(NAMES)), n, 50.0, 5.0) for i, n in enumerate(sizes))


def pairs(topology: Topology) -> tuple[np.ndarray, np.ndarray]:
    source, destination = np.indices((topology.npus, topology.npus))
    return source.ravel(), destination.ravel()


def walk(topology: Topology, source: int, links: np.ndarray) -> int:
    """Follow links one by one and return where they end."""
    at = source
    for link in links:
        assert topology.tail[link] == at
        at = int(topology.head[link])
    return at


@settings(max_examples=40, deadline=None)
@given(machines())
def test_dimension_order_takes_the_hops_of_the_analytical_network(dimensions: tuple[Dimension, ...]) -> None:
    topology = from_dimensions(dimensions)
    source, destination = pairs(topology)
    routes = DimensionOrder(topology).paths(source, destination)
    assert (routes.hops == sum(path(dimensions, source, destination))).all()
    assert (Shortest(topology).paths(source, destination).hops == routes.hops).all()
    for i in range(0, len(source), 7):
        assert walk(topology, int(source[i]), routes[i]) == destination[i]


@settings(max_examples=25, deadline=None)
@given(machines(), st.data())
def test_hop_by_hop_is_the_whole_way(dimensions: tuple[Dimension, ...], data: st.DataObject) -> None:
    topology = from_dimensions(dimensions)
    source, destination = (data.draw(st.integers(0, topology.npus - 1)) for _ in range(2))
    for routing in (DimensionOrder(topology), Shortest(topology)):
        at, taken = source, []
        while at != destination:
            taken.append(int(routing.candidates(at, destination)[0]))
            at = int(topology.head[taken[-1]])
        assert taken == routing.paths([source], [destination])[0].tolist()


@settings(max_examples=40, deadline=None)
@given(machines())
def test_links_of_an_npu_carry_what_its_port_does(dimensions: tuple[Dimension, ...]) -> None:
    topology = from_dimensions(dimensions)
    check_connected(topology)
    for number, dimension in enumerate(dimensions):
        if dimension.topology == "Mesh":  # the ends have one link less
            continue
        of = topology.kind == topology.kinds.index(f"d{number}")
        for ends in (topology.tail, topology.head):
            rate = np.bincount(ends[of], topology.bandwidth[of], topology.nodes)[: topology.npus]
            assert rate == pytest.approx(port(dimension).out)


def test_up_and_down_differ_on_a_switch() -> None:
    topology = from_dimensions([Dimension("rack", "Switch", 3, 2.0, 1.0, Port(4.0, 2.0))])
    assert topology.bandwidth[topology.between([0, 1, 2], 3)].tolist() == [4.0] * 3
    assert topology.bandwidth[topology.between(3, [0, 1, 2])].tolist() == [2.0] * 3
    assert topology.node_name(3) == "rack switch 0"


def test_a_ring_goes_the_shorter_way_and_upwards_if_both_are_equal() -> None:
    ring = DimensionOrder(from_dimensions([Dimension("r", "Ring", 6, 1.0, 1.0)]))
    nodes = [ring.topology.head[ring.paths([0], [to])[0]].tolist() for to in (2, 3, 4)]
    assert nodes == [[1, 2], [1, 2, 3], [5, 4]]


def test_dimension_order_says_what_is_in_the_way() -> None:
    topology = from_dimensions([Dimension("x", "Mesh", 3, 1.0, 1.0), Dimension("y", "Mesh", 3, 1.0, 1.0)])
    broken = degraded(topology, [Failure(link=("npu 1", "npu 2"))])
    with pytest.raises(
        InputError, match="from npu 0 to npu 8 in dimension order: link npu 1 → npu 2 is down"
    ):
        DimensionOrder(broken).paths([0], [8])
    assert Shortest(broken).paths([0], [8]).hops.tolist() == [4]
    with pytest.raises(InputError, match="'dimension-order' needs a topology of dimensions, expected e"):
        DimensionOrder(fat_tree(4, 1.0, 1.0))


def test_hypercube_distance_is_the_number_of_different_bits() -> None:
    topology = hypercube(5, 1.0, 1.0)
    source, destination = pairs(topology)
    hops = DimensionOrder(topology).paths(source, destination).hops
    assert (hops == np.bitwise_count(source ^ destination)).all()


def test_links_across_dies_are_slower() -> None:
    topology = wafer_mesh((6, 4), 10.0, 1.0, die=(3, 2), die_bandwidth=2.0, die_latency=7.0)
    crossing = topology.bandwidth == 2.0
    # 2 x 2 dies: 4 links between columns, 6 between rows, both ways
    assert crossing.sum() == 2 * (4 + 6)
    assert (topology.latency[crossing] == 7.0).all()
    assert (topology.block[topology.tail[crossing]] != topology.block[topology.head[crossing]]).all()
    with pytest.raises(InputError, match="dies of 4 x 4 do not fill a wafer of 6 x 4"):
        wafer_mesh((6, 4), 1.0, 1.0, die=(4, 4))


def test_optical_circuits_are_the_faces_of_cubes() -> None:
    topology = optical_torus((4, 4, 8), 50.0, 1.0, optical_latency=9.0)
    optical = topology.latency == 9.0
    # every face of 16 chips of both cubes, 3 axes, one link and its way back
    assert optical.sum() == 2 * 3 * 16 * 2
    assert np.bincount(topology.tail).tolist() == [6] * 128


def test_twisting_a_torus_shortens_its_ways() -> None:
    """Cámara et al. (TPDS 2010); TPU v4 uses it for sides n, n, 2n and n, 2n, 2n. Diameters are counted here."""
    for shape, plain, twisted in (((4, 4, 8), 8, 6), ((4, 8, 8), 10, 6)):
        worst = []
        for twist in (False, True):
            topology = optical_torus(shape, 1.0, 1.0, twisted=twist)
            worst.append(int(Shortest(topology).paths(*pairs(topology)).hops.max()))
        assert worst == [plain, twisted]
    with pytest.raises(InputError, match=r"shape \[4, 4, 12\] cannot be twisted, expected sides n and 2n"):
        optical_torus((4, 4, 12), 1.0, 1.0, twisted=True)


def test_a_graph_that_would_not_fit_is_refused_before_it_is_built() -> None:
    with pytest.raises(InputError, match="has 9,999,900,000 links, expected at most 50,000,000"):
        from_dimensions([Dimension("x", "FullyConnected", 100_000, 1.0, 1.0)])
