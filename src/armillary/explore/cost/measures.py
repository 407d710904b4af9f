"""The measures of a study that follow from prices and energies (`armillary.explore.sweep.measures`)."""

from __future__ import annotations

from armillary.explore.cost.energy import energy
from armillary.explore.cost.price import price
from armillary.explore.cost.schema import Costs
from armillary.explore.cost.use import Use
from armillary.platform.model import Platform

HOURS_PER_YEAR = 365.25 * 24


def measures_of(
    use: Use | None,
    platform: Platform,
    costs: Costs | None,
    *,
    tokens: float | None = None,
    run_tokens: float | None = None,
) -> dict[str, float]:
    """Return what is known: price, price_per_hour, cost_per_token, power, energy, energy_per_token, and of the run.

    What the costs do not say is left out: nothing is 0 because it is not known.

    Args:
        use: Of a step; None: only the price.
        platform: The machine.
        costs: None: only run_time and npu_years.
        tokens: Of a step, all replicas.
        run_tokens: Of the whole run, which is so many steps without failures.

    Raises:
        InputError: the costs need something that the machine does not say.
    """
    found: dict[str, float] = {}
    bought = price(platform, costs) if costs else None
    # A rented machine has no items, and so no price of its own.
    if bought and bought.items:
        found["price"] = bought.total
    if use is None:
        return found
    # Without items nothing is known, which is not 0 J.
    spent = energy(use, platform, costs) if costs else None
    # A step of 0 s has no power.
    if spent and spent.items and use.seconds:
        found |= {"energy": spent.total, "power": spent.power}
    hourly = price_per_hour(costs, use.npus, found.get("price"), found.get("power")) if costs else None
    if hourly is not None:
        found["price_per_hour"] = hourly
    # Serving has no tokens per step.
    if not tokens:
        return found
    if "energy" in found:
        found["energy_per_token"] = found["energy"] / tokens
    if hourly is not None:
        # s to hours.
        found["cost_per_token"] = hourly * use.seconds / 3600 / tokens
    if run_tokens:
        # As many steps as give the tokens, without failures: `whole_run` adds those.
        seconds = use.seconds * run_tokens / tokens
        found |= {"run_time": seconds, "npu_years": use.npus * seconds / 3600 / HOURS_PER_YEAR}
        if hourly is not None:
            found["run_cost"] = hourly * seconds / 3600
        if "power" in found:
            found["run_energy"] = found["power"] * seconds
    return found


def price_per_hour(costs: Costs, npus: int, bought: float | None, power: float | None) -> float | None:
    """Return USD per hour of work: rent, or price / (years x utilisation) and electricity; None: not known."""
    # Rent includes everything: what is bought besides is not added.
    if costs.npu.rent is not None:
        return costs.npu.rent * npus
    if bought is None or costs.years is None:
        return None
    # A machine that stands idle part of the time must earn its price in the rest.
    hourly = bought / (costs.years * HOURS_PER_YEAR * costs.utilisation)
    if costs.electricity is not None and power is not None:
        # W to kW; electricity is per kWh.
        hourly += power / 1000 * costs.electricity
    return hourly
