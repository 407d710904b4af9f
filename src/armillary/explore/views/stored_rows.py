"""The rows of a store for views, also while a run is filling it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from armillary.base.errors import InputError
from armillary.base.hints import show
from armillary.base.text import csv_text as table_text
from armillary.explore.runner.stored import Stored
from armillary.explore.sweep.constraint import known_names, objective
from armillary.explore.sweep.expression import Expression
from armillary.explore.sweep.point import Row
from armillary.explore.sweep.quantity import number_of
from armillary.explore.views.columns import Columns, Objective, axis_of, columns_of

_DEFAULT = "minimize step_time"


def stored_columns(path: str | Path) -> Columns:
    """Return the rows of the last sweep of a store with its axes and objectives; those done so far.

    Raises:
        InputError: there is no such store, or nothing in it.
    """
    with Stored(path) as store:
        rows, document = store.rows(), store.document()
    if not rows:
        raise InputError(f"{path}: no point is done yet")
    # Values of `let` follow from others: as axes they would only repeat these.
    given = document.get("let")
    computed = {str(key).rpartition(".")[2] for key in given} if isinstance(given, dict) else set()
    names = dict.fromkeys(name for row in rows for name in row.values if name not in computed)
    wanted = document.get("objectives") or [_DEFAULT]
    if not isinstance(wanted, list) or not all(isinstance(text, str) for text in wanted):
        raise InputError(f"{path}: objectives: got {show(wanted)}, expected a list of texts")
    goals = [objective(text) for text in wanted]
    return Columns(
        tuple(axis_of(name, (), rows) for name in names),
        tuple(Objective(goal.name, "less" if goal.goal == "minimize" else "more") for goal in goals),
        tuple(rows),
        str(path),
    )


def chosen(rows: Sequence[Row], where: str) -> list[Row]:
    """Return the rows for which an expression of values and measures holds; those that lack one are left out.

    Raises:
        InputError: it is malformed, or names what no row has.
    """
    expression = Expression(where)
    expression.check_names(known_names(frozenset(name for row in rows for name in row.values)))
    kept = []
    for row in rows:
        names = {name: number_of(value) for name, value in row.values.items()} | dict(row.measures)
        # A rejected row lacks measures; that is no error of the expression.
        if all(names.get(name) is not None for name in expression.names) and expression.value(names):
            kept.append(row)
    return kept


def csv_text(rows: Sequence[Row], sweep: Any) -> str:
    """Return number, values, status, reason and measures (base units) of every row; see `columns_of`."""
    columns = columns_of(rows, sweep)
    axes = [axis.name for axis in columns.axes]
    lines = []
    for row in columns.rows:
        values = [row.values.get(name) for name in axes]
        found = [row.measures.get(name) for name in columns.measures]
        lines.append([row.number, *values, row.status, row.reason, *found])
    header = ["number", *axes, "status", "reason", *columns.measures]
    return table_text(header, lines)
