"""`armillary reproduce`: one module for each published study, loaded when it is called."""

from __future__ import annotations

import click

from armillary.cli import COMMANDS
from armillary.cli.lazy import LazyGroup

SUBCOMMANDS = {
    "compute-scaling": "Compute and exposed communication on a torus of 2x4x4 as NPUs get faster.",
    "gemm-share": "Share of matrix products in a training step of Transformer and GNMT.",
    "switch-buffer": "Flat and hierarchical all-reduce over TCP, against the global switch's buffer.",
}
"""Command name -> one-line help; the module is the name with underscores."""


@click.group(cls=LazyGroup, help=COMMANDS["reproduce"], modules=__name__, table=SUBCOMMANDS)
def command() -> None:
    """Group the studies."""
