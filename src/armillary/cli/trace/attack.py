"""`armillary trace attack`: say what a trace gives away about its model."""

from __future__ import annotations

import json
from typing import Any

import click

from armillary.cli.outputs import show_table, working
from armillary.cli.trace import SUBCOMMANDS, as_json_option

_HELP = f"""{SUBCOMMANDS["attack"]}

INPUT is the prefix of the files PREFIX.<rank>.et of all ranks, or a file. Rules look at matrix products, repeated
kernels, sizes of collectives and groups; they need no other trace. `armillary trace privacy` measures attacks that
learn.
"""


@click.command(help=_HELP)
@click.argument("source", type=click.Path(), metavar="INPUT")
@as_json_option
def command(source: str, as_json: bool) -> None:
    """Attack and print."""
    from armillary.lab.privacy.rules import attack
    from armillary.lab.privacy.show import guesses_table
    from armillary.trace.inputs import read_input

    with working("attacking"):
        guesses = attack(read_input(source).trace)
    if as_json:
        rows: list[dict[str, Any]] = [vars(guess) for guess in guesses]
        click.echo(json.dumps(rows, indent=1, ensure_ascii=False))
    else:
        show_table(guesses_table(guesses))
