"""`armillary trace graph`: draw the dependencies."""

from __future__ import annotations

from pathlib import Path

import click

from armillary.cli.command import Command, option
from armillary.cli.outputs import say, working
from armillary.cli.trace import SUBCOMMANDS
from armillary.cli.values import OutputFile

DRAWING = OutputFile("armillary.report.trace_graph:check_trace_graph")


@click.command(
    cls=Command,
    help=f"{SUBCOMMANDS['graph']}\n\nThe suffix of the file selects the format: .dot and .graphml for other "
    "programs (no layout is computed), .html for an interactive page, .svg, .pdf or .png for a picture.",
    examples=("armillary trace graph step.0.et -o step.svg", "armillary trace graph step.0.et -o step.dot"),
)
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@option("-o", "--out", type=DRAWING, required=True, metavar="FILE", help="The file to write.")
@click.option(
    "--collapse",
    metavar="HOW",
    help="How to group nodes: auto, none, chains, calls, names or lanes. [default: none for .dot and .graphml, else "
    "auto]",
)
@click.option(
    "--max-nodes", type=click.IntRange(min=1), default=2000, show_default=True, metavar="N",
    help="Draw every node of a graph with up to N nodes; of a larger graph, draw at most N/5 boxes. A page has groups "
    "that open instead.",
)  # fmt: skip
def command(file: Path, out: Path, collapse: str | None, max_nodes: int) -> None:
    """Draw and write."""
    draw(file, out, collapse, max_nodes)


def draw(file: Path, output: Path, collapse: str | None = None, max_nodes: int = 2000) -> None:
    """Draw a trace file to `output`."""
    from armillary.report.trace_graph import write_trace_graph
    from armillary.trace import read_graph

    with working("drawing"):
        graph = read_graph(file)
        drawn = write_trace_graph(graph, output, collapse, max_nodes)
    # Dependencies on nodes that are not in the file cannot be drawn.
    if graph.dangling:
        say(f"warning: {len(graph.dangling)} dependencies on absent nodes are left out", err=True)
    say(f"wrote {output}: {drawn}", err=True)
