"""`armillary generate`: one module for each command about generated workloads, loaded when it is called."""

from __future__ import annotations

import click

from armillary.cli import COMMANDS
from armillary.cli.command import LazyGroup

SUBCOMMANDS = {
    "list": "List the models that are built in.",
    "show": "Count the parameters and operations of a model.",
    "train": "Generate training steps of a model on many ranks.",
    "serve": "Generate inference of a model on many ranks.",
    "memory": "Sum up what training or inference holds in memory.",
    "micro": "Sweep collectives and messages over sizes, like nccl-tests.",
    "learn": "Learn from traces: make new ones, and measure how good they are.",
}
"""Command name -> one-line help; the module is the name with underscores."""


@click.group(cls=LazyGroup, help=COMMANDS["generate"], modules=__name__, table=SUBCOMMANDS)
def command() -> None:
    """Group the commands about generated workloads."""
