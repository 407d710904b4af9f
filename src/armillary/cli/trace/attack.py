"""`armillary trace attack`: show what a trace reveals about its model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from armillary.cli.command import Command
from armillary.cli.options import json_option
from armillary.cli.outputs import show_table, working, write_json
from armillary.cli.trace import SUBCOMMANDS

_HELP = f"""{SUBCOMMANDS["attack"]}

INPUT is the prefix of the files PREFIX.<rank>.et of all ranks, or a file. The attack is a set of rules on GEMMs,
repeated kernels, sizes of collectives and groups; it needs no other trace. `armillary trace privacy` measures attacks
that learn.
"""


@click.command(
    cls=Command,
    help=_HELP,
    examples=("armillary trace attack step", "armillary trace attack step.0.et --json -"),
)
@click.argument("source", type=click.Path(), metavar="INPUT")
@json_option()
def command(source: str, json_file: Path | None) -> None:
    """Attack and print."""
    from armillary.lab.privacy.rules import attack
    from armillary.lab.privacy.show import guesses_table
    from armillary.trace.inputs import read_input

    with working("attacking"):
        guesses = attack(read_input(source).trace)
    show_table(guesses_table(guesses))
    rows: list[dict[str, Any]] = [vars(guess) for guess in guesses]
    write_json(json_file, rows)
