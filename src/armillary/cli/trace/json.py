"""`armillary trace json`: a trace as valid JSON, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from armillary.cli.output_file import OUTPUT
from armillary.cli.outputs import working
from armillary.cli.trace import SUBCOMMANDS

_SUFFIXES: dict[str, Literal["gzip", "zstd"] | None] = {
    ".json": None,
    ".et": None,
    ".et.gz": "gzip",
    ".et.zst": "zstd",
}


@click.command(
    help=f"{SUBCOMMANDS['json']}\n\nWithout -o the JSON goes to standard output. Where OUT ends in .et, .et.gz or "
    ".et.zst, FILE is turned into a Chakra file: the way back."
)
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@click.option("-o", "--output", type=OUTPUT, metavar="OUT", help="The file.")
def command(file: Path, output: Path | None) -> None:
    """Convert between the two forms."""
    from armillary.trace import read_graph, write_graph
    from armillary.trace.json_layout import json_pieces, write_json

    if output is None:
        for piece in json_pieces(read_graph(file)):
            click.echo(piece, nl=False)
        return
    compress = _compression(output)
    with working("converting"):
        graph = read_graph(file)
        if output.suffix == ".json":
            write_json(output, graph)
        else:
            write_graph(output, graph, compress)
    click.echo(f"wrote {output}: {graph.n_nodes:,} nodes", err=True)


def _compression(output: Path) -> Literal["gzip", "zstd"] | None:
    from armillary.base.errors import InputError, one_of

    for suffix, how in _SUFFIXES.items():
        if output.name.endswith(suffix):
            return how
    raise InputError(f"--output {output}: suffix '{output.suffix}', expected {one_of(_SUFFIXES)}")
