"""Switches and cables of graphs, counted by hand and link by link."""

from __future__ import annotations

from collections import Counter
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.explore.cost import Costs, load_costs, price
from armillary.explore.cost.graph_bill import bill, within_hosts
from armillary.platform import load_platform
from armillary.platform.topology.graph import Topology
from armillary.platform.topology.planes import in_planes
from armillary.platform.topology.trees import dragonfly, fat_tree, leaf_spine, rail_optimised

COSTS = Costs.model_validate({
    "switches": {
        "small": {"ports": 16, "rate": "50 GB/s", "price": "1 kUSD", "price_high": "2 kUSD", "power": "100 W"},
        "large": {"ports": 64, "rate": "50 GB/s", "price": "10 kUSD"},
    },
    "cables": {
        "optics": {"rate": "50 GB/s", "price": "10 USD", "price_high": "30 USD", "power": "1 W"},
        "copper": {"rate": "50 GB/s", "price": "1 USD"},
    },
    "copper": ["local"],
})  # fmt: skip


def amounts(topology: Topology) -> dict[str, float]:
    rows, missing = bill(topology, COSTS)
    assert not missing or missing[0].startswith("copper links 'local', of which there are none")
    return {row.name: row.price for row in rows}


def test_a_fat_tree_by_hand() -> None:
    # k = 8: 32 edge, 32 aggregation and 16 core switches of 8 ports, 128 cables in each of three layers.
    assert amounts(fat_tree(8, 50.0, 500.0)) == {
        "edge switches": 32e3, "aggregation switches": 32e3, "core switches": 16e3,
        "cables npu-edge": 1280, "cables edge-aggregation": 1280, "cables aggregation-core": 1280,
    }  # fmt: skip


def test_ports_go_by_rates() -> None:
    # Two uplinks of 100 GB/s take two ports each beside 8 links down; 75 GB/s as many; two of 25 GB/s share one.
    for uplink, cables in ((100.0, 16), (75.0, 16), (25.0, 4)):
        assert amounts(leaf_spine(4, 2, 8, 50.0, 500.0, uplink=uplink))["cables leaf-spine"] == 10 * cables
    # 12 links of 100 GB/s are 24 ports: 5 small switches in two tiers and 24 cables cost less than a large one.
    assert amounts(leaf_spine(1, 0, 12, 100.0, 500.0)) == {
        "leaf switches": 5e3, "cables within leaf switches": 240, "cables npu-leaf": 240,
    }  # fmt: skip


def test_no_device_may_reach() -> None:
    few = COSTS.model_copy(
        update={"switches": {"small": COSTS.switches["small"].model_copy(update={"ports": 2})}}
    )
    rows, missing = bill(leaf_spine(1, 0, 12, 50.0, 500.0), few)
    assert [row.name for row in rows] == ["cables npu-leaf"]
    assert missing[0] == "leaf switches (switches: none reaches so many ports)"
    _, missing = bill(
        fat_tree(4, 50.0, 1.0), COSTS.model_copy(update={"cables": {"copper": COSTS.cables["copper"]}})
    )
    assert missing[0] == "cables npu-edge (cables.optics)" and len(missing) == 4


def test_what_is_inside_of_hosts_is_not_counted_and_planes_share_ports() -> None:
    rails = rail_optimised(8, 4, 450.0, 1.0, 50.0, 1.0, hosts_per_unit=4, spines=2)
    assert within_hosts(rails).sum() == 2 * 8 * 4
    assert amounts(rails) == {
        "leaf switches": 8e3, "spine switches": 2e3, "cables rail": 320, "cables spine": 320,
    }  # fmt: skip
    # Two planes of half the rate: twice the switches, and two links share a cable's price.
    assert amounts(in_planes(rails, 2)) == {
        "leaf switches": 16e3, "spine switches": 4e3, "cables rail": 320, "cables spine": 320,
    }  # fmt: skip


@given(
    st.sampled_from((1, 2, 4)),
    st.integers(1, 5),
    st.integers(1, 3),
    st.sampled_from((25.0, 40.0, 50.0, 120.0)),
)
def test_a_dragonfly_link_by_link(p: int, a: int, h: int, rate: float) -> None:
    graph = dragonfly(p, a, h, rate, 500.0)
    found = amounts(graph)
    count: Counter[str] = Counter()
    for link in range(graph.links):
        if graph.tail[link] < graph.head[link]:
            count[graph.kinds[graph.kind[link]]] += 1
    for kind, links in count.items():
        cables = links * ceil(rate / 50) if rate > 25 else ceil(links / 2)
        assert found[f"cables {kind}"] == cables * (1 if kind == "local" else 10)
    assert found["router switches"] % (a * (a * h + 1)) == 0


def test_the_sheet_of_the_preset_is_met() -> None:
    """1,024 GPUs: 48 switches for 1,728,000 USD, connectors and cables for 2,621,440, August 2024."""
    bought = price(load_platform("rail-optimised-h100"), load_costs("h100"))
    switches = sum(item.amount for item in bought.items if item.name.endswith("switches"))
    cables = sum(item.amount for item in bought.items if item.name.startswith("cables"))
    assert switches == 1_728_000
    assert cables == pytest.approx(2_621_440, rel=0.04)
    assert bought.total < bought.high < 1.2 * bought.total and not bought.missing
    # Without switches a GB/s costs the same on every graph.
    flat = load_costs("h100").model_copy(update={"switches": {}})
    assert [item.name for item in price(load_platform("rail-only-h100"), flat).items][2:4] == [
        "hosts: links", "hosts: switches",
    ]  # fmt: skip


def test_mistakes_are_said() -> None:
    switch = {"ports": 4, "rate": "50 GB/s", "price": "5 USD", "price_high": "1 USD"}
    with pytest.raises(InputError, match="price_high: got 1 USD, expected at least price, 5 USD"):
        load_costs({"switches": {"a": switch}, "cables": {"optics": {"rate": "50 GB/s", "price": "1 USD"}}})
    with pytest.raises(InputError, match="got switches without cables"):
        load_costs({"switches": {"a": {**switch, "price_high": "9 USD"}}})
    _, missing = bill(fat_tree(4, 50.0, 1.0), load_costs({"preset": "h100", "copper": ["npu-edg", "local"]}))
    assert missing == (
        "copper links 'npu-edg', of which there are none, expected one of npu-edge, edge-aggregation, "
        "aggregation-core (did you mean 'npu-edge'?)",
    )
