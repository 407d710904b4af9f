"""`armillary trace dump`: nodes as JSON, one per line."""

from __future__ import annotations

import json

import click

from armillary.base.text import json_text
from armillary.cli.command import Command
from armillary.cli.trace import SUBCOMMANDS, files_argument


@click.command(
    cls=Command,
    help=SUBCOMMANDS["dump"],
    examples=("armillary trace dump step.0.et", "armillary trace dump step.0.et step.1.et | jq .name"),
)
@files_argument
def command(files: tuple[str, ...]) -> None:
    """Print nodes as JSON, one per line, after a line for each file."""
    from armillary.trace import node_at, read_graph
    from armillary.trace.json_layout import node_to_dict, plain

    for file in files:
        # One line per file, then one per node, so that tools can read a stream.
        graph = read_graph(file)
        metadata = [[name, kind, plain(value)] for name, kind, value in graph.metadata]
        click.echo(json.dumps({"file": file, "version": graph.version, "metadata": metadata}))
        for position in range(graph.n_nodes):
            click.echo(json_text(node_to_dict(node_at(graph, position))))
