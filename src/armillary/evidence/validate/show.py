"""Validations for the terminal."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from armillary.evidence.validate.accuracy import (
    NEAR,
    Accuracy,
    Verdict,
    accuracy,
    by_group,
    is_refused,
    reasons,
    verdict,
    verdicts,
)
from armillary.evidence.validate.run import Skipped
from armillary.evidence.validate.table import Bar, Row, Suite, Table

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table as Grid
    from rich.text import Text

STYLES: dict[Verdict, str] = {"met": "green", "missed": "red", "shown": "dim"}
# Groups and reasons shown; more would scroll past.
_MOST = 20
# Columns of the terminal for a number of rows.
_NARROW = 8


def shown(
    tables: Sequence[Table], skipped: Iterable[Skipped] = (), *, rows: bool = False
) -> Iterator[RenderableType]:
    """Yield a line per table, then the groups and notes of each, with `rows` each of its rows; and what was skipped."""
    if tables:
        yield _summary(tables)
    for table in tables:
        yield ""
        yield from _details(table, rows)
    yield ""
    why: dict[str, list[str]] = defaultdict(list)
    for one in skipped:
        why[one.reason].append(one.suite.name)
    yield from (_text(f"skipped {', '.join(names)}: {reason}") for reason, names in why.items())
    counts = verdicts(tables)
    yield ", ".join(
        [*(f"{counts[name]} {name}" for name in STYLES), f"{sum(map(len, why.values()))} skipped"]
    )


def listed(suites: Iterable[Suite]) -> Grid:
    """Return what can be run, what it reads, and how its files are known."""
    out = _grid("validation", "what it reads", left=2)
    for suite in suites:
        text = _text(f"{suite.title}\n{suite.needs or 'published numbers'}")
        if suite.columns:
            text.append(f"\ncolumns: {', '.join(suite.columns)}", style="dim")
        out.add_row(_text(suite.name), text)
    return out


def bar_texts(bar: Bar | None) -> list[str]:
    """Return what a table must reach, in a line each."""
    if bar is None:
        # Nothing to reach: the table is shown.
        return []
    # One decimal only where it is needed.
    out = [f"≤ {bar.mean:.0%}" if round(bar.mean * 100, 6).is_integer() else f"≤ {bar.mean:.1%}"]
    out += [f"worst ≤ {bar.worst:.0%}"] if bar.worst is not None else []
    out += [f"rank ≥ {bar.rank:g}"] if bar.rank is not None else []
    return [text.replace("%", " %") for text in out]


def percent(value: float, sign: str = "") -> str:
    """Return a ratio for people; ``sign="+"`` writes its sign."""
    return "-" if math.isnan(value) else f"{100 * value:{sign},.1f} %"


def quantity(value: float, unit: str) -> str:
    """Return a measured or predicted value with its unit, 4 significant digits."""
    return "-" if not math.isfinite(value) else f"{float(f'{value:.4g}'):,.10g} {unit}".rstrip()


def _summary(tables: Iterable[Table]) -> Grid:
    out = _grid("table", "relation", "rows", "mean", "worst", "median", "rank", "bar", "verdict", left=2)
    for table in tables:
        _line(out, table.name, table)
        for part in table.parts:
            _line(out, f"  {part.name}", part)
    return out


def _line(out: Grid, name: str, table: Table) -> None:
    found = accuracy(table.rows)
    decided = verdict(table)
    rows = f"{found.rows:,} of {len(table.rows):,}" if found.refused else f"{found.rows:,}"
    # Two lines rather than a wider column.
    rows = rows if len(rows) <= _NARROW else rows.replace(" of ", " of\n")
    out.add_row(
        _text(name), table.relation, rows, *_errors(found), _rank(found),
        _text("\n".join(bar_texts(table.bar)) or "-"), _text(decided, STYLES[decided]),
    )  # fmt: skip


def _errors(found: Accuracy) -> tuple[str, str, str]:
    return percent(found.mean), percent(found.worst), percent(found.median)


def _rank(found: Accuracy) -> str:
    return "-" if math.isnan(found.rank) else f"{found.rank:.3f}"


def _details(table: Table, rows: bool) -> Iterator[RenderableType]:
    title = _text(table.name, "bold").append(f": {table.title}", style="not bold")
    yield title.append(f" ({table.source})", style="dim not bold")
    found = accuracy(table.rows)
    yield _groups(by_group(table.rows), found)
    if not math.isnan(found.held):
        yield f"{percent(found.held)} of the measurements lie in the stated intervals"
    if why := reasons(table.rows):
        # Most frequent reasons first.
        yield f"{found.refused:,} of {len(table.rows):,} rows refused:"
        yield from (_text(f"  {count:,}  {reason}") for reason, count in why.most_common(_MOST))
        if len(why) > _MOST:
            yield _text(f"  ({len(why) - _MOST} more reasons)", "dim")
    yield from (_text(f"* {note}") for note in table.notes)
    if rows:
        yield _rows(table)


def _groups(groups: dict[str, Accuracy], total: Accuracy) -> Grid:
    """Show the groups as they come; of many those that are worst."""
    out = _grid(
        "group", "rows", "refused", "mean", "worst", "median", "bias", f"within {NEAR:.0%}".replace("%", " %")
    )
    # NaN last: groups without a prediction.
    worst_first = sorted(groups, key=lambda name: (math.isnan(groups[name].mean), -groups[name].mean))
    chosen = list(groups) if len(groups) <= _MOST else worst_first[:_MOST]
    lines = [(name or "-", groups[name]) for name in chosen] if len(groups) > 1 else []
    for name, found in [*lines, ("all", total)]:
        out.add_row(
            _text(name), f"{found.rows:,}", f"{found.refused:,}", *_errors(found),
            percent(found.bias, "+"), percent(found.within),
        )  # fmt: skip
    if more := len(groups) - len(chosen):
        out.add_row(_text(f"({more} more)", "dim"))
    return out


def _rows(table: Table) -> Grid:
    """Show every row, the worst first and what is refused last."""
    out = _grid("row", "group", "measured", "predicted", "interval", "error", left=2)
    # inf last: refused rows have no error.
    for row in sorted(table.rows, key=lambda row: -abs(row.error) if not is_refused(row) else math.inf):
        refused = is_refused(row)
        out.add_row(
            _text(row.label), _text(row.group), quantity(row.measured, table.unit),
            "refused" if refused else quantity(row.predicted, table.unit), interval(row, table.unit),
            "-" if refused else percent(row.error, "+"),
        )  # fmt: skip
    return out


def interval(row: Row, unit: str) -> str:
    """Return the interval that a prediction states; ``""``: none."""
    return f"{quantity(row.low, '')} … {quantity(row.high, unit)}" if row.low <= row.high else ""


def _grid(*names: str, left: int = 1) -> Grid:
    from rich.table import Table as Grid

    out = Grid(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for number, name in enumerate(names):
        out.add_column(name, justify="left" if number < left else "right", overflow="fold")
    return out


def _text(text: str, style: str = "") -> Text:
    """Return `text` as it is: names of files hold brackets, which are no markup."""
    from rich.text import Text

    return Text(text, style=style)
