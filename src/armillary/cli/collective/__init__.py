"""`armillary collective`: one module for each command about collectives, loaded when it is called."""

from __future__ import annotations

import click

from armillary.cli import COMMANDS
from armillary.cli.command import LazyGroup

SUBCOMMANDS = {
    "show": "Show the steps of an algorithm as a table of chunks and members.",
    "schedule": "Compare chunk schedulers on a machine with several dimensions.",
    "time": "Time a collective on a measured machine.",
    "exchange": "Compare all-to-alls of tokens for experts with each other and with a bound.",
    "synthesize": "Find a collective algorithm for a network, and compare it with the built-in ones.",
}
"""Command name -> one-line help; the module is the name."""


def bytes_of(name: str, text: str) -> int:
    """Return the size of a collective that an option or argument gives.

    Raises:
        InputError: it is no size, or less than a byte.
    """
    from armillary.base.errors import InputError
    from armillary.base.units import parse_bytes

    try:
        size = parse_bytes(text)
    except ValueError as error:
        raise InputError(f"{name}: {error}") from error
    if size < 1:
        raise InputError(f"{name}: got {text!r}, expected at least 1 byte")
    return size


@click.group(cls=LazyGroup, help=COMMANDS["collective"], modules=__name__, table=SUBCOMMANDS)
def command() -> None:
    """Group the commands about collectives."""
