"""`armillary chakra generator`: the flags of chakra_generator."""

from __future__ import annotations

from pathlib import Path

import click

from armillary.cli.chakra import SUBCOMMANDS
from armillary.cli.outputs import say
from armillary.cli.values import OUTPUT_FOLDER

_COUNT = click.IntRange(min=0)


@click.command(help=SUBCOMMANDS["generator"])
@click.option(
    "--num_npus",
    type=click.IntRange(min=1),
    default=64,
    show_default=True,
    metavar="N",
    help="Number of ranks.",
)
@click.option(
    "--default_runtime",
    type=_COUNT,
    default=5,
    show_default=True,
    metavar="µs",
    help="Duration of compute nodes.",
)
@click.option(
    "--default_tensor_size", type=_COUNT, default=1024, show_default=True, metavar="BYTES",
    help="Size of memory nodes, sends and receives.",
)  # fmt: skip
@click.option(
    "--default_comm_size",
    type=_COUNT,
    default=65536,
    show_default=True,
    metavar="BYTES",
    help="Size of collectives.",
)
@click.option(
    "--output", type=OUTPUT_FOLDER, default=".", metavar="FOLDER",
    help="Folder for FAMILY.<rank>.et; by default the current folder.",
)  # fmt: skip
def command(
    num_npus: int, default_runtime: int, default_tensor_size: int, default_comm_size: int, output: Path
) -> None:
    """Write all families."""
    from armillary.trace import write_graph
    from armillary.workload.single_nodes import Sizes, families

    written = 0
    for name, graphs in families(num_npus, Sizes(default_runtime, default_tensor_size, default_comm_size)):
        for rank, graph in enumerate(graphs):
            write_graph(output / f"{name}.{rank}.et", graph)
        written += 1
    say(f"wrote {written} families of {num_npus} ranks to {output}", err=True)
