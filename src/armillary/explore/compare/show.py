"""A comparison as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from armillary.base.units import format_time
from armillary.explore.compare.comparison import Comparison, headline, percent, short, side_names
from armillary.explore.compare.terms import Term
from armillary.explore.views.columns import measure_text, title_of
from armillary.report.plain import plain_name, plain_table
from armillary.report.time_breakdown import TITLES

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

_KEYS = 30


def shown(found: Comparison) -> Group:
    """Return the comparison for a terminal or a pipe."""
    from rich.console import Group
    from rich.text import Text

    parts: list[Any] = [Text(headline(found), "bold")]
    names = side_names(found)
    for name, side in zip(names, found.sides, strict=True):
        parts.append(Text(f"{name}  {side.name}"))
        parts += [Text(f"   {text}", "yellow") for text in side.notes()]

    def section(title: str, table: Table) -> None:
        parts.extend((Text(f"\n{title}", "bold"), table))

    if found.keys:
        table = plain_table("key", *names, left=1 + len(names), widest=44)
        for key, values in list(found.keys.items())[:_KEYS]:
            table.add_row(plain_name(key), *(plain_name(short(value)) for value in values))
        # Different presets may differ in hundreds of keys.
        if (more := len(found.keys) - _KEYS) > 0:
            table.add_row(plain_name(f"and {more:,} more"))
        section("What differs in the studies", table)
    section("Time of the slowest rank", _times(found, names))
    if found.terms.by_dimension:
        section("Exposed communication by dimension", _term_table(found, names, found.terms.by_dimension))
    if found.measures:
        table = plain_table("measure", *names, "change", widest=30)
        for name, values in found.measures.items():
            texts = [measure_text(name, value) for value in values]
            table.add_row(title_of(name), *texts, _ratio(values[0], values[-1]))
        section("Beside time", table)
    if found.nodes:
        table = plain_table("on the slowest rank", "kind", "calls", *names, "change", left=2, widest=40)
        for one in found.nodes:
            calls = (
                f"{one.calls[0]:,}"
                if one.calls[0] == one.calls[1]
                else f"{one.calls[0]:,} -> {one.calls[1]:,}"
            )
            table.add_row(
                plain_name(one.name), one.kind, calls, *map(format_time, one.ns), _signed(one.change)
            )
        section("Kernels and collectives that changed most, hidden or not", table)
    if found.path:
        table = plain_table("", *names, widest=30)
        for kind in found.path[0]:
            each = [side.get(kind, 0.0) for side in found.path]
            if any(each):
                table.add_row(
                    TITLES[kind].removeprefix("exposed "), *(f"{100 * share:.1f} %" for share in each)
                )
        section("Share of the critical path", table)
    return Group(*parts)


def _times(found: Comparison, names: Sequence[str]) -> Table:
    terms: list[tuple[str, Term]] = []
    for part in found.terms.parts:
        terms.append((part.name, part))
        # Indented below the row whose sum they are.
        if part.name == TITLES["communication"]:
            terms += [(f"  {each.name}", each) for each in found.terms.by_group]
    return _term_table(found, names, [Term(name, each.ns) for name, each in terms], whole=True)


def _term_table(
    found: Comparison, names: Sequence[str], terms: Sequence[Term], *, whole: bool = False
) -> Table:
    two = len(names) == 2
    titles = (*names, "change", "of A's step") if two else names
    table = plain_table("part", *titles, widest=36)
    for term in terms:
        cells = [format_time(ns) for ns in term.ns]
        # Changes and shares need a pair; for more sides a last row compares with A.
        if two:
            cells += [_signed(term.change), percent(term.change, found.terms.total.ns[0])]
        table.add_row(plain_name(term.name), *cells)
    if whole:
        total = found.terms.total
        table.add_section()
        cells = [format_time(ns) for ns in total.ns]
        if two:
            cells += [_signed(total.change), percent(total.change, total.ns[0])]
        table.add_row(total.name, *cells)
        if not two:
            table.add_row("to A", *(percent(ns - total.ns[0], total.ns[0]) for ns in total.ns))
    return table


def _signed(ns: float) -> str:
    if not ns:
        return "0"
    return f"{'+' if ns > 0 else '-'}{format_time(abs(ns))}"


def _ratio(before: float, after: float) -> str:
    return percent(after - before, abs(before))
