"""`armillary calibrate`: one module for each kind of measurements, loaded when it is called."""

from __future__ import annotations

from pathlib import Path

import click

from armillary.cli.lazy import LazyGroup

_ALL = {
    "gemm": "Fit a device's kernel constants to measured matrix products.",
    "nccl": "Fit a machine's collectives to logs of nccl-tests.",
    "training": "Fit the constants of training steps to measured ones.",
}
SUBCOMMANDS = {name: text for name, text in _ALL.items() if Path(__file__).with_name(f"{name}.py").exists()}
"""Command name -> one-line help; the module is the name."""


@click.group(
    cls=LazyGroup,
    help="Fit constants of models to measurements, your own too.",
    modules=__name__,
    table=SUBCOMMANDS,
)
def command() -> None:
    """Group the commands by what is measured."""
