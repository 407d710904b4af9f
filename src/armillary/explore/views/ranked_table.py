"""The best points of a sweep as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from armillary.base.text import on_one_line
from armillary.explore.sweep.point import Row
from armillary.explore.views.assumed import assumed_line
from armillary.explore.views.columns import Columns, columns_of, measure_text, title_of
from armillary.explore.views.reasons import reason_classes, status_line
from armillary.report.plain import plain_name, plain_table

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

WIDTH = 100
_BAR = 8
_REASONS = 5
_SHOWN = (
    "step_time",
    "tokens_per_second",
    "mfu",
    "npus",
    "memory",
    "cost_per_token",
    "run_time",
    "run_cost",
    "samples_per_second",
    "communication",
)
"""Measures to show beside the objectives if there is room, by importance."""


def ranked(rows: Sequence[Row], sweep: Any, top: int = 10, width: int = WIDTH) -> Group:
    """Return a table of the best points, and counts of the points that are not ok by reason, for a terminal or a pipe.

    Args:
        rows: In any order.
        sweep: See `columns_of`.
        top: How many points.
        width: Characters of a line; measures for which there is no room are left out.
    """
    from rich.console import Group
    from rich.text import Text

    columns = columns_of(rows, sweep)
    parts: list[Any] = []
    if len(columns.order):
        shown = columns.order[:top].tolist()
        table, alike = _best(columns, shown, width)
        # First of all: without a constraint on memory the best point may be one that cannot run.
        if tight := sum(map(columns.lacks_memory, shown)):
            some = "The point" if len(shown) == 1 else f"{tight:,} of the {len(shown):,} points"
            what = f"{some} below {'does' if tight == 1 else 'do'} not fit into the memory of an NPU"
            parts.append(Text(f"{what} (`where: [memory fits]` leaves such points out)", "bold red"))
        if (assumed := columns.measures.get("assumed_nodes")) is not None and (assumed[shown] > 0).any():
            parts.append(
                Text("Assumed: nodes without a recorded time take that of the roofline, or none", "yellow")
            )
        if roofline := assumed_line(columns.rows[row] for row in shown):
            parts.append(Text(roofline, "yellow"))
        parts += [Text(_title(columns, len(shown)), "bold"), table]
        if alike:
            parts.append(Text(on_one_line(f"All of these: {', '.join(alike)}"), "dim"))
        parts.append(Text())
    return Group(*parts, Text(status_line(rows), "bold"), why_not(rows))


def why_not(rows: Sequence[Row]) -> Group:
    """Return the reasons why points are not ok, with the number of points for each."""
    from rich.console import Group
    from rich.text import Text

    parts: list[Any] = []
    if reasons := reason_classes(rows):
        parts.append(_reasons(reasons[:_REASONS]))
        if (more := len(reasons) - _REASONS) > 0:
            parts.append(Text(f"and {more:,} more reason{'s' * (more > 1)}", "dim"))
    return Group(*parts)


def _title(columns: Columns, shown: int) -> str:
    goals = [f"{'least' if each.better == 'less' else 'most'} {each.title}" for each in columns.objectives]
    best = "Best point" if shown == 1 else f"Best {shown} of {len(columns.order):,} points"
    if len(goals) == 1:
        return f"{best}: {goals[0]}"
    return f"{best}: {int((columns.pareto == 0).sum()):,} on the Pareto front of {', '.join(goals)}"


def _best(columns: Columns, shown: list[int], width: int) -> tuple[Table, list[str]]:
    """Return the table, and as texts the values left out of it because all of its points share them."""
    from rich.text import Text

    leading = {"#": [f"{place}" for place in range(1, len(shown) + 1)]}
    if len(columns.objectives) > 1:
        leading["front"] = [f"{columns.pareto[row] + 1}" for row in shown]
    if any(map(columns.lacks_memory, shown)):
        leading["fits"] = _texts(columns, "fits", shown)
    values = {
        columns.axes[axis].name: [columns.value(row, axis) for row in shown]
        for axis in range(len(columns.axes))
    }
    goals = [each.name for each in columns.objectives]
    measured = {title_of(name): _texts(columns, name, shown) for name in goals}
    # What all points share leaves the table: always where nothing else is possible, and if room
    # is short also where the shown points happen to agree.
    fixed = {axis.name for axis in columns.axes if len(axis.values) < 2}
    room = width - _BAR - 2 - sum(_width(item) for part in (leading, measured) for item in part.items())
    if sum(_width(item) for item in values.items() if item[0] not in fixed) > room:
        fixed |= {name for name, texts in values.items() if len(set(texts)) == 1}
    alike = [f"{name} {values.pop(name)[0]}" for name in list(values) if name in fixed]
    room -= sum(map(_width, values.items()))
    # Behind the first objective, whose length the bar shows.
    bar_at = len(leading) + len(values) + 1
    # Greedy by importance: a wide column is skipped, a narrower one after it may still fit.
    for name in _SHOWN:
        item = title_of(name), _texts(columns, name, shown) if name in columns.measures else []
        if item[1] and name not in goals and _width(item) <= room:
            measured[item[0]] = item[1]
            room -= _width(item)
    every = leading | values | measured
    titles = list(every)
    table = plain_table(*titles[:bar_at], "", *titles[bar_at:])
    table.columns[bar_at].justify = "left"
    lengths = [abs(float(columns.measures[goals[0]][row])) for row in shown]
    for texts, length in zip(zip(*every.values(), strict=True), lengths, strict=True):
        bar = Text("█" * max(round(_BAR * length / (max(lengths) or 1.0)), 1), "blue")
        table.add_row(*map(plain_name, texts[:bar_at]), bar, *map(plain_name, texts[bar_at:]))
    return table, alike


def _texts(columns: Columns, name: str, shown: list[int]) -> list[str]:
    return [measure_text(name, float(columns.measures[name][row])) for row in shown]


def _width(column: tuple[str, list[str]]) -> int:
    return max(len(column[0]), *map(len, column[1])) + 2


def _reasons(reasons: Sequence[Any]) -> Table:
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for one in reasons:
        table.add_row(f"{len(one.rows):,}", one.status, plain_name(one.text))
    return table
