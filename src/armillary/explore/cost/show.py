"""Prices and energies as tables and as plain values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from armillary.explore.cost.energy import Energy
from armillary.explore.cost.presets import read_cost_preset
from armillary.explore.cost.price import Item, Price
from armillary.explore.cost.schema import Costs, unverified
from armillary.explore.sweep.measures import MEASURES

if TYPE_CHECKING:
    from rich.table import Table


def price_table(price: Price) -> Table:
    """Return the price of a machine by part."""
    return _table("Price of the machine", price.items, price.total, MEASURES["price"].show)


def energy_table(energy: Energy) -> Table:
    """Return the energy of a step by part."""
    return _table("Energy of a step", energy.items, energy.total, MEASURES["energy"].show)


def measures_table(found: Mapping[str, float]) -> Table:
    """Return measures by name, with what they are."""
    table = _plain("measure", "what it is")
    table.add_column("value", justify="right")
    for name, value in found.items():
        table.add_row(name, MEASURES[name].text, MEASURES[name].show(value))
    return table


def notes(price: Price, energy: Energy | None, costs: Costs) -> list[str]:
    """Return what a reader must know of the totals: what is not in them, and which numbers are guesses."""
    lines = []
    for what, missing in (("price", price.missing), ("energy", energy.missing if energy else ())):
        if missing:
            lines.append(f"not in the {what}: {', '.join(missing)}")
    guesses = [key for key in unverified(costs) if key.partition(".")[0] not in price.unused]
    if guesses:
        # notes are for people, who want to know how many of how many.
        numbers = read_cost_preset(str(costs.preset)).numbers
        known = sum(number.key.partition(".")[0] not in price.unused for number in numbers)
        lines.append(
            f"preset {costs.preset}: {len(guesses)} of {known} numbers are unverified: {', '.join(guesses)}"
        )
    return lines


def describe(price: Price, energy: Energy, found: Mapping[str, float], costs: Costs) -> dict[str, Any]:
    """Return the same as plain values; the last part of a key is the unit of its number."""
    return {
        "schema": "armillary-cost",
        "version": 1,
        "price": [{"part": item.name, "price_usd": item.amount} for item in price.items],
        "energy": [{"part": item.name, "energy_joules": item.amount} for item in energy.items],
        "measures": {name: {"value": value, "unit": MEASURES[name].unit} for name, value in found.items()},
        "notes": notes(price, energy, costs),
    }


def _table(title: str, items: Iterable[Item], total: float, show: Callable[[float], str]) -> Table:
    table = _plain(title, "how it follows")
    table.add_column("share", justify="right")
    table.add_column("amount", justify="right")
    for item in items:
        # All parts may be free.
        share = f"{100 * item.amount / total:.1f} %" if total else "-"
        table.add_row(item.name, item.detail, share, show(item.amount))
    table.add_section()
    table.add_row("all", "", "", show(total))
    return table


def _plain(*names: str) -> Table:
    # Rich is slow to import, and JSON output does not need it.
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in names:
        table.add_column(name, overflow="fold")
    return table
