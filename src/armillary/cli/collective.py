"""`armillary collective`: the steps of an algorithm."""

from __future__ import annotations

import sys

import click

from armillary.cli import COMMANDS


@click.group(help=COMMANDS["collective"])
def command() -> None:
    """Group the commands about collectives."""


@command.command()
@click.argument("algorithm", metavar="ALGORITHM")
@click.option("-n", "members", type=int, required=True, metavar="N", help="Number of members.")
@click.option(
    "--operation", default="all-reduce", show_default=True, metavar="NAME", help="What it computes."
)
@click.option(
    "--window", type=int, metavar="W", help="Messages in flight (direct only).  [default: no limit]"
)
def show(algorithm: str, members: int, operation: str, window: int | None) -> None:
    """Print the chunk-flow table of ring, direct, halvingDoubling or doubleBinaryTree."""
    import shutil

    from armillary.collective.algorithms import schedule_for
    from armillary.collective.show import render

    schedule = schedule_for(algorithm, operation, members, window=window)
    width = shutil.get_terminal_size((100, 24)).columns
    click.echo(render(schedule, width=width, markup=sys.stdout.isatty()), nl=False)
