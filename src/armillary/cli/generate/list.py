"""`armillary generate list`: the models that are built in."""

from __future__ import annotations

import json

import click

from armillary.cli.generate import SUBCOMMANDS
from armillary.cli.outputs import show_table

_NUMBERS = ("parameters", "layers", "hidden", "heads")


@click.command(help=SUBCOMMANDS["list"])
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool) -> None:
    """Print a line for each preset."""
    from armillary.workload.models import facts, load_model, preset_names

    found = {name: facts(load_model(name)) for name in preset_names()}
    if as_json:
        click.echo(json.dumps([{"name": name} | each for name, each in found.items()], indent=1))
        return
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, expand=True)
    table.add_column("name", no_wrap=True)
    table.add_column("kind", no_wrap=True)
    for column in _NUMBERS:
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("source", no_wrap=True, overflow="ellipsis", ratio=1)
    for name, each in found.items():
        numbers = [f"{each[key]:,}" if each[key] else "-" for key in _NUMBERS]
        table.add_row(name, each["kind"], *numbers, _short(each["source"][0]))
    show_table(table)


def _short(source: str) -> str:
    """Return an address without what all have."""
    return source.removeprefix("https://").removesuffix("/blob/main/config.json")
