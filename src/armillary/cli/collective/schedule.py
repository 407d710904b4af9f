"""`armillary collective schedule`: how far each chunk scheduler is from the optimum."""

from __future__ import annotations

import click

from armillary.cli.collective import SUBCOMMANDS, bytes_of
from armillary.cli.command import Command
from armillary.cli.options import machine_argument
from armillary.cli.outputs import say

_HELP = f"""{SUBCOMMANDS["schedule"]}

One collective of all NPUs runs alone on the machine. MACHINE is a study or platform file, or the name of a preset; its
own workload is not run. No order of any chunks beats the bound, so a scheduler is at most as far from the optimum as it
is from the bound.
"""


@click.command(
    cls=Command,
    help=_HELP,
    examples=(
        'armillary collective schedule machine.yaml --size "1 GB"',
        'armillary collective schedule machine.yaml --size "1 GB" --operation all-gather --chunks 16',
    ),
)
@machine_argument()
@click.option("--size", required=True, metavar="SIZE", help="Size of the collective per NPU: '1 GB'.")
@click.option(
    "--operation", default="all-reduce", show_default=True, metavar="NAME", help="Collective operation."
)
@click.option(
    "--chunks", type=click.IntRange(min=1), metavar="N", help="Number of chunks; overrides MACHINE."
)
@click.option(
    "--within-dimension",
    type=click.Choice(("earliest-phase", "fifo", "smallest-first")),
    help="Which chunk a dimension serves first; overrides MACHINE.",
)
def command(
    machine: str, size: str, operation: str, chunks: int | None, within_dimension: str | None
) -> None:
    """Compare and print."""
    from dataclasses import replace

    from rich.table import Table

    from armillary.base.units import format_bytes, format_time
    from armillary.cli.outputs import show_table, working
    from armillary.explore import chunk_schedules
    from armillary.platform.files.native import load_platform

    count = bytes_of("--size", size)
    platform = load_platform(machine)
    # None keeps what the machine says.
    keys = replace(platform.collectives, chunks=chunks or platform.collectives.chunks)
    if within_dimension:
        keys = replace(keys, within_dimension=within_dimension)  # type: ignore[arg-type]
    platform = replace(platform, collectives=keys)
    with working("scheduling"):
        found = chunk_schedules.compare(platform, operation, count)
        bound = chunk_schedules.bound(platform, operation, count)
        # The orders of online-greedy are known only after a run.
        known = [how for how in found if how != "online-greedy"]
        best = chunk_schedules.under(platform, min(known, key=lambda how: found[how].time))
        orders = chunk_schedules.orders(best, operation, count)
    # Over the schedulers that ran, as "over the best" compares.
    least = min(each.time for each in found.values())
    say(
        f"{operation} of {format_bytes(count)}, {platform.npus} NPUs, {keys.chunks} chunks, "
        f"{keys.within_dimension}; no order beats {format_time(bound)}"
    )
    click.echo()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, name in enumerate(("scheduler", "time", "bandwidth used", "over the bound", "over the best")):
        table.add_column(name, justify="right" if number else "left")
    for how, each in found.items():
        # A bound of 0 (no bandwidth needed) must not divide.
        over = (each.time / max(bound, 1) - 1, each.time / least - 1)
        table.add_row(how, format_time(each.time), f"{each.used:.1%}", *(f"{part:.1%}" for part in over))
    show_table(table)
    click.echo()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, name in enumerate((f"order of {best.collectives.chunk_order}", "chunks", "bytes")):
        table.add_column(name, justify="right" if number else "left")
    for name, times, moved in orders:
        table.add_row(name, str(times), format_bytes(moved))
    show_table(table)
