"""`armillary search`: find the best points of a sweep file without simulating all of them."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from armillary.base.terminal import unfiltered
from armillary.cli import COMMANDS
from armillary.cli.output_file import OUTPUT, STORE
from armillary.cli.outputs import show_table

if TYPE_CHECKING:
    from armillary.explore.search.found import Found
    from armillary.explore.sweep import Sweep
    from armillary.explore.sweep.schema import Method

_FILE = click.Path(path_type=Path)


@click.command(
    help=f"{COMMANDS['search']}\n\nThe planner bounds every point and simulates only those that might still win: its "
    "result is that of simulating all. The other methods look at some points only."
)
@click.argument("file", type=_FILE, metavar="SWEEP")
@click.option(
    "--method", type=click.Choice(("planner", "tpe", "nsga2", "random")), help="By default planner: exact."
)
@click.option("--trials", type=click.IntRange(1), metavar="N", help="Points to look at; by default 100.")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), metavar="N", help="Of what is random.")
@click.option(
    "--workers", type=click.IntRange(1), default=1, show_default=True, metavar="N", help="Points at a time."
)
@click.option("--store", type=STORE, metavar="FILE", help="Keep what is simulated in a store of sweeps.")
@click.option(
    "--top", type=click.IntRange(1), default=5, show_default=True, metavar="N", help="Points to show."
)
@click.option("--csv", type=OUTPUT, metavar="FILE", help="Write all rows as a table, in base units.")
@click.option("--json", type=OUTPUT, metavar="FILE", help="Write what was found as JSON, in base units.")
def command(
    file: Path,
    method: Method | None,
    trials: int | None,
    seed: int | None,
    workers: int,
    store: Path | None,
    top: int,
    csv: Path | None,
    json: Path | None,
) -> None:
    """Search and report."""
    from armillary.base.files import write_text
    from armillary.explore.search.run import as_csv, as_json, search
    from armillary.explore.sweep import load_sweep

    sweep = load_sweep(file)
    found = search(
        sweep, method=method, trials=trials, seed=seed, store=store, workers=workers, progress=_Progress()
    )
    _present(found, sweep, top)
    for path, text in ((csv, as_csv), (json, as_json)):
        if path:
            write_text(path, text(found))
            click.echo(f"wrote {path}", err=True)


class _Progress:
    """Tells on a terminal, a few times a second, how far a search is."""

    def __init__(self) -> None:
        self.last = 0.0

    def __call__(self, what: str, done: int, of: int) -> None:
        if sys.stderr.isatty() and time.monotonic() - self.last > 0.3:
            self.last = time.monotonic()
            click.echo(f"\r{what} {done:,} of {of:,}   ", file=unfiltered(sys.stderr), nl=False)


def _present(found: Found, sweep: Sweep, top: int) -> None:
    from armillary.explore.search.sampled import objective_names
    from armillary.explore.views import ranked

    looked = len(found.rows)
    click.echo(
        f"{found.method}: {objective_names(found.objectives)}; {found.points:,} points, "
        f"{looked:,} looked at, {found.simulated:,} simulated"
    )
    click.echo(_proof(found))
    click.echo()
    show_table(ranked(found.rows, sweep, top))


def _proof(found: Found) -> str:
    if found.exact:
        return "Nothing better exists: no other point can beat this." if found.best else "That is proved."
    if found.gap is None:
        return "How much better another point might be is not known."
    return f"Gap to the bound: no point can be better by more than {100 * found.gap:.3g} %."
