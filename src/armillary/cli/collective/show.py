"""`armillary collective show`: the steps of an algorithm."""

from __future__ import annotations

import sys

import click

from armillary.cli.collective import SUBCOMMANDS
from armillary.cli.command import Command, option
from armillary.cli.options import ranks_option


@click.command(
    cls=Command,
    help=f"{SUBCOMMANDS['show']}\n\nALGORITHM is ring, direct, halvingDoubling, doubleBinaryTree or in-switch.",
    examples=(
        "armillary collective show ring --ranks 4",
        "armillary collective show in-switch --ranks 4 --segments 3",
    ),
)
@click.argument("algorithm", metavar="ALGORITHM")
@ranks_option("Number of members.", required=True)
@option("--operation", default="all-reduce", show_default=True, metavar="NAME", help="What it computes.")
@option("--window", type=int, metavar="W", help="Messages in flight (direct only).  [default: no limit]")
@option(
    "--segments",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    metavar="S",
    help="Parts of the data (in-switch only).",
)
def command(algorithm: str, ranks: int, operation: str, window: int | None, segments: int) -> None:
    """Print the table."""
    import shutil

    width = shutil.get_terminal_size((100, 24)).columns
    if algorithm == "in-switch":
        from armillary.collective.show_switches import render as render_switches

        click.echo(render_switches(operation, ranks, segments, width=width), nl=False)
        return
    from armillary.base.errors import InputError, nearest, one_of
    from armillary.engine.astra_sim.collective.algorithms import ALGORITHMS, schedule_for
    from armillary.engine.astra_sim.collective.show import render

    if algorithm not in ALGORITHMS:
        known = (*ALGORITHMS, "in-switch")
        raise InputError(
            f"unknown collective algorithm '{algorithm}': expected {one_of(known)}{nearest(algorithm, known)}"
        )
    schedule = schedule_for(algorithm, operation, ranks, window=window)
    click.echo(render(schedule, width=width, markup=sys.stdout.isatty()), nl=False)
