"""`armillary plan search FILE`: find the best points of a sweep file without simulating all of them."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from armillary.base.text import unfiltered
from armillary.cli.command import Command, option
from armillary.cli.options import (
    csv_option,
    json_option,
    programs_option,
    seed_option,
    top_option,
    workers_option,
)
from armillary.cli.outputs import say, show_table
from armillary.cli.plan import SUBCOMMANDS
from armillary.cli.values import STORE

if TYPE_CHECKING:
    from armillary.explore.search.found import Found
    from armillary.explore.sweep import Sweep
    from armillary.explore.sweep.schema import Method

_FILE = click.Path(path_type=Path)


_HOW = "How it searches"


@click.command(
    cls=Command,
    help=f"{SUBCOMMANDS['search']}\n\nThe planner bounds every point and simulates only those that might still win; "
    "the result is the same as simulating all of them. The other methods examine only some points.",
    examples=(
        "armillary plan search sweep.yaml --top 3",
        "armillary plan search sweep.yaml --method tpe --trials 50 --json found.json",
    ),
)
@click.argument("file", type=_FILE, metavar="SWEEP")
@option(
    "--method",
    type=click.Choice(("planner", "tpe", "nsga2", "random")),
    heading=_HOW,
    help="Search method; by default planner, which is exact.",
)
@option(
    "--trials",
    type=click.IntRange(1),
    metavar="N",
    heading=_HOW,
    help="Number of points to examine; by default 100.",
)
@seed_option(heading=_HOW)
@workers_option("Points to simulate at a time.", heading=_HOW)
@option("--store", type=STORE, metavar="FILE", help="Keep simulated results in a sweep store.")
@top_option("Points", 5, heading="What it shows")
@csv_option
@json_option("Write the results as JSON, in base units.")
@programs_option
def command(
    file: Path,
    method: Method | None,
    trials: int | None,
    seed: int | None,
    workers: int,
    store: Path | None,
    top: int,
    csv: Path | None,
    json_file: Path | None,
) -> None:
    """Search and report."""
    from armillary.base.files import write_text
    from armillary.explore.search.run import as_csv, as_json, search
    from armillary.explore.sweep import load_sweep

    sweep = load_sweep(file)
    found = search(
        # The method None is the planner.
        sweep,
        method=method,
        trials=trials,
        seed=seed,
        store=store,
        workers=workers,
        progress=Progress(),
    )
    _present(found, sweep, top)
    for path, text in ((csv, as_csv), (json_file, as_json)):
        if path:
            write_text(path, text(found))
            say(f"wrote {path}", err=True)


class Progress:
    """Shows the progress of a search on a terminal, a few times a second."""

    def __init__(self) -> None:
        self.last = 0.0

    def __call__(self, what: str, done: int, of: int) -> None:
        """Show how much of what is done."""
        # A few times a second, on a terminal only.
        if sys.stderr.isatty() and time.monotonic() - self.last > 0.3:
            self.last = time.monotonic()
            # \r overwrites the line; blanks clear what was longer.
            click.echo(f"\r{what} {done:,} of {of:,}   ", file=unfiltered(sys.stderr), nl=False)


def _present(found: Found, sweep: Sweep, top: int) -> None:
    from armillary.explore.search.sampled import objective_names
    from armillary.explore.views import ranked

    looked = len(found.rows)
    say(
        f"{found.method}: {objective_names(found.objectives)}; {found.points:,} points, "
        f"{looked:,} looked at, {found.simulated:,} simulated"
    )
    click.echo(_proof(found))
    click.echo()
    show_table(ranked(found.rows, sweep, top))


def _proof(found: Found) -> str:
    # Nothing ran that could be better.
    if found.exact:
        return "Nothing better exists: no other point can beat this." if found.best else "That is proved."
    if found.gap is None:
        return "How much better another point might be is not known."
    return f"Gap to the bound: no point can be better by more than {100 * found.gap:.3g} %."
