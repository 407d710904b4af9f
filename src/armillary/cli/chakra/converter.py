"""`armillary chakra converter`: the flags of chakra_converter."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from armillary.cli.chakra import SUBCOMMANDS
from armillary.cli.outputs import say, working
from armillary.cli.values import OUTPUT, OutputPrefix

if TYPE_CHECKING:
    from armillary.convert import Converted

_FILE = click.Path(path_type=Path)


@click.group(help=SUBCOMMANDS["converter"])
@click.option("--log-filename", metavar="FILE", help="No effect: no log is written.")
def command(log_filename: str | None) -> None:
    """Group the input formats."""


@command.command("PyTorch")
@click.option(
    "--input", "source", type=_FILE, required=True, metavar="JSON", help="A joined trace, or a host trace."
)
@click.option("--output", type=OUTPUT, required=True, metavar="ET", help="The Chakra trace to write.")
@click.option("--simulate", is_flag=True, help="Also print how long the dependencies alone take.")
def pytorch(source: Path, output: Path, simulate: bool) -> None:
    """Convert the output of trace_link to one file."""
    from armillary.base.units import format_time
    from armillary.convert import front_end
    from armillary.report.trace_timeline import as_soon_as_possible
    from armillary.trace import write_graph

    with working("converting"):
        converted = front_end("pytorch").convert([source])
        graph = converted.trace.graph(0)
        write_graph(output, graph)
    _warn(converted)
    say(f"wrote {output}: {graph.n_nodes:,} nodes", err=True)
    if simulate:
        times = as_soon_as_possible(graph)
        say(f"as soon as dependencies allow: {format_time(int(times.end.max(initial=0)))}")


@command.command("Text")
@click.option(
    "--input", "source", type=_FILE, required=True, metavar="TXT", help="A text workload of ASTRA-sim 1.0."
)
@click.option(
    "--output", type=OutputPrefix(".0.et"), required=True, metavar="PREFIX", help="Write PREFIX.<rank>.et."
)
@click.option("--num-npus", type=click.IntRange(min=1), required=True, metavar="N", help="Number of ranks.")
@click.option(
    "--num-passes", type=click.IntRange(min=1), required=True, metavar="N", help="Training iterations."
)
def text(source: Path, output: str, num_npus: int, num_passes: int) -> None:
    """Convert a text workload to one file per rank."""
    from armillary.convert import front_end
    from armillary.trace import write_trace

    with working("converting"):
        # That program's text workloads count in µs.
        converted = front_end("text").convert([source], npus=num_npus, passes=num_passes, time_unit="us")
        write_trace(output, converted.trace)
    _warn(converted)
    say(f"wrote {output}.<rank>.et: {converted.trace.n_ranks} ranks", err=True)


def _warn(converted: Converted) -> None:
    for warning in converted.warnings:
        say(f"warning: {warning}", err=True)
