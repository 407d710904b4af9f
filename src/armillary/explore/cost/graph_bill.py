"""Switches and cables of a network that is a graph, counted tier by tier and kind by kind, with their prices and power.

A switch of the graph is the cheapest device of the costs with as many ports; a link faster than a port takes several,
slower ones share a port, as split cables do. Where the ports of no device suffice, the switch is a non-blocking tree of
devices, as it would be built, with the cables in it. What is inside of hosts is none of this.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, floor
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import nearest, one_of
from armillary.base.units import format_count
from armillary.explore.cost.presets import read_cost_preset
from armillary.explore.cost.schema import CableCosts, Costs, SwitchCosts
from armillary.platform.topology.graph import Topology

ROUNDING = 1e-9
"""Share of a port by which a link may be faster than a number of ports: rates are quotients."""

MOST_SPLIT = 4
"""Links that share a port: a port of 400 Gb/s has four lanes of 100."""


@dataclass(frozen=True)
class Row:
    """Devices or cables of one sort.

    Attributes:
        name: What they are.
        detail: How many, and of which.
        price: USD.
        high: USD where they are bought dearly.
        power: W.
    """

    name: str
    detail: str
    price: float
    high: float
    power: float


@dataclass(frozen=True)
class _Tree:
    """Devices of one kind that are one switch of a graph together, and the cables between them."""

    name: str
    device: SwitchCosts
    devices: int
    cables: int


def bill(topology: Topology, costs: Costs) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    """Return the switches and cables of a graph, and those that have no price in the costs."""
    outside = ~within_hosts(topology)
    rows, missing = [], []
    optics = costs.cables.get("optics")
    for name, nodes in _tiers(topology, outside):
        trees = Counter(_cheapest(rates, costs, optics) for rates in nodes)
        for tree, count in trees.items():
            if tree is None:
                missing.append(f"{name} switches (switches: none reaches so many ports)")
                continue
            rows.append(_switches(name, tree, count))
            if tree.cables and optics:
                rows.append(_cables(f"cables within {name} switches", "optics", optics, tree.cables * count))
    for kind, rates in _links(topology, outside):
        medium: Literal["optics", "copper"] = "copper" if kind in costs.copper else "optics"
        cable = costs.cables.get(medium)
        if cable is None:
            missing.append(f"cables {kind} (cables.{medium})")
            continue
        rows.append(
            _cables(
                f"cables {kind}",
                medium,
                cable,
                sum(_ports(rate, count, cable.rate) for rate, count in rates.items()),
            )
        )
    missing += _unknown_copper(topology, costs)
    return tuple(rows), tuple(dict.fromkeys(missing))


def _unknown_copper(topology: Topology, costs: Costs) -> list[str]:
    """Return what the costs call copper and is not there, but for what a preset lists for all graphs."""
    usual = read_cost_preset(costs.preset).document.data["costs"].get("copper", []) if costs.preset else []
    return [
        f"copper links '{kind}', of which there are none, expected {one_of(topology.kinds)}"
        f"{nearest(kind, topology.kinds)}"
        for kind in costs.copper if kind not in topology.kinds and kind not in usual
    ]  # fmt: skip


def within_hosts(topology: Topology) -> NDArray[np.bool_]:
    """Return (links) which of them are inside of a host."""
    if not topology.host:
        return np.zeros(topology.links, np.bool_)
    place = np.where(
        np.arange(topology.nodes) < topology.npus, np.arange(topology.nodes) // topology.host, -1
    )
    # Builders of hosts give their inner switches the number of the host as block, and no block to those outside.
    switch = np.arange(topology.nodes) >= topology.npus
    place[switch] = topology.block[switch]
    inside: NDArray[np.bool_] = (place[topology.tail] == place[topology.head]) & (place[topology.tail] >= 0)
    return inside


def _tiers(
    topology: Topology, outside: NDArray[np.bool_]
) -> Iterator[tuple[str, list[tuple[tuple[float, int], ...]]]]:
    """Yield the name of each tier of switches and, of each of its switches, (bytes per ns, links) of its links."""
    for tier in topology.tiers[1:]:
        nodes = []
        for node in range(tier.first, tier.first + tier.count):
            links = slice(int(topology.first_link[node]), int(topology.first_link[node + 1]))
            rates = Counter(topology.bandwidth[links][outside[links]].tolist())
            if rates:
                nodes.append(tuple(sorted(rates.items())))
        if nodes:
            yield tier.name, nodes


def _links(topology: Topology, outside: NDArray[np.bool_]) -> Iterator[tuple[str, Counter[float]]]:
    """Yield each kind of link, and how many links it has of which bytes per ns, both ways once."""
    once = outside & (topology.tail < topology.head)
    for number, kind in enumerate(topology.kinds):
        rates = topology.bandwidth[once & (topology.kind == number)]
        if len(rates):
            yield kind, Counter(rates.tolist())


def _ports(rate: float, count: int, port: float) -> int:
    """Return how many ports so many links of a rate take: one of 400 Gb/s may be split into two of 200."""
    if rate > port:
        return count * ceil(rate / port - ROUNDING)
    return ceil(count / min(MOST_SPLIT, floor(port / rate + ROUNDING)))


def _cheapest(rates: tuple[tuple[float, int], ...], costs: Costs, cable: CableCosts | None) -> _Tree | None:
    """Return the cheapest devices that are a switch with so many links of these rates."""
    found = [
        tree for name, device in costs.switches.items()
        if (tree := _tree(name, device, sum(_ports(rate, count, device.rate) for rate, count in rates)))
    ]  # fmt: skip
    each = cable.price if cable else 0.0
    return min(found, key=lambda tree: tree.devices * tree.device.price + tree.cables * each, default=None)


def _tree(name: str, device: SwitchCosts, ports: int) -> _Tree | None:
    """Return the least non-blocking tree of a device with so many ports; None: it would have more than 4 tiers."""
    if ports <= device.ports:
        return _Tree(name, device, 1, 0)
    half = device.ports // 2
    for tiers in range(2, 5):
        # The uppermost tier has all of its ports down, the others half of them.
        if ports <= 2 * half**tiers:
            return _Tree(name, device, ceil(ports * (2 * tiers - 1) / device.ports), ports * (tiers - 1))
    return None


def _switches(tier: str, tree: _Tree, count: int) -> Row:
    device, number = tree.device, tree.devices * count
    many = "" if tree.devices == 1 else f", {tree.devices} for each of {format_count(count)}"
    return Row(
        f"{tier} switches",
        f"{format_count(number)} x {tree.name} of {device.ports} ports of {device.rate:g} GB/s{many}",
        number * device.price, number * (device.price_high or device.price), number * device.power,
    )  # fmt: skip


def _cables(name: str, medium: str, cable: CableCosts, number: int) -> Row:
    return Row(
        name, f"{format_count(number)} x {medium} of {cable.rate:g} GB/s",
        number * cable.price, number * (cable.price_high or cable.price), number * cable.power,
    )  # fmt: skip
