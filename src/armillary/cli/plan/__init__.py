"""`armillary plan`: which plan or point is best, how to spend bandwidth, and what a step or a whole run costs."""

from __future__ import annotations

import click

from armillary.cli import COMMANDS
from armillary.cli.command import DefaultGroup

SUBCOMMANDS = {
    "serve": "Find the replicas that serve a load within an objective on the fewest devices.",
    "machine": "Find the machine within a budget of dollars and watts that does most of a mix of workloads.",
    "search": "Find the best points of a sweep file without simulating all of them.",
    "cost": "Say what a machine and a simulated step cost: price, energy, per token.",
    "allocate": "Spend a budget of bandwidth on the dimensions of a network.",
    "whole-run": "Say how long a whole training run takes, with failures and checkpoints.",
}
"""Command name -> one-line help; the module is the name with underscores."""


# The default command: MODEL alone is planned.
@click.group(cls=DefaultGroup, help=COMMANDS["plan"], modules=__name__, table=SUBCOMMANDS, default="best")
def command() -> None:
    """Group what is asked before a machine is bought or a run is started; MODEL alone is planned."""
