"""The price of a machine, by part."""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum

from armillary.base.errors import InputError, nearest, one_of
from armillary.explore.cost.graph_bill import Row, bill
from armillary.explore.cost.schema import CLASSES, Costs, LinkCosts
from armillary.platform.model import Platform, ports
from armillary.platform.network import Dimension


@dataclass(frozen=True)
class Item:
    """A row of a table: name, derivation, and USD (of a price) or J (of an energy); `high`: where it is dear."""

    name: str
    detail: str
    amount: float
    high: float | None = None


GRAPHS = ("switches", "cables")
"""Parts of the costs that only a network that is a graph has."""


@dataclass(frozen=True)
class Price:
    """Price of a machine.

    Attributes:
        items: By part.
        missing: Parts without a price in the costs, which are therefore not in the total.
        unused: Parts of the costs that a machine like this has not.
    """

    items: tuple[Item, ...]
    missing: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()

    @property
    def total(self) -> float:
        """USD."""
        return fsum(item.amount for item in self.items)

    @property
    def high(self) -> float:
        """USD where all that has two prices is dear."""
        return fsum(item.amount if item.high is None else item.high for item in self.items)


def price(platform: Platform, costs: Costs) -> Price:
    """Return what a machine costs to buy; nothing if it is rented.

    The network follows LIBRA (arXiv 2109.11762): each dimension costs USD per GB/s times the bandwidth of its ports,
    for edges, and for ports of switches and NICs where it is a Switch. Of a network that is a graph, switches and
    cables outside of hosts are counted where the costs know any; else it costs what the dimensions cost that
    collectives take it for.

    Raises:
        InputError: the costs need something that the machine does not say, or name a dimension that it does not have.
    """
    npus, items, missing = platform.npus, [], []
    # A rented machine costs nothing to buy.
    if costs.npu.rent is not None:
        return Price((), (), GRAPHS)
    # Missing parts are named, since a total without them would look complete.
    if costs.npu.price is None:
        missing.append("NPUs (npu.price)")
    else:
        items.append(Item("NPUs", f"{npus:,} x ${costs.npu.price:,.2f}", npus * costs.npu.price))
    if costs.memory.price is not None:
        # The capacity is that of the platform, so that both files must fit.
        capacity = gigabytes(platform, "memory.price")
        detail = f"{npus:,} x {capacity:,.4g} GB x ${costs.memory.price:,.2f}"
        items.append(Item("memory", detail, npus * capacity * costs.memory.price))
    if costs.host is None or costs.host.price is None:
        missing.append("hosts (host.price)")
    else:
        count = hosts(platform, costs)
        items.append(Item("hosts", f"{count:,} x ${costs.host.price:,.2f}", count * costs.host.price))
    counted, known = counted_dimensions(platform, costs), classes(platform, costs)
    rows, without = bill_of(platform, costs)
    missing += without
    items += [Item(row.name, row.detail, row.price, row.high) for row in rows]
    for d, (name, links) in enumerate(known):
        dimension = platform.dimensions[d]
        # The class has no entry in `links`.
        if links is None and d in counted:
            continue
        if links is None:
            missing.append(f"dimension {dimension.name} (links.{name})")
            continue
        # The lesser of both directions.
        rate = ports(platform)[d].slower
        for part, each in parts(dimension, links).items():
            if d in counted and part != "NICs":
                continue
            text = f"{npus:,} x {rate:,.4g} GB/s x ${each:,.2f}, class {name}"
            items.append(Item(f"{dimension.name}: {part}", text, npus * rate * each))
    # Last, as it is a share of all before.
    if costs.other:
        before = Price(tuple(items))
        items.append(
            Item(
                "other", f"{100 * costs.other:.4g} % of all before",
                before.total * costs.other, before.high * costs.other,
            )
        )  # fmt: skip
    return Price(tuple(items), tuple(missing), () if rows or without else GRAPHS)


def bill_of(platform: Platform, costs: Costs) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    """Return the switches and cables of a platform that are counted, and those that have no price."""
    if platform.topology is None or not costs.switches:
        return (), ()
    return bill(platform.topology.topology, costs)


def counted_dimensions(platform: Platform, costs: Costs) -> list[int]:
    """Return the dimensions of a graph whose switches and cables are counted: those outside of its hosts."""
    if platform.topology is None or not costs.switches:
        return []
    found, reach = [], 1
    for d, dimension in enumerate(platform.dimensions):
        reach *= dimension.size
        if reach > platform.topology.topology.host:
            found.append(d)
    return found


def parts(dimension: Dimension, links: LinkCosts) -> dict[str, float]:
    """Return USD per GB/s of an NPU in a dimension, by part; those that cost nothing are left out."""
    found = {"links": links.link}
    # Other topologies join NPUs directly and have no switch ports or NICs.
    if dimension.topology == "Switch":
        found |= {"switches": links.switch, "NICs": links.nic}
    return {name: each for name, each in found.items() if each}


def classes(platform: Platform, costs: Costs) -> list[tuple[str, LinkCosts | None]]:
    """Return the class of links of each dimension, and what it costs: None where no key says so.

    A dimension that ``costs.dimensions`` does not name goes by its place. With a host: dimensions that lead out of it
    are "pod", those in it are, from the outside, "node", "package", "chiplet". Without one, "pod" is the outermost.

    Raises:
        InputError: ``costs.dimensions`` names a dimension that there is not.
    """
    names = [dimension.name for dimension in platform.dimensions]
    # Names must exist: a typo would silently take the class by place.
    for name in costs.dimensions:
        if name not in names:
            raise InputError(
                f"costs: dimensions: got '{name}', expected {one_of(names)}{nearest(name, names)}"
            )
    # Number of dimensions inside a host; without a host, all but the outermost.
    inside, reach = len(names) - 1, 1
    if costs.host:
        inside = 0
        for dimension in platform.dimensions:
            reach *= dimension.size
            # Inside as long as the members so far fit one host.
            inside += reach <= costs.host.npus
    found = []
    for d, name in enumerate(names):
        # 0 is "pod" (leads out), then node, package, chiplet from the outside in; further ones are chiplets.
        place = 0 if d >= inside else min(inside - d, len(CLASSES) - 1)
        kind = costs.dimensions.get(name, CLASSES[place])
        found.append((kind, costs.links.get(kind)))
    return found


def per_bandwidth(platform: Platform, costs: Costs) -> list[float]:
    """Return USD per GB/s of each dimension, of the whole machine.

    Raises:
        InputError: a dimension has no price.
    """
    found = []
    for dimension, (name, links) in zip(platform.dimensions, classes(platform, costs), strict=True):
        each = fsum(parts(dimension, links).values()) if links else 0.0
        # A free dimension would get all the bandwidth of a budget.
        if not each:
            raise InputError(f"costs: links.{name}: missing, or nothing, for dimension '{dimension.name}'")
        # `other` is a share on top of each price.
        found.append(each * platform.npus * (1 + costs.other))
    return found


def hosts(platform: Platform, costs: Costs) -> int:
    """Return the number of hosts of a machine."""
    assert costs.host is not None
    # Rounded up: the last host may have empty places.
    return -(-platform.npus // costs.host.npus)


def gigabytes(platform: Platform, key: str) -> float:
    """Return the capacity of an NPU's memory in GB, which `key` of the costs needs.

    Raises:
        InputError: the machine does not say.
    """
    capacity = platform.npu.memory.capacity
    if not capacity:
        raise InputError(
            f"costs: {key}: the machine says no npu.memory.capacity, which this is multiplied by"
        )
    return capacity / 1e9
