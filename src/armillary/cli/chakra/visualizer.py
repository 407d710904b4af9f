"""`armillary chakra visualizer`: the flags of chakra_visualizer."""

from __future__ import annotations

from pathlib import Path

import click

from armillary.cli.chakra import SUBCOMMANDS
from armillary.cli.trace.graph import DRAWING, draw

_FILE = click.Path(path_type=Path)


@click.command(help=SUBCOMMANDS["visualizer"])
@click.option("--input_filename", type=_FILE, required=True, metavar="ET", help="The trace.")
@click.option(
    "--output_filename",
    type=DRAWING,
    required=True,
    metavar="FILE",
    help="Write a .pdf, .dot or .graphml file; also .html, .svg, .png.",
)
def command(input_filename: Path, output_filename: Path) -> None:
    """Draw as `armillary trace graph` does."""
    draw(input_filename, output_filename)
