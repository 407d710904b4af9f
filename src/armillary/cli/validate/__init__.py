"""`armillary validate`: predictions compared with measurements, and reproduced studies."""

from __future__ import annotations

import click

from armillary.cli import COMMANDS
from armillary.cli.command import DefaultGroup

SUBCOMMANDS = {"reproduce": "Reproduce published studies, with a verdict on each claim."}
"""Command name -> one-line help; the module is the name."""


@click.group(
    cls=DefaultGroup, help=COMMANDS["validate"], modules=__name__, table=SUBCOMMANDS, default="predict"
)
def command() -> None:
    """Group what says whether to believe the simulator; without a command it predicts measurements."""
