"""The registry of topologies of dimensions: its own laws, and that a new one needs nothing else."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest

from armillary.base.errors import InputError
from armillary.collective.demand import Group
from armillary.engine import simulate
from armillary.engine.common.network import path
from armillary.platform import Dimension, Platform
from armillary.platform.network import TOPOLOGIES, DimensionTopology
from armillary.platform.topology.dimension_order import DimensionOrder
from armillary.platform.topology.grids import from_dimensions
from armillary.report import bound
from armillary.testing.collective import check_collective
from armillary.trace import CollectiveType, GraphBuilder, Trace

SIZES = (1, 2, 3, 4, 5, 8, 16)


class Chordal(DimensionTopology):
    """A ring with a link from each NPU to the opposite one: not the same from every NPU in a list of its links."""

    def refuses(self, size):
        return f"got {size}, expected an even number" if size % 2 else ""

    def links(self, size):
        return 3

    def neighbours(self, size):
        at = np.arange(size)
        return np.stack([(at + 1) % size, (at - 1) % size, (at + size // 2) % size])[: 3 if size > 2 else 1]

    def step(self, here, there, size):
        ahead = (there - here) % size
        across = 4 * np.minimum(ahead, size - ahead) > size
        near = np.where(2 * ahead <= size, 1, -1)
        return (here + np.where(across, size // 2, near)) % size


@pytest.fixture
def chordal(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a topology that the package does not have."""
    monkeypatch.setitem(TOPOLOGIES, "Chordal", Chordal())
    return "Chordal"


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", [*TOPOLOGIES, "Chordal"])
def test_messages_arrive_over_links_by_the_shortest_way(chordal: str, name: str, size: int) -> None:
    topology = TOPOLOGIES[name]
    if topology.refuses(size):
        return
    joined = topology.neighbours(size)
    links = {(at, to) for row in joined.tolist() for at, to in enumerate(row) if to >= 0}
    assert len(joined) <= max(2, topology.links(size) if name != "Switch" else size - 1)
    assert links == {(to, at) for at, to in links}
    if topology.turns:
        assert links == {((at + 1) % size, (to + 1) % size) for at, to in links}
    places = np.arange(size)
    here, there = (grid.ravel() for grid in np.meshgrid(places, places))
    apart = here != there
    here, there = here[apart], there[apart]
    to = topology.step(here, there, size)
    assert {*zip(here.tolist(), to.tolist(), strict=True)} <= links
    expected = [topology.apart * _distance(links, *ends) for ends in zip(here, there, strict=True)]
    assert topology.hops(here, there, size).tolist() == expected
    assert DimensionTopology.hops(topology, here, there, size).tolist() == [
        each // topology.apart for each in expected
    ]


def _distance(links: set[tuple[int, int]], source: int, target: int) -> int:
    found, left = {int(source): 0}, deque([int(source)])
    while left:
        at = left.popleft()
        for tail, head in links:
            if tail == at and head not in found:
                found[head] = found[at] + 1
                left.append(head)
    return found[int(target)]


@pytest.mark.parametrize("algorithm", ["ring", "direct", "halvingDoubling", "binomialTree"])
def test_collectives_on_a_new_topology_cost_what_their_messages_load(chordal: str, algorithm: str) -> None:
    check_collective(algorithm, members=(2, 4, 8))


def test_a_new_topology_is_refused_by_its_own_rule(chordal: str) -> None:
    with pytest.raises(InputError, match=r"Dimension\.size: got 5, expected an even number"):
        Dimension("d", chordal, 5, 50.0, 500.0)


def test_routes_of_a_graph_are_those_of_the_dimensions(chordal: str) -> None:
    dimensions = (Dimension("inner", chordal, 6, 50.0, 500.0), Dimension("outer", "Ring", 3, 25.0, 700.0))
    routing = DimensionOrder(from_dimensions(dimensions))
    source, target = (grid.ravel() for grid in np.meshgrid(np.arange(18), np.arange(18)))
    lengths = sum(path(dimensions, source, target))
    assert np.diff(routing.paths(source, target).first).tolist() == lengths.tolist()


@pytest.mark.parametrize(
    "operation", ["ALL_REDUCE", "ALL_GATHER", "REDUCE_SCATTER", "ALL_TO_ALL", "BROADCAST"]
)
@pytest.mark.parametrize("members", [range(16), (0, 1, 3, 6), (2, 10)])
def test_no_collective_on_a_new_topology_beats_its_bound(
    chordal: str, operation: str, members: range
) -> None:
    dimensions = (Dimension("inner", chordal, 8, 50.0, 500.0), Dimension("outer", "Switch", 2, 100.0, 700.0))
    platform = Platform(dimensions, groups={1: tuple(members)})
    graphs = []
    for rank in range(16):
        builder = GraphBuilder()
        if rank in members:
            builder.collective(operation, CollectiveType[operation], 8_000_000, group=1)
        graphs.append(builder.graph())
    for model in ("analytical", "flow"):
        timeline = simulate(Trace.from_ranks(graphs), platform, network_model=model)
        assert 0 < bound(timeline).ticks <= timeline.total_ticks


def test_profile_astra_sim_refuses_what_it_has_no_name_for(chordal: str) -> None:
    platform = Platform((Dimension("d", chordal, 4, 50.0, 500.0),))
    builder = GraphBuilder()
    builder.all_reduce("sum", 1000)
    with pytest.raises(InputError, match="got 'Chordal': profile astra-sim"):
        simulate(Trace.replicate(builder.graph(), 4), platform, profile="astra-sim")


@pytest.mark.parametrize("size", SIZES[1:])
@pytest.mark.parametrize("name", [*TOPOLOGIES, "Chordal"])
def test_the_farthest_place_is_that_of_all_pairs(chordal: str, name: str, size: int) -> None:
    topology = TOPOLOGIES[name]
    if topology.refuses(size):
        return
    for chosen in range(1, 2 ** min(size, 8)):
        places = np.array([at for at in range(size) if chosen >> at % 8 & 1])
        found = topology.farthest(places, size)
        assert found.tolist() == DimensionTopology.farthest(topology, places, size).tolist()


def test_a_ring_of_many_npus_needs_no_table_of_its_pairs() -> None:
    # All pairs would be 298 GiB.
    size = 200_001
    group = Group(np.arange(size)[None], (Dimension("a", "Ring", size, 50.0, 500.0),))
    assert group.farthest == (500.0 * (size // 2), 500.0 * (size // 2))
