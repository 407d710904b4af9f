"""The energy of a step, by part."""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum

from armillary.base.errors import InputError
from armillary.explore.cost.price import Item, bill_of, classes, counted_dimensions, gigabytes, hosts
from armillary.explore.cost.schema import Costs
from armillary.explore.cost.use import Use
from armillary.platform.model import Platform, ports


@dataclass(frozen=True)
class Energy:
    """Energy of a step.

    Attributes:
        items: J by part; the overhead of the building (PUE) last.
        missing: Parts without an energy in the costs, which are therefore not in the total.
        seconds: Of the step.
    """

    items: tuple[Item, ...]
    missing: tuple[str, ...]
    seconds: float

    @property
    def total(self) -> float:
        """Joules."""
        return fsum(item.amount for item in self.items)

    @property
    def power(self) -> float:
        """Mean power in W; 0 for a step that takes no time."""
        return self.total / self.seconds if self.seconds else 0.0


def energy(use: Use, platform: Platform, costs: Costs) -> Energy:
    """Return the energy of a step: operations, bytes moved, and what is consumed all the time.

    Raises:
        InputError: the costs need something that the machine does not say.
    """
    items: list[Item] = []
    missing: list[str] = []
    # In the order of the table: NPUs, memory, dimensions, hosts, building.
    _npus(use, costs, items, missing)
    if costs.memory.access is not None:
        text = f"{use.memory:,.4g} B x {costs.memory.access * 1e12:,.4g} pJ"
        items.append(Item("memory: accesses", text, use.memory * costs.memory.access))
    # Missing only where operations have energies: `busy` watts include the memory.
    elif costs.npu.flop is not None:
        missing.append("memory accesses (memory.access)")
    if costs.memory.stored is not None:
        # Power per GB times the capacity of all NPUs: W.
        held = use.npus * gigabytes(platform, "memory.stored") * costs.memory.stored
        items.append(Item("memory: stored", _steady(held, use), held * use.seconds))
    counted = counted_dimensions(platform, costs)
    if held := fsum(row.power for row in bill_of(platform, costs)[0]):
        items.append(Item("switches and cables", _steady(held, use), held * use.seconds))
    # Outer dimensions follow inner ones; `classes` gives each its class of links.
    for d, (name, links) in enumerate(classes(platform, costs)):
        dimension = platform.dimensions[d].name
        if d in counted and not (links and links.moved):
            continue
        # A class may have prices only.
        if links is None or not (links.moved or links.power):
            missing.append(f"dimension {dimension} (links.{name}.moved, .power)")
            continue
        if links.moved:
            text = f"{use.moved[d]:,.4g} B x {links.moved * 1e12:,.4g} pJ"
            items.append(Item(f"{dimension}: moved", text, use.moved[d] * links.moved))
        # Per GB/s that an NPU has, whatever it moves.
        if links.power and d not in counted:
            held = use.npus * ports(platform)[d].slower * links.power
            items.append(Item(f"{dimension}: always", _steady(held, use), held * use.seconds))
    if costs.host is None or costs.host.power is None:
        missing.append("hosts (host.power)")
    else:
        held = hosts(platform, costs) * costs.host.power
        items.append(Item("hosts", _steady(held, use), held * use.seconds))
    # PUE covers all that the machine takes, so that it comes last.
    if costs.pue > 1:
        rest = (costs.pue - 1) * fsum(item.amount for item in items)
        items.append(Item("building", f"PUE {costs.pue:.4g}", rest))
    return Energy(tuple(items), tuple(missing), use.seconds)


def _npus(use: Use, costs: Costs, items: list[Item], missing: list[str]) -> None:
    npu = costs.npu
    if npu.busy is not None:
        text = f"{use.busy:,.4g} NPU s x {npu.busy:,.4g} W"
        items.append(Item("NPUs: busy", text, use.busy * npu.busy))
        # Busy and idle watts share the time; with energies per operation, idle watts are drawn all the time.
        idle = use.idle
    elif npu.flop is not None:
        for name, done in use.flops.items():
            # YAML may give the precision as a literal type; the step names it as text.
            each = {str(key): value for key, value in npu.flop.items()}.get(name)
            if each is None:
                raise InputError(f"costs: npu.flop: missing key '{name}', of which the step has operations")
            items.append(Item(f"NPUs: {name}", f"{done:,.4g} FLOP x {each * 1e12:,.4g} pJ", done * each))
        idle = use.npus * use.seconds
    else:
        missing.append("NPUs (npu.busy and .idle, or .flop)")
        return
    if npu.idle is not None:
        what = "NPUs: idle" if npu.busy is not None else "NPUs: always"
        items.append(Item(what, f"{idle:,.4g} NPU s x {npu.idle:,.4g} W", idle * npu.idle))


def _steady(power: float, use: Use) -> str:
    return f"{power:,.4g} W x {use.seconds:,.4g} s"
