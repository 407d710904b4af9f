"""`armillary calibrate`: one module for each kind of measurements, loaded when it is called."""

from __future__ import annotations

import click

from armillary.cli import COMMANDS
from armillary.cli.command import LazyGroup

SUBCOMMANDS = {
    "gemm": "Fit a device's kernel constants to measured GEMMs.",
    "keys": "Print the fitted constants of a training software as study keys.",
    "nccl": "Fit the collectives of a machine to nccl-tests logs.",
    "observe": "Build a machine file from measurements of a cluster.",
    "training": "Fit the constants of the training-step model to measured steps.",
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
