"""`armillary compare`: the differences between runs."""

from __future__ import annotations

from pathlib import Path

import click

from armillary.cli import COMMANDS
from armillary.cli.command import Command
from armillary.cli.options import html_option, json_option, plot_option, programs_option, top_option
from armillary.cli.outputs import say, show_table, working, write_html, write_json

_HELP = f"""{COMMANDS["compare"]}

RUNS are study files, which are simulated, timelines that `armillary run --save` wrote (.npz), or points of a store that
`armillary sweep` filled (STORE.sqlite#NUMBER). More than two runs give one table of all.
"""


@click.command(
    cls=Command,
    help=_HELP,
    examples=(
        "armillary compare before.yaml after.yaml --plot waterfall.png",
        "armillary compare base.npz sweep.sqlite#3 sweep.sqlite#7 --json -",
    ),
)
@click.argument("runs", nargs=-1, required=True, metavar="RUNS...")
@top_option("Kernels and collectives", 10)
@plot_option("a waterfall")
@html_option()
@json_option()
@programs_option
def command(
    runs: tuple[str, ...], top: int, plot: Path | None, html: Path | None, json_file: Path | None
) -> None:
    """Compare and print."""
    from armillary.explore.compare import comparison
    from armillary.explore.compare.show import shown
    from armillary.explore.compare.sides import read_side

    # Checked here and not by nargs, whose message would not say why.
    if len(runs) < 2:
        raise click.UsageError("one run given, expected at least two")
    if plot and len(runs) > 2:
        # A waterfall leads from one run to another.
        raise click.UsageError(f"--plot shows two runs, {len(runs)} given")
    sides = []
    for run in runs:
        with working(f"reading {run}"):
            sides.append(read_side(run))
    found = comparison.compared(sides, top)
    show_table(shown(found))
    write_json(json_file, comparison.as_json(found))
    write_html(html, found)
    if plot:
        found.plot(plot)
        say(f"wrote {plot}", err=True)
