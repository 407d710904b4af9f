"""`armillary machine`: machine descriptions as they are understood, and the known systems."""

from __future__ import annotations

import click

from armillary.cli import COMMANDS
from armillary.cli.command import LazyGroup

SUBCOMMANDS = {
    "list": "List the presets: known systems that stand wherever a platform file does.",
    "show": "Print the machine of a study file, a preset, or ASTRA-sim's files.",
    "compare": "Say which of several machines trains a model fastest, for how much, and how surely.",
    "convert": "Write the network of a machine as a study, an InfraGraph, GraphML or ASTRA-sim's file.",
    "gemm": "Time GEMMs by the compute model of a machine.",
}
"""Command name -> one-line help; the module is the name."""


@click.group(cls=LazyGroup, help=COMMANDS["machine"], modules=__name__, table=SUBCOMMANDS)
def command() -> None:
    """Group the commands about machines."""
