"""`armillary machine`: machine descriptions as Armillary reads them, and the known systems."""

from __future__ import annotations

import click

from armillary.cli import COMMANDS
from armillary.cli.command import LazyGroup

SUBCOMMANDS = {
    "list": "List the presets: known systems that can replace a platform file.",
    "show": "Print the machine of a study file, a preset, or ASTRA-sim's files.",
    "compare": "Find which of several machines trains a model fastest, at what cost, and how certain that is.",
    "convert": "Write the network of a machine as a study, InfraGraph, GraphML or ASTRA-sim file.",
    "gemm": "Time GEMMs with the compute model of a machine.",
}
"""Command name -> one-line help; the module is the name."""


@click.group(cls=LazyGroup, help=COMMANDS["machine"], modules=__name__, table=SUBCOMMANDS)
def command() -> None:
    """Group the commands about machines."""
