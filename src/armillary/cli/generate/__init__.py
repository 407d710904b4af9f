"""`armillary generate`: one module for each command about generated workloads, loaded when it is called."""

from __future__ import annotations

import click

from armillary.cli import COMMANDS
from armillary.cli.command import LazyGroup

SUBCOMMANDS = {
    "list": "List the built-in models.",
    "show": "Count the parameters and operations of a model.",
    "train": "Generate training steps of a model on many ranks.",
    "serve": "Generate inference of a model on many ranks.",
    "memory": "Sum up the memory that training or inference needs.",
    "micro": "Sweep collectives and messages over sizes, like nccl-tests.",
    "learn": "Learn from traces: sample new ones, and measure their quality.",
}
"""Command name -> one-line help; the module is the name with underscores."""


@click.group(cls=LazyGroup, help=COMMANDS["generate"], modules=__name__, table=SUBCOMMANDS)
def command() -> None:
    """Group the commands about generated workloads."""
