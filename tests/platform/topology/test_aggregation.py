"""Trees of switches: where their roots are, what they carry, and how names of switches are read."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from armillary.base.errors import InputError
from armillary.platform.files.native import load_platform
from armillary.platform.topology import fat_tree, leaf_spine, rail_optimised
from armillary.platform.topology.aggregation import Aggregation, capable_switches, named_switches

LINKS = {"bandwidth": "50 GB/s", "latency": "500 ns"}
LEAVES: dict[str, Any] = {"kind": "leaf-spine", "leaves": 2, "spines": 2, "npus_per_leaf": 2} | LINKS


def test_a_leaf_is_enough_for_its_members_and_a_spine_joins_leaves() -> None:
    graph = leaf_spine(leaves=3, spines=2, npus_per_leaf=3, bandwidth=50.0, latency=500.0)
    found = Aggregation(graph, range(9, graph.nodes))
    (tree,) = found.trees([3, 5])
    assert set(tree.parent.values()) == {10}
    (tree,) = found.trees([0, 1, 3, 4, 8])
    # Leaf 2 has one member below it and passes on.
    assert tree.parent == {0: 9, 1: 9, 3: 10, 4: 10, 8: 12, 9: 12, 10: 12}
    assert [graph.link_name(link) for link in tree.up[8]] == ["npu 8 → leaf 2", "leaf 2 → spine 0"]
    assert [graph.link_name(link) for link in tree.down[8]] == ["spine 0 → leaf 2", "leaf 2 → npu 8"]


def test_trees_share_what_one_leaves_unused() -> None:
    host = rail_optimised(
        hosts=1,
        npus_per_host=4,
        bandwidth=1.0,
        latency=1.0,
        host_bandwidth=400.0,
        host_latency=1.0,
        host_switches=4,
    )
    trees = Aggregation(host, range(4, 8)).trees(range(4))
    assert [tree.share for tree in trees] == [Fraction(1, 4)] * 4
    assert {root for tree in trees for root in tree.parent.values()} == {4, 5, 6, 7}
    # Thin uplinks: both spines, though every NPU has one link only.
    thin = leaf_spine(leaves=2, spines=2, npus_per_leaf=2, bandwidth=50.0, latency=1.0, uplink=25.0)
    assert len(Aggregation(thin, range(4, 8)).trees(range(4))) == 2


def test_a_fat_tree_has_three_levels() -> None:
    graph = fat_tree(4, 50.0, 500.0)
    (tree,) = Aggregation(graph, range(16, graph.nodes)).trees(range(16))
    inner = set(tree.parent.values())
    assert len(inner) == 8 + 4 + 1
    assert Aggregation(graph, range(16, 24)).depth(range(2)) == 1


def test_names_of_switches() -> None:
    graph = leaf_spine(leaves=2, spines=2, npus_per_leaf=2, bandwidth=50.0, latency=500.0)
    assert named_switches(graph, None) == (4, 5, 6, 7)
    assert named_switches(graph, ["spine", "leaf 1"]) == (5, 6, 7)
    with pytest.raises(InputError, match="switches: got 'spin', expected one of leaf, spine, or one switch"):
        named_switches(graph, ["spin"])
    with pytest.raises(InputError, match="'npu 0', an NPU"):
        named_switches(graph, ["npu 0"])


def test_what_a_study_says_of_switches() -> None:
    platform = load_platform({"topology": LEAVES | {"in_network": {"rate": "10 GB/s", "switches": ["leaf"]}}})
    assert platform.topology is not None
    assert {node: able.rate for node, able in capable_switches(platform.topology).items()} == {
        4: 10.0,
        5: 10.0,
    }
    # All NPUs meet at spines, which cannot reduce.
    assert [d.in_network for d in platform.dimensions] == [None]
    levels = load_platform(
        {"topology": LEAVES | {"in_network": {"switches": ["leaf"]}}, "collectives": {"hierarchy": [2, 2]}}
    )
    assert [d.in_network is not None for d in levels.dimensions] == [True, False]


@pytest.mark.parametrize(
    ("platform", "message"),
    [
        ({"topology": LEAVES | {"in_network": {"switches": ["core"]}}}, "in_network: switches: got 'core'"),
        ({"topology": LEAVES | {"in_network": {"rates": "1 GB/s"}}}, "did you mean 'rate'"),
        ({"topology": LEAVES | {"in_network": {"operations": 0}}}, "operations"),
        (
            {"topology": {"kind": "hypercube", "order": 2, "in_network": {}} | LINKS},
            "hypercube has no switches, expected in_network with switches only",
        ),
        (
            {"network": [{"topology": "Ring", "size": 4, "in_network": {}} | LINKS]},
            "got in_network for topology 'Ring', expected it for Switch only",
        ),
    ],
)
def test_refuses_what_no_switch_can_do(platform: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_platform(platform)
