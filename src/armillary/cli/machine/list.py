"""`armillary machine list`: the presets."""

from __future__ import annotations

from pathlib import Path

import click

from armillary.cli.command import Command
from armillary.cli.machine import SUBCOMMANDS
from armillary.cli.options import json_option
from armillary.cli.outputs import show_table, write_json


@click.command(
    cls=Command,
    help=SUBCOMMANDS["list"],
    examples=("armillary machine list", "armillary machine list --json presets.json"),
)
@json_option()
def command(json_file: Path | None) -> None:
    """Print a line for each preset."""
    from armillary.platform.files.preset_table import list_presets, presets_table

    rows = list_presets()
    show_table(presets_table(rows))
    write_json(json_file, rows)
