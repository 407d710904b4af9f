"""`armillary generate list`: the built-in models."""

from __future__ import annotations

from pathlib import Path

import click

from armillary.cli.command import Command
from armillary.cli.generate import SUBCOMMANDS
from armillary.cli.options import json_option
from armillary.cli.outputs import show_table, write_json

_NUMBERS = ("parameters", "layers", "hidden", "heads")


@click.command(
    cls=Command,
    help=SUBCOMMANDS["list"],
    examples=("armillary generate list", "armillary generate list --json models.json"),
)
@json_option()
def command(json_file: Path | None) -> None:
    """Print a line for each preset."""
    from armillary.workload.models import facts, load_model, preset_names

    found = {name: facts(load_model(name)) for name in preset_names()}
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, expand=True)
    table.add_column("name", no_wrap=True)
    table.add_column("kind", no_wrap=True)
    for column in _NUMBERS:
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("source", no_wrap=True, overflow="ellipsis", ratio=1)
    for name, each in found.items():
        # "-" for what a kind of model does not have.
        numbers = [f"{each[key]:,}" if each[key] else "-" for key in _NUMBERS]
        table.add_row(name, each["kind"], *numbers, _short(each["source"][0]))
    show_table(table)
    write_json(json_file, [{"name": name} | each for name, each in found.items()])


def _short(source: str) -> str:
    """Return an address without what all have."""
    return source.removeprefix("https://").removesuffix("/blob/main/config.json")
