"""`armillary calibrate`: one module for each kind of measurements, loaded when it is called."""

from __future__ import annotations

import click

from armillary.cli import COMMANDS
from armillary.cli.command import LazyGroup

SUBCOMMANDS = {
    "gemm": "Fit a device's kernel constants to measured GEMMs.",
    "keys": "Print the fitted constants of a training software as keys of a study.",
    "nccl": "Fit a machine's collectives to logs of nccl-tests.",
    "observe": "Make a machine file of what was measured on a cluster.",
    "training": "Fit the constants of training steps to measured ones.",
}
"""Command name -> one-line help; the module is the name."""


@click.group(
    cls=LazyGroup,
    help=COMMANDS["calibrate"],
    modules=__name__,
    table=SUBCOMMANDS,
)
def command() -> None:
    """Group the commands by what is measured."""
