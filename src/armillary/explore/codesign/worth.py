"""What a machine costs and takes before anything is simulated: price, dollars a year, and W with every NPU busy."""

from __future__ import annotations

from dataclasses import dataclass

from armillary.base.units import format_count
from armillary.explore.cost import Costs, Use, energy, price
from armillary.explore.cost.measures import HOURS_PER_YEAR, price_per_hour
from armillary.platform.model import Platform

TITLES = {"capital": "capital", "cost_per_year": "cost per year", "power": "power"}
"""Budget -> what it is called."""
NEEDED = {
    "capital": "npu.price, not npu.rent",
    "cost_per_year": "npu.rent, or npu.price and years",
    "power": "npu.busy and npu.idle",
}
"""Budget -> the keys of costs that it needs."""


@dataclass(frozen=True)
class Worth:
    """What a machine costs and takes; None: the costs do not say.

    Attributes:
        capital: USD to buy it.
        cost_per_year: USD: the price over its years, or rent, and electricity at full power.
        power: W with every NPU busy, hosts, links and the building's share.
        missing: Parts that are not in it.
    """

    capital: float | None
    cost_per_year: float | None
    power: float | None
    missing: tuple[str, ...] = ()

    def of(self, budget: str) -> float | None:
        """Return what counts against a budget of `TITLES`."""
        value: float | None = getattr(self, budget)
        return value


def worth(platform: Platform, costs: Costs) -> Worth:
    """Return what a machine costs and takes at most.

    Raises:
        InputError: the costs need something that the machine does not say.
    """
    bought = price(platform, costs)
    capital = bought.total if bought.items and costs.npu.price is not None else None
    power, missing = None, [*bought.missing]
    if costs.npu.busy is not None:
        nothing_moved = (0.0,) * len(platform.dimensions)
        npus = platform.npus
        spent = energy(Use(1.0, npus, float(npus), {}, 0.0, nothing_moved), platform, costs)
        power = spent.power
        missing += [text for text in spent.missing if text not in missing]
        if costs.memory.access or any(each.moved for each in costs.links.values()):
            missing.append("bytes of memory and links (memory.access, links.moved)")
    hourly = price_per_hour(costs, platform.npus, capital, power)
    yearly = None if hourly is None else hourly * HOURS_PER_YEAR * costs.utilisation
    return Worth(capital, yearly, power, tuple(missing))


def amount(budget: str, value: float) -> str:
    """Return what counts against a budget, for people."""
    if budget == "power":
        return f"{value / 1e3:,.4g} kW"
    return f"${value / 1e6:,.4g} M" if value >= 1e5 else f"${format_count(round(value))}"
