"""`armillary chakra jsonizer`: the flags of chakra_jsonizer."""

from __future__ import annotations

from pathlib import Path

import click

from armillary.cli.chakra import SUBCOMMANDS
from armillary.cli.outputs import say, working
from armillary.cli.values import OUTPUT

_FILE = click.Path(path_type=Path)


@click.command(help=SUBCOMMANDS["jsonizer"])
@click.option("--input_filename", type=_FILE, required=True, metavar="ET", help="The trace.")
@click.option(
    "--output_filename", type=OUTPUT, required=True, metavar="JSON", help="Write one valid JSON document."
)
def command(input_filename: Path, output_filename: Path) -> None:
    """Write the JSON."""
    from armillary.trace import read_graph
    from armillary.trace.json_layout import write_json

    with working("converting"):
        graph = read_graph(input_filename)
        write_json(output_filename, graph)
    say(f"wrote {output_filename}: {graph.n_nodes:,} nodes", err=True)
