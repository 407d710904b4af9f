"""What each term of interference and overhead costs in a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from armillary.platform.kernels import Terms, term_unit, term_words
from armillary.platform.model import Platform

if TYPE_CHECKING:
    from rich.console import Console

    from armillary.engine.common.timeline import Timeline


@dataclass(frozen=True)
class TermCost:
    """One term: its setting, and by how many ticks the run is shorter without it alone."""

    text: str
    ticks: int


@dataclass(frozen=True)
class TermCosts:
    """Ticks of a run with all its terms, without any, and what each costs."""

    with_all: int
    without: int
    each: tuple[TermCost, ...]


def with_terms(platform: Platform, terms: Terms) -> Platform:
    """Return a platform with other terms."""
    return replace(platform, terms=terms)


def term_costs(platform: Platform, simulate: Callable[[Platform], Timeline]) -> TermCosts:
    """Return what each term of a platform costs, by one simulation without it.

    Terms act on each other (what is slower overlaps longer), so the parts need not add up.

    Args:
        platform: With terms.
        simulate: Runs what is asked about on a platform.
    """
    terms = platform.terms
    whole = simulate(platform).total_ticks
    each = []
    # One term off at a time, all others on.
    for name, value in terms.on().items():
        ticks = simulate(with_terms(platform, replace(terms, **{name: 0.0}))).total_ticks
        text = term_words({f"{name}_{term_unit(name)}": value})
        each.append(TermCost(text, whole - ticks))
    return TermCosts(whole, simulate(with_terms(platform, Terms())).total_ticks, tuple(each))


def print_term_costs(costs: TermCosts, console: Console | None = None) -> None:
    """Print a table of what each term costs."""
    from armillary.base.units import format_time
    from armillary.report.plain import plain_table
    from armillary.report.summary import on_console

    # What interactions add or take: the parts need not sum up.
    rest = costs.with_all - costs.without - sum(each.ticks for each in costs.each)
    rows = {"without any": costs.without, **{each.text: each.ticks for each in costs.each}}
    rows |= {"several together": rest, "with all": costs.with_all}

    def body(target: Console, unicode: bool) -> None:
        table = plain_table("term", "step time", "", widest=40)
        for text, ticks in rows.items():
            share = f"{100 * ticks / costs.with_all:.1f} %" if costs.with_all else "-"
            # A negative time has no text of its own.
            table.add_row(text, "-" * (ticks < 0) + format_time(abs(ticks)), share)
        target.print()
        target.print(table)

    on_console(body, console)
