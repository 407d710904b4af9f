"""A comparison as tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.base.units import format_time
from armillary.explore.compare.comparison import Comparison
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
            table.add_row(plain_name(key), *(plain_name(_short(value)) for value in values))
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


def headline(found: Comparison) -> str:
    """Return "B takes 195.2 ms less than A: 1.2 s instead of 1.395 s (-14.0 %)"."""
    total = found.terms.total
    if len(found.sides) > 2:
        return f"{len(found.sides)} runs, compared with the first"
    before, after = total.ns
    if before == after:
        return f"Both take {format_time(before)}"
    way = "less" if after < before else "more"
    text = f"B takes {format_time(abs(total.change))} {way} than A"
    return f"{text}: {format_time(after)} instead of {format_time(before)} ({_percent(total.change, before)})"


def side_names(found: Comparison) -> list[str]:
    """Return A, B, …."""
    return [chr(65 + i) if i < 26 else f"{i + 1}" for i in range(len(found.sides))]


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
            cells += [_signed(term.change), _percent(term.change, found.terms.total.ns[0])]
        table.add_row(plain_name(term.name), *cells)
    if whole:
        total = found.terms.total
        table.add_section()
        cells = [format_time(ns) for ns in total.ns]
        if two:
            cells += [_signed(total.change), _percent(total.change, total.ns[0])]
        table.add_row(total.name, *cells)
        if not two:
            table.add_row("to A", *(_percent(ns - total.ns[0], total.ns[0]) for ns in total.ns))
    return table


def _signed(ns: float) -> str:
    if not ns:
        return "0"
    return f"{'+' if ns > 0 else '-'}{format_time(abs(ns))}"


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:+.1f} %" if whole else "-"


def _ratio(before: float, after: float) -> str:
    return _percent(after - before, abs(before))


def _short(value: object, length: int = 28) -> str:
    text = value if isinstance(value, str) else repr(value)
    # As YAML writes them, since they come from study files.
    text = {"None": "null", "True": "true", "False": "false"}.get(text, text)
    return text if len(text) <= length else f"{text[: length - 1]}…"


def short_side(name: str) -> str:
    """Return the last part of a path."""
    return Path(name).name
