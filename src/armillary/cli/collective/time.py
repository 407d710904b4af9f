"""`armillary collective time`: the time of a collective according to a fit."""

from __future__ import annotations

import click

from armillary.cli.collective import SUBCOMMANDS, bytes_of
from armillary.cli.command import Command
from armillary.cli.outputs import say
from armillary.cli.values import complete_fits

_HELP = f"""{SUBCOMMANDS["time"]}

The collective runs alone on the machine, and a fit times it. FIT is a known machine (h100-sxm, a100-ndv4, b200-sxm,
...) or a file of `armillary calibrate nccl`. SIZE is the size of the larger buffer, as nccl-tests count it: the output
of an all-gather, the input of a reduce-scatter.
"""


@click.command(
    cls=Command,
    help=_HELP,
    examples=(
        "armillary collective time h100-sxm all-reduce 1MiB 1GiB --gpus-per-node 8",
        "armillary collective time h100-sxm all-gather 64MiB --gpus-per-node 8 --nodes 4",
    ),
)
@click.argument("fit", metavar="FIT", shell_complete=complete_fits)
@click.argument("operation", metavar="OPERATION")
@click.argument("sizes", metavar="SIZE…", nargs=-1, required=True)
@click.option(
    "--gpus-per-node", type=click.IntRange(min=1), required=True, metavar="N", help="Members per node."
)
@click.option(
    "--nodes", type=click.IntRange(min=1), default=1, show_default=True, metavar="N", help="Number of nodes."
)
def command(fit: str, operation: str, sizes: tuple[str, ...], gpus_per_node: int, nodes: int) -> None:
    """Ask the fit and print."""
    from rich.table import Table

    from armillary.base.errors import InputError, nearest, one_of
    from armillary.base.units import format_bandwidth, format_bytes, format_time
    from armillary.cli.outputs import show_table
    from armillary.collective.fitted import load_fit
    from armillary.collective.fitted.model import SUBSTITUTES
    from armillary.collective.fitted.regimes import share

    known = load_fit(fit)
    if operation not in SUBSTITUTES:
        raise InputError(
            f"operation: got '{operation}', expected {one_of(SUBSTITUTES)}{nearest(operation, SUBSTITUTES)}"
        )
    # One GPU has nobody to send to.
    if gpus_per_node * nodes < 2:
        raise InputError("--gpus-per-node: got 1 on 1 node, expected at least 2 GPUs in all")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("size", "time", "latency", "transfer", "bus bandwidth", "by"):
        table.add_column(name, justify="left" if name == "by" else "right")
    for text in sizes:
        size = bytes_of("SIZE", text)
        found = known.time(operation, gpus_per_node, nodes, size)
        # The fit knows operations, but not over so many nodes.
        if found is None:
            measured = ", ".join(sorted({*known.inside, *known.between}))
            raise InputError(f"{fit}: does not know {operation} over {nodes} nodes, only {measured}")
        # As nccl-tests define it.
        bus = size * share(operation, gpus_per_node * nodes) / found.total_ns
        times = (format_time(ns) for ns in (found.total_ns, found.latency_ns, found.transfer_ns))
        table.add_row(format_bytes(size), *times, format_bandwidth(bus), found.regime)
    show_table(table)
    for note in known.notes:
        say(f"{known.name}: {note}")
