"""`armillary compare`: what sets runs apart."""

from __future__ import annotations

import json
from pathlib import Path

import click

from armillary.cli import COMMANDS
from armillary.cli.output_file import PICTURE
from armillary.cli.outputs import show_table, working

_HELP = f"""{COMMANDS["compare"]}

RUNS are study files, which are simulated, timelines that `armillary run --save` wrote (.npz), or points of a store that
`armillary sweep` filled (STORE.sqlite#NUMBER). With more than two there is one table of all.
"""


@click.command(help=_HELP)
@click.argument("runs", nargs=-1, required=True, metavar="RUNS...")
@click.option(
    "--top", default=10, show_default=True, type=click.IntRange(1), help="Kernels and collectives to show."
)
@click.option("--plot", type=PICTURE, metavar="FILE", help="Draw a waterfall (.png, .svg or .pdf).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
def command(runs: tuple[str, ...], top: int, plot: Path | None, as_json: bool) -> None:
    """Compare and print."""
    from armillary.explore.compare import comparison
    from armillary.explore.compare.show import shown
    from armillary.explore.compare.sides import read_side

    if len(runs) < 2:
        raise click.UsageError("one run given, expected at least two")
    if plot and len(runs) > 2:
        raise click.UsageError(f"--plot shows two runs, {len(runs)} given")
    sides = []
    for run in runs:
        with working(f"reading {run}"):
            sides.append(read_side(run))
    found = comparison.compared(sides, top)
    if as_json:
        click.echo(json.dumps(comparison.as_json(found), indent=1))
    else:
        show_table(shown(found))
    if plot:
        from armillary.explore.compare.waterfall import waterfall

        waterfall(found, plot)
        click.echo(f"wrote {plot}", err=True)
