"""`armillary sweep results`: the contents of a sweep store, even during a run."""

from __future__ import annotations

from pathlib import Path

import click

from armillary.cli.command import Command
from armillary.cli.options import csv_option, html_option, plot_option, top_option
from armillary.cli.outputs import say, show_table
from armillary.cli.sweep import SUBCOMMANDS
from armillary.cli.values import PAGE

_FILE = click.Path(path_type=Path)


@click.command(
    cls=Command,
    help=f"{SUBCOMMANDS['results']}\n\nA running sweep may still be writing to the store: its results so far are "
    "shown.",
    examples=(
        "armillary sweep results sweep.sqlite --where 'tp <= 8'",
        "armillary sweep results sweep.sqlite --plot heat.png --chart heat --over tp pp",
    ),
)
@click.argument("store", type=_FILE, metavar="STORE.sqlite")
@top_option("Points", 10)
@click.option(
    "--where", metavar="EXPR", help="Show only points that satisfy EXPR, e.g. 'tp <= 8 and mfu > 0.4'."
)
@html_option("Write one interactive page.", PAGE)
@plot_option("the results")
@click.option(
    "--chart",
    default="all",
    show_default=True,
    help="Chart of --plot: all, heat, front, parallel, tornado or axes.",
)
@click.option("--over", nargs=2, metavar="X Y", help="Axes of the heat map of --plot.")
@csv_option
def command(
    store: Path,
    top: int,
    where: str | None,
    html: Path | None,
    plot: Path | None,
    chart: str,
    over: tuple[str, str] | None,
    csv: Path | None,
) -> None:
    """Read and show."""
    from armillary.base.errors import InputError
    from armillary.base.files import write_text
    from armillary.explore.views import picture, ranked, write_html
    from armillary.explore.views.stored_rows import chosen, csv_text, stored_columns

    columns = stored_columns(store)
    # Filtered rows; the columns stay those of the store.
    rows = chosen(columns.rows, where) if where else columns.rows
    if not rows:
        raise InputError(f"{store}: --where {where}: holds for none of {len(columns.rows):,} points")
    show_table(ranked(rows, columns, top))
    if plot:
        picture(rows, columns, plot, chart, over)
    if html:
        write_html(rows, columns, html)
    if csv:
        write_text(csv, csv_text(rows, columns))
    for path in filter(None, (plot, html, csv)):
        say(f"wrote {path}", err=True)
