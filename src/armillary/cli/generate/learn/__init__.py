"""`armillary generate learn`: one module for each command about learned traces, loaded when it is called."""

from __future__ import annotations

import click

from armillary.cli.command import LazyGroup
from armillary.cli.generate import SUBCOMMANDS as _BESIDE

SUBCOMMANDS = {
    "corpus": "Build a corpus from traces, or from thousands of generated ones.",
    "train": "Fit the statistical model to a corpus.",
    "sample": "Sample new traces for a condition.",
    "show": "Show what a model has learned.",
    "evaluate": "Compare sampled traces with true ones that the corpus lacks.",
}
"""Command name -> one-line help; the module is the name with underscores."""


@click.group(cls=LazyGroup, help=_BESIDE["learn"], modules=__name__, table=SUBCOMMANDS)
def command() -> None:
    """Group the commands about learned traces."""
