"""`armillary sweep`: the points of a sweep file, and their stored results."""

from __future__ import annotations

import click

from armillary.cli import COMMANDS
from armillary.cli.command import DefaultGroup

SUBCOMMANDS = {"results": "Show the results of a sweep, even while it runs."}
"""Command name -> one-line help; the module is the name."""


@click.group(
    cls=DefaultGroup, help=COMMANDS["sweep"], modules=__name__, table=SUBCOMMANDS, default="evaluate"
)
def command() -> None:
    """Group what is done with sweeps; FILE alone evaluates it."""
