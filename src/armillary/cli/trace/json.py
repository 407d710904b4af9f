"""`armillary trace json`: a trace as valid JSON, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from armillary.cli.command import Command, option
from armillary.cli.outputs import say, working
from armillary.cli.trace import SUBCOMMANDS
from armillary.cli.values import OUTPUT

_SUFFIXES: dict[str, Literal["gzip", "zstd"] | None] = {
    ".json": None,
    ".et": None,
    ".et.gz": "gzip",
    ".et.zst": "zstd",
}


@click.command(
    cls=Command,
    help=f"{SUBCOMMANDS['json']}\n\nWithout -o, the JSON goes to standard output. If the -o file ends in .et, "
    ".et.gz or .et.zst, FILE is converted back to a Chakra file.",
    examples=("armillary trace json step.0.et", "armillary trace json step.0.et -o step.json"),
)
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@option("-o", "--out", type=OUTPUT, metavar="FILE", help="The file to write.")
def command(file: Path, out: Path | None) -> None:
    """Convert between the two forms."""
    from armillary.trace import read_graph, write_graph
    from armillary.trace.json_layout import json_pieces, write_json

    if out is None:
        # Piece by piece: a trace may be larger than memory as JSON.
        for piece in json_pieces(read_graph(file)):
            click.echo(piece, nl=False)
        return
    compress = _compression(out)
    with working("converting"):
        graph = read_graph(file)
        if out.suffix == ".json":
            write_json(out, graph)
        else:
            write_graph(out, graph, compress)
    say(f"wrote {out}: {graph.n_nodes:,} nodes", err=True)


def _compression(out: Path) -> Literal["gzip", "zstd"] | None:
    from armillary.base.errors import InputError, one_of

    for suffix, how in _SUFFIXES.items():
        if out.name.endswith(suffix):
            return how
    raise InputError(f"--out {out}: suffix '{out.suffix}', expected {one_of(_SUFFIXES)}")
