"""`armillary plan`: the best plan or point, the allocation of bandwidth, and the cost of a step or a whole run."""

from __future__ import annotations

import click

from armillary.cli import COMMANDS
from armillary.cli.command import DefaultGroup

SUBCOMMANDS = {
    "serve": "Find the replicas that meet an objective for a load on the fewest devices.",
    "machine": "Find the machine that does the most of a workload mix within a budget of dollars and watts.",
    "search": "Find the best points of a sweep file without simulating all of them.",
    "cost": "Estimate the cost of a machine and a simulated step: price, energy, cost per token.",
    "allocate": "Distribute a bandwidth budget over the dimensions of a network.",
    "whole-run": "Estimate the time of a whole training run, with failures and checkpoints.",
}
"""Command name -> one-line help; the module is the name with underscores."""


# The default command: MODEL alone is planned.
@click.group(cls=DefaultGroup, help=COMMANDS["plan"], modules=__name__, table=SUBCOMMANDS, default="best")
def command() -> None:
    """Group what is asked before a machine is bought or a run is started; MODEL alone is planned."""
