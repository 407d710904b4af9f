"""`armillary collective show`: the steps of an algorithm."""

from __future__ import annotations

import sys

import click


@click.command()
@click.argument("algorithm", metavar="ALGORITHM")
@click.option("-n", "members", type=int, required=True, metavar="N", help="Number of members.")
@click.option(
    "--operation", default="all-reduce", show_default=True, metavar="NAME", help="What it computes."
)
@click.option(
    "--window", type=int, metavar="W", help="Messages in flight (direct only).  [default: no limit]"
)
@click.option(
    "--segments",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    metavar="S",
    help="Parts of the data (in-switch only).",
)
def command(algorithm: str, members: int, operation: str, window: int | None, segments: int) -> None:
    """Print the chunk-flow table of ring, direct, halvingDoubling, doubleBinaryTree or in-switch."""
    import shutil

    width = shutil.get_terminal_size((100, 24)).columns
    if algorithm == "in-switch":
        from armillary.collective.show_switches import render as render_switches

        click.echo(render_switches(operation, members, segments, width=width), nl=False)
        return
    from armillary.base.errors import InputError, nearest, one_of
    from armillary.engine.astra_sim.collective.algorithms import ALGORITHMS, schedule_for
    from armillary.engine.astra_sim.collective.show import render

    if algorithm not in ALGORITHMS:
        known = (*ALGORITHMS, "in-switch")
        raise InputError(
            f"unknown collective algorithm '{algorithm}': expected {one_of(known)}{nearest(algorithm, known)}"
        )
    schedule = schedule_for(algorithm, operation, members, window=window)
    click.echo(render(schedule, width=width, markup=sys.stdout.isatty()), nl=False)
