"""`armillary trace timeline`: recorded times for ui.perfetto.dev."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from armillary.cli.command import Command, option
from armillary.cli.outputs import say, working
from armillary.cli.trace import SUBCOMMANDS
from armillary.cli.values import OUTPUT

if TYPE_CHECKING:
    from armillary.trace import Graph

# PREFIX.<rank>.et, with the suffixes of compressed files.
_RANK = re.compile(r"\.(\d+)\.(et|et\.gz|et\.zst|json)$")


@click.command(
    cls=Command,
    help=f"{SUBCOMMANDS['timeline']}\n\nIt shows what the trace records, not a simulation. A trace without start "
    "times is laid out by its dependencies. INPUT is a file, or the PREFIX of files PREFIX.<rank>.et.",
    examples=(
        "armillary trace timeline step -o step.timeline.json.gz",
        "armillary trace timeline step.0.et step.1.et -o two.json",
    ),
)
@click.argument("inputs", type=click.Path(path_type=Path), nargs=-1, required=True, metavar="INPUT...")
@option(
    "-o",
    "--out",
    type=OUTPUT,
    required=True,
    metavar="FILE",
    help="Output file, .json or .json.gz.",
)
def command(inputs: tuple[Path, ...], out: Path) -> None:
    """Write the timeline."""
    from armillary.base.units import format_time
    from armillary.report.trace_timeline import write_trace_timeline

    with working("reading"):
        shown = write_trace_timeline(_ranks(inputs), out)
    spans = []
    for name, times in shown:
        # A trace without start times is drawn by its dependencies, which is said.
        if not times.recorded:
            cycles = f"; {times.ignored} dependencies on cycles do not count" if times.ignored else ""
            say(f"warning: {name}: no start times are recorded{cycles}", err=True)
        spans.append(int(times.end.max() - times.start.min()) if len(times.end) else 0)
    nodes = sum(len(times.end) for _, times in shown)
    longest = format_time(max(spans, default=0))
    say(f"wrote {out}: {len(shown)} processes, {nodes:,} nodes, {longest}", err=True)


def _ranks(inputs: tuple[Path, ...]) -> list[tuple[int, Graph]]:
    """Return the graphs with their ranks: from the file's name, or the next one that is free."""
    from armillary.base.errors import InputError
    from armillary.trace import load_trace, read_graph

    found: dict[int, Graph] = {}
    for path in inputs:
        if path.is_file():
            match = _RANK.search(path.name)
            # The next rank that is free, so that files of one rank each can be put together.
            rank = int(match[1]) if match else max(found, default=-1) + 1
            read = [(rank, read_graph(path))]
        else:
            trace = load_trace(path)
            read = [(rank, trace.graph(rank)) for rank in range(trace.n_ranks)]
        # Two files of one rank cannot be drawn together.
        for rank, graph in read:
            if rank in found:
                raise InputError(
                    f"{graph.source}: rank {rank} is {found[rank].source} already, expected another rank"
                )
            found[rank] = graph
    return sorted(found.items())
