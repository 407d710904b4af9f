"""`armillary validate`, without a command: predictions compared with measurements of real machines."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from armillary.base.text import console
from armillary.cli import COMMANDS
from armillary.cli.command import Command, option
from armillary.cli.options import html_option, json_option, plot_option
from armillary.cli.outputs import say, show_table
from armillary.cli.validate import SUBCOMMANDS
from armillary.cli.values import PAGE

if TYPE_CHECKING:
    from armillary.evidence.validate.run import Told

_HELP = f"""{COMMANDS["validate"]}

NAMES are validations, or patterns of them ('vtrain-*'). Without NAMES, every validation with available measurements
runs: published measurements are always available, others come from the folder of measurements.
"""
_FILE = click.Path(path_type=Path)


@click.command(
    cls=Command,
    help=_HELP,
    examples=(
        "armillary validate 'megatron-*' --html validation.html",
        "armillary validate --data measured.csv --json predicted.json",
    ),
    beside=SUBCOMMANDS,
)
@click.argument("names", nargs=-1, metavar="[NAMES]...")
@option("--list", "only_list", is_flag=True, help="List the validations and the columns of their files.")
@option(
    "--data", type=_FILE, multiple=True, metavar="FILE",
    help="Measurements to predict instead (.csv, .csv.gz, .json, .md, .jsonl), or a folder of runs. Their columns "
    "determine their kind.",
)  # fmt: skip
@option(
    "--measured", type=_FILE, metavar="DIR",
    help="Folder of measurements; by default ../shared/measured, if it exists.",
)  # fmt: skip
@option("--rows", is_flag=True, help="Show every row, worst first.")
@json_option("Write everything as JSON.")
@html_option("Write one interactive page.", PAGE)
@plot_option("predicted over measured")
@option("--check", is_flag=True, help="Exit with 1 if a validation misses its bar.")
def command(
    names: tuple[str, ...],
    only_list: bool,
    data: tuple[Path, ...],
    measured: Path | None,
    rows: bool,
    check: bool,
    json_file: Path | None,
    html: Path | None,
    plot: Path | None,
) -> None:
    """Run, print and write."""
    from armillary.evidence.validate import run, show
    from armillary.evidence.validate.accuracy import verdicts
    from armillary.evidence.validate.suites import chosen, suites

    # Before anything is read: listing needs no measurements.
    if only_list:
        show_table(show.listed(chosen(names, suites())))
        return
    # Either a user's own files or the folder of measured data.
    if data and measured:
        raise click.UsageError("--data says what is measured, so --measured has no use")
    jobs, skipped = run.plan(names, data, measured)
    # Bars on a terminal only.
    with _bars() as tell:
        tables = run.run(jobs, tell)
    for part in show.shown(tables, skipped, rows=rows):
        show_table(part)
    if json_file:
        from armillary.evidence.validate.saved import write_json

        write_json(tables, json_file, skipped)
    if html:
        from armillary.evidence.validate.page import write_html

        write_html(tables, html, skipped)
    if plot:
        from armillary.evidence.validate.picture import picture

        picture(tables, plot)
    for path in filter(None, (json_file, html, plot)):
        say(f"wrote {path}", err=True)
    # Only with --check: a table that is missed is no error by itself.
    if check and verdicts(tables)["missed"]:
        click.get_current_context().exit(1)


@contextmanager
def _bars() -> Iterator[Told | None]:
    """Show the progress of each validation on a terminal; nothing in a pipe."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console(sys.stderr), transient=True) as bars:
        # Bars appear as suites begin, and stay.
        tasks = {}

        def tell(name: str, done: int, of: int) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name)
            bars.update(tasks[name], completed=done, total=of)

        yield tell
