"""`armillary sweep`: evaluate the points of a sweep file, and show the best."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from armillary.base.text import console
from armillary.cli import COMMANDS
from armillary.cli.command import Command, Ended, option
from armillary.cli.options import (
    OneOf,
    csv_option,
    html_option,
    json_option,
    plot_option,
    programs_option,
    top_option,
    workers_option,
)
from armillary.cli.outputs import say, show_table
from armillary.cli.sweep import SUBCOMMANDS
from armillary.cli.values import PAGE, STORE

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

    from armillary.explore.runner import Counts, Results
    from armillary.explore.runner.run import Progress
    from armillary.explore.sweep import Sweep

_FILE = click.Path(path_type=Path)
_RUN = "How it runs"


@click.command(
    cls=Command,
    help=f"{COMMANDS['sweep']}\n\nResults are kept in a store and reused: run the command again to resume a stopped "
    "sweep, or to evaluate only the new points of a changed one.",
    examples=(
        "armillary sweep sweep.yaml --store sweep.sqlite --workers 2",
        "armillary sweep sweep.yaml --dry-run",
    ),
    beside=SUBCOMMANDS,
)
@click.argument("file", type=_FILE, metavar="SWEEP")
@option(
    "--store", type=STORE, metavar="FILE", help="SQLite file; by default SWEEP.sqlite next to the sweep file."
)
@option(
    "--executor",
    default="processes",
    show_default=True,
    heading=_RUN,
    type=OneOf("armillary.explore.executor_names:EXECUTOR_NAMES"),
    help="Executor that runs the points.",
)
@workers_option("Points to evaluate at a time; by default one per core.", default=None, heading=_RUN)
@option("--retry", is_flag=True, heading=_RUN, help="Retry points that failed or exceeded a limit.")
@option(
    "--dry-run",
    is_flag=True,
    heading=_RUN,
    help="Only screen: count the points, and say why some are rejected.",
)
@top_option("Points", 10, 0, heading=_RUN)
@csv_option
@json_option("Write all rows as JSON.")
@html_option("Write one interactive page.", PAGE)
@plot_option("the results")
@programs_option
def command(
    file: Path,
    store: Path | None,
    executor: str,
    workers: int | None,
    top: int,
    retry: bool,
    dry_run: bool,
    json_file: Path | None,
    **outputs: Path | None,
) -> None:
    """Run a sweep and report."""
    from armillary.explore.runner import CutShortError, Results, Store, run
    from armillary.explore.sweep import load_sweep

    outputs |= {"json": json_file}
    wanted = {name: path for name, path in outputs.items() if path}
    # A dry run keeps nothing.
    if dry_run and (wanted or store or retry):
        raise click.UsageError("--dry-run writes nothing")
    sweep = load_sweep(file)
    sweep.space.check_size()
    if dry_run:
        _screen(sweep, executor, workers, top)
        return
    begun = time.monotonic()
    # Beside the sweep, so that the same command finds it again.
    place = store or file.with_suffix(".sqlite")
    with Store(place) as kept:
        try:
            with _bars() as tell:
                counts = run(
                    sweep,
                    sweep.space.points(),
                    kept,
                    executor=executor,
                    workers=workers,
                    progress=tell,
                    retry=retry,
                )
        except KeyboardInterrupt as stop:
            # What is done is in the store already: say how much, and how to go on.
            say(f"armillary: {Ended.words(stop)}: {kept.told(sweep.space.size)}", err=True)
            click.get_current_context().exit(Ended.status(stop))
        except CutShortError as error:
            raise CutShortError(f"{error}; {kept.told(sweep.space.size)}") from error
        # All rows of the sweep, also those of earlier runs.
        results = Results(sweep, tuple(kept.rows()))
    _present(results, counts, top, place, time.monotonic() - begun)
    for name, path in wanted.items():
        _write(results, name, path)
        say(f"wrote {path}", err=True)


def _write(results: Results, name: str, path: Path) -> None:
    if name == "csv":
        results.write_csv(path)
    elif name == "json":
        results.write_json(path)
    else:
        # Imported only where a page or a picture is written.
        from armillary.explore import views

        {"html": views.write_html, "plot": views.picture}[name](results.rows, results.sweep, path)


def _screen(sweep: Sweep, executor: str, workers: int | None, top: int) -> None:
    """Print how many points would be simulated, why others would not, and what of the first has no effect."""
    from armillary.explore.runner import screen
    from armillary.explore.runner.results import without_effect_at
    from armillary.explore.views import why_not

    rejected = []
    left, first = 0, list[int]()
    with _bars() as tell:
        for point, row in screen(
            sweep, sweep.space.points(), executor=executor, workers=workers, progress=tell
        ):
            # Screening says None for points that would be simulated.
            left += row is None
            if row is None and len(first) < top:
                first.append(point.number)
            rejected += [row] if row else []
    total = left + len(rejected)
    say(f"{total:,} points: {left:,} to simulate, {len(rejected):,} rejected")
    if rejected:
        show_table(why_not(rejected))
    for text, count in without_effect_at(sweep, first).items():
        say(f"warning: {text} ({count:,} of the first {len(first):,} points)", err=True)


def _present(results: Results, counts: Counts, top: int, place: Path, seconds: float) -> None:
    """Print the best points, and the status of the others."""
    from armillary.explore.views import ranked, why_not
    from armillary.explore.views.reasons import status_line

    rows = results.rows
    new = counts.status.total()
    # New results of this call, of all that the sweep has.
    say(f"{new:,} of {len(rows):,} points done now, in {seconds:.1f} s, kept in {place}")
    if top and any(row.status == "ok" for row in rows):
        click.echo()
        show_table(ranked(rows, results.sweep, top))
        for text, count in results.without_effect(top).items():
            say(
                f"warning: {text} ({count:,} of the {min(top, len(results.ranked)):,} points above)", err=True
            )
    else:
        # Nothing worked, or no table is wanted: say what became of the points.
        click.echo(status_line(rows))
        show_table(why_not(rows))


@contextmanager
def _bars() -> Iterator[Progress | None]:
    """Show the progress of a run and its remaining time on a terminal; nothing in a pipe."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[more]}"),
    )
    with Progress(*columns, console=console(sys.stderr), transient=True) as bars:
        yield _Told(bars)


class _Told:
    """Passes counts on to two bars."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        # total=None: the number of points may be known only later.
        self._screen = bars.add_task("screening", total=None, more="")
        self._simulate = bars.add_task("simulating", total=None, more="", start=False)

    def __call__(self, counts: Counts) -> None:
        self._bars.update(
            self._screen,
            total=counts.to_screen,
            completed=counts.screened + counts.known,
            more=f"{counts.known:,} known" if counts.known else "",
        )
        # Simulation begins once all points are screened.
        if counts.screened + counts.known >= counts.to_screen and counts.to_simulate:
            self._bars.start_task(self._simulate)
            some = ", ".join(f"{number:,} {name}" for name, number in sorted(counts.status.items()))
            self._bars.update(self._simulate, total=counts.to_simulate, completed=counts.simulated, more=some)
