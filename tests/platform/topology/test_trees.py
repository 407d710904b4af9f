"""Fat trees, leaf-spine, rails and dragonflies: sizes, bisection, diameter, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import networkx
import numpy as np
import pytest

from armillary.base.errors import InputError
from armillary.platform.topology import (
    Shortest,
    Topology,
    check_connected,
    dragonfly,
    fat_tree,
    graph,
    leaf_spine,
    optical_torus,
    rail_optimised,
    to_networkx,
    wafer_mesh,
)
from armillary.platform.topology.wiring import Wiring


def bisection(topology: Topology) -> float:
    """Maximum flow from the first half of the NPUs to the other."""
    graph = networkx.DiGraph()
    for link in range(topology.links):
        a, b = int(topology.tail[link]), int(topology.head[link])
        before = graph.get_edge_data(a, b, {"capacity": 0.0})["capacity"]
        graph.add_edge(a, b, capacity=before + float(topology.bandwidth[link]))
    for npu in range(topology.npus):
        graph.add_edge(*(("from", npu) if npu < topology.npus // 2 else (npu, "to")))
    return float(networkx.maximum_flow_value(graph, "from", "to"))


@pytest.mark.parametrize("k", (4, 6))
def test_a_fat_tree_has_full_bisection(k: int) -> None:
    topology = fat_tree(k, 50.0, 1.0)
    # Al-Fares et al. 2008: k³/4 hosts, 5k²/4 switches
    assert (topology.npus, topology.nodes - topology.npus) == (k**3 // 4, 5 * k * k // 4)
    assert bisection(topology) == pytest.approx(topology.npus // 2 * 50.0)


@pytest.mark.parametrize(
    "build",
    (
        lambda: fat_tree(4, 1.0, 1.0),
        lambda: fat_tree(4, 1.0, 1.0, oversubscription=3),
        lambda: leaf_spine(4, 2, 8, 1.0, 1.0),
        lambda: rail_optimised(8, 4, 9.0, 1.0, 1.0, 2.0, host_switches=3, hosts_per_unit=2, spines=4),
        lambda: dragonfly(2, 4, 2, 1.0, 1.0),
        lambda: dragonfly(2, 4, 2, 1.0, 1.0, groups=4),
        lambda: wafer_mesh((4, 6), 1.0, 1.0),
        lambda: optical_torus((4, 4, 8), 1.0, 1.0),
    ),
)
def test_the_limit_counts_the_links_that_there_are(
    build: Callable[[], Topology], monkeypatch: pytest.MonkeyPatch
) -> None:
    links = build().links
    monkeypatch.setattr(graph, "MOST_LINKS", links)
    assert build().links == links
    monkeypatch.setattr(graph, "MOST_LINKS", links - 1)
    with pytest.raises(InputError, match=f"has {links:,} links, expected at most {links - 1:,}"):
        build()


def test_without_links_nothing_is_between_nodes() -> None:
    wiring = Wiring("nothing", 2)
    assert wiring.topology().between([0, 1], [1, 0]).tolist() == [-1, -1]


@pytest.mark.parametrize("oversubscription", (2, 3, 1.5))
def test_oversubscription_divides_the_bisection(oversubscription: float) -> None:
    topology = fat_tree(4, 50.0, 1.0, oversubscription=oversubscription)
    assert topology.npus == 16 * oversubscription
    assert bisection(topology) == pytest.approx(topology.npus // 2 * 50.0 / oversubscription)


def test_leaf_spine_bisection_is_that_of_its_uplinks() -> None:
    topology = leaf_spine(4, 2, 8, 10.0, 1.0, uplink=20.0)
    assert bisection(topology) == pytest.approx(2 * 2 * 20.0)


def test_rails_have_as_much_up_as_down() -> None:
    topology = rail_optimised(8, 4, 90.0, 1.0, 10.0, 2.0, host_switches=3, hosts_per_unit=2, spines=4)
    assert bisection(topology) == pytest.approx(16 * 10.0)
    inner = topology.kind == topology.kinds.index("host")
    assert topology.bandwidth[inner].tolist() == [30.0] * (2 * 32 * 3)
    assert topology.host == 4


def test_a_full_dragonfly_has_one_link_between_groups_and_diameter_five() -> None:
    topology = dragonfly(2, 4, 2, 1.0, 1.0)
    group = topology.block
    of = topology.kind == topology.kinds.index("global")
    between = np.zeros((9, 9), int)
    np.add.at(between, (group[topology.tail[of]], group[topology.head[of]]), 1)
    assert (between == 1 - np.eye(9, dtype=int)).all()
    hops = Shortest(topology).paths(*np.indices((72, 72)).reshape(2, -1)).hops
    assert hops.max() == 5


def test_a_smaller_dragonfly_uses_its_links_evenly() -> None:
    topology = dragonfly(1, 4, 2, 1.0, 1.0, groups=5, global_bandwidth=3.0, global_latency=9.0)
    of = topology.kind == topology.kinds.index("global")
    assert of.sum() == 5 * 8 and set(topology.bandwidth[of]) == {3.0} and set(topology.latency[of]) == {9.0}
    check_connected(topology)
    for a, b in zip(topology.tail[of], topology.head[of], strict=True):
        assert (topology.head[of][topology.tail[of] == b] == a).any()


def test_networkx_sees_the_same_graph() -> None:
    topology = leaf_spine(2, 2, 2, 1.0, 1.0)
    graph = to_networkx(topology)
    assert graph.number_of_edges() == topology.links
    assert graph.nodes["npu 3"]["npu"] == 3 and graph["leaf 0"]["spine 1"][0]["kind"] == "leaf-spine"


@pytest.mark.parametrize(
    ("build", "message"),
    (
        (lambda: fat_tree(5, 1.0, 1.0), "k: got 5, expected an even number from 2"),
        (lambda: fat_tree(4, 1.0, 1.0, oversubscription=1.3), "gives 2.6 NPUs per edge switch"),
        (lambda: rail_optimised(4, 2, 1, 1, 1, 1, hosts_per_unit=3), "4 hosts are not a multiple"),
        (
            lambda: rail_optimised(4, 2, 1, 1, 1, 1, hosts_per_unit=2),
            "2 units and no spines: nothing joins them",
        ),
        (lambda: dragonfly(1, 2, 1, 1.0, 1.0, groups=4), "groups: got 4, expected 2 to 3"),
        (lambda: leaf_spine(2, 1, 1, 0.0, 1.0), "a link has bandwidth 0, expected more than 0"),
        (lambda: fat_tree(1000, 1.0, 1.0), "links, expected at most 50,000,000"),
    ),
)
def test_what_cannot_be_built(build, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build()
