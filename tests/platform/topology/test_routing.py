"""Routing on switched graphs: ends, spread, adaptivity, rails, tables."""

from __future__ import annotations

import itertools
from pathlib import Path

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.platform.topology import (
    Adaptive,
    Ecmp,
    Rail,
    Shortest,
    Static,
    Topology,
    dragonfly,
    edges,
    fat_tree,
    leaf_spine,
    rail_optimised,
)

GRAPHS = {
    "fat-tree": fat_tree(4, 1.0, 1.0),
    "leaf-spine": leaf_spine(3, 2, 4, 1.0, 1.0),
    "dragonfly": dragonfly(2, 4, 2, 1.0, 1.0, groups=5),
    "rails": rail_optimised(4, 4, 9.0, 1.0, 1.0, 1.0, hosts_per_unit=2, spines=2),
}


def pairs(topology: Topology) -> tuple[np.ndarray, np.ndarray]:
    source, destination = np.indices((topology.npus, topology.npus))
    return source.ravel(), destination.ravel()


@pytest.mark.parametrize(
    ("graph", "routing"), [*itertools.product(GRAPHS, (Shortest, Ecmp, Adaptive)), ("rails", Rail)]
)
def test_every_way_is_a_walk_to_its_destination(graph: str, routing: type[Shortest]) -> None:
    topology = GRAPHS[graph]
    source, destination = pairs(topology)
    routes = routing(topology).paths(source, destination)
    for i, links in enumerate(map(routes.__getitem__, range(len(source)))):
        ends = [source[i], *topology.head[links]]
        assert ends[:-1] == topology.tail[links].tolist() and ends[-1] == destination[i]
        assert len(set(ends)) == len(ends)


@st.composite
def random_graphs(draw: st.DrawFn) -> Topology:
    nodes = draw(st.integers(2, 9))
    npus = draw(st.integers(1, nodes))
    names = [f"npu {i}" if i < npus else f"s{i}" for i in range(nodes)]
    ends = draw(st.sets(st.tuples(st.sampled_from(names), st.sampled_from(names)), min_size=1, max_size=24))
    used = [(a, b, 1.0, 1.0, 1, "link") for a, b in ends if a != b]
    ring = [(names[i], names[(i + 1) % nodes], 1.0, 1.0, 1, "ring") for i in range(nodes)]
    return edges("random", used + ring, forward=True)


@settings(max_examples=60, deadline=None)
@given(random_graphs())
def test_shortest_is_what_networkx_finds(topology: Topology) -> None:
    slow = networkx.DiGraph(zip(topology.tail.tolist(), topology.head.tolist(), strict=True))
    source, destination = pairs(topology)
    for routing in (Shortest(topology), Ecmp(topology, seed=3)):
        hops = routing.paths(source, destination).hops
        for i, (a, b) in enumerate(zip(source.tolist(), destination.tolist(), strict=True)):
            assert hops[i] == networkx.shortest_path_length(slow, a, b)


def test_ecmp_spreads_flows_and_keeps_each_in_place() -> None:
    topology = fat_tree(8, 1.0, 1.0)
    flow = np.arange(4096)
    routes = Ecmp(topology, seed=1).paths(np.zeros(4096, int), np.full(4096, 127), flow)
    over_core = routes.link[topology.kind[routes.link] == topology.kinds.index("aggregation-core")]
    up = over_core[topology.tail[over_core] < topology.head[over_core]]
    load = np.bincount(topology.head[up] - topology.tiers[-1].first, minlength=16)
    # 4096 flows over 16 core switches: 256 each, standard deviation 15.5
    assert load.sum() == 4096 and load.min() > 190 and load.max() < 322
    again = Ecmp(topology, seed=1).paths(np.zeros(4096, int), np.full(4096, 127), flow)
    other = Ecmp(topology, seed=2).paths(np.zeros(4096, int), np.full(4096, 127), flow)
    assert (again.link == routes.link).all() and (other.link != routes.link).any()
    one = Ecmp(topology, seed=1).paths([0, 0], [127, 127])
    assert (one[0] == one[1]).all()


def test_adaptive_takes_the_link_with_the_least_queued() -> None:
    topology = leaf_spine(2, 4, 1, 1.0, 1.0)
    leaf = topology.node("leaf 0")
    routing = Adaptive(topology)
    candidates = routing.candidates(leaf, 1)
    assert [topology.node_name(int(node)) for node in topology.head[candidates]] == [
        f"spine {i}" for i in range(4)
    ]
    for best in range(4):
        assert routing.choose(leaf, 1, lambda links, best=best: links != candidates[best]) == candidates[best]
    even = {routing.choose(leaf, 1, lambda links: links * 0, flow=flow) for flow in range(64)}
    assert even == set(candidates.tolist())


def test_rails_cross_inside_hosts_only() -> None:
    topology = rail_optimised(3, 4, 9.0, 1.0, 1.0, 1.0)
    routes = Rail(topology).paths([0, 0, 0], [9, 8, 3])
    names = [[topology.node_name(int(node)) for node in topology.head[routes[i]]] for i in range(3)]
    assert names == [
        ["host switch 0", "npu 1", "leaf 1", "npu 9"],
        ["leaf 0", "npu 8"],
        ["host switch 0", "npu 3"],
    ]
    with pytest.raises(
        InputError, match=r"npu 0 to npu 9: .* could be reached if NPUs forwarded \(routing 'rail'\)"
    ):
        Shortest(topology).paths([0], [9])
    with pytest.raises(InputError, match="routing 'rail' needs hosts"):
        Rail(GRAPHS["fat-tree"])


def test_static_tables(tmp_path: Path) -> None:
    topology = leaf_spine(2, 2, 1, 1.0, 1.0)
    rows = ["npu 0,npu 1,leaf 0", "leaf 0,npu 1,spine 1", "spine 1,npu 1,leaf 1", "leaf 1,npu 1,npu 1"]
    file = tmp_path / "table.csv"
    file.write_text("\n".join(["node,destination,next", *rows]))
    routing = Static.read(topology, file)
    nodes = [topology.node_name(int(n)) for n in topology.head[routing.paths([0], [1])[0]]]
    assert nodes == ["leaf 0", "spine 1", "leaf 1", "npu 1"]
    with pytest.raises(
        InputError, match="no way from npu 1 to npu 0: the table has no link that is up from npu 1"
    ):
        routing.paths([1], [0])
    file.write_text("\n".join(["node,destination,next", *rows[:2], "spine 1,npu 1,leaf 0"]))
    with pytest.raises(InputError, match="from npu 0 to npu 1 goes round in a circle"):
        Static.read(topology, file).paths([0], [1])
    file.write_text("node,destination,next\nnpu 0,npu 1,spine 1")
    with pytest.raises(InputError, match="to spine 1, expected a neighbour, e"):
        Static.read(topology, file)
    file.write_text("node,destination,next\nnpu 0,npu 7,spine 1")
    with pytest.raises(InputError, match=r"no node 'npu 7' \(did you mean 'npu 1'\?\)"):
        Static.read(topology, file)
    file.write_text("node,to\n")
    with pytest.raises(InputError, match="expected node, destination, next"):
        Static.read(topology, file)


def test_tables_are_forgotten_when_they_get_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("armillary.platform.topology.routing._CACHED", 100)
    topology = GRAPHS["fat-tree"]
    routing = Shortest(topology)
    assert (routing.paths(*pairs(topology)).link == Shortest(topology).paths(*pairs(topology)).link).all()
    assert len(routing._tables) == 1
