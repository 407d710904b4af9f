"""`armillary collective`: the steps of an algorithm, and how its chunks are scheduled."""

from __future__ import annotations

import sys

import click

from armillary.cli import COMMANDS


@click.group(help=COMMANDS["collective"])
def command() -> None:
    """Group the commands about collectives."""


@command.command()
@click.argument("algorithm", metavar="ALGORITHM")
@click.option("-n", "members", type=int, required=True, metavar="N", help="Number of members.")
@click.option(
    "--operation", default="all-reduce", show_default=True, metavar="NAME", help="What it computes."
)
@click.option(
    "--window", type=int, metavar="W", help="Messages in flight (direct only).  [default: no limit]"
)
@click.option(
    "--segments",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    metavar="S",
    help="Parts of the data (in-switch only).",
)
def show(algorithm: str, members: int, operation: str, window: int | None, segments: int) -> None:
    """Print the chunk-flow table of ring, direct, halvingDoubling, doubleBinaryTree or in-switch."""
    import shutil

    width = shutil.get_terminal_size((100, 24)).columns
    if algorithm == "in-switch":
        from armillary.collective.show_switches import render as render_switches

        click.echo(render_switches(operation, members, segments, width=width), nl=False)
        return
    from armillary.collective.algorithms import schedule_for
    from armillary.collective.show import render

    schedule = schedule_for(algorithm, operation, members, window=window)
    click.echo(render(schedule, width=width, markup=sys.stdout.isatty()), nl=False)


@command.command()
@click.argument("study", metavar="STUDY")
@click.option("--size", required=True, metavar="BYTES", help="Of the collective, per NPU: '1 GB'.")
@click.option(
    "--operation", default="all-reduce", show_default=True, metavar="NAME", help="What it computes."
)
@click.option("--chunks", type=click.IntRange(min=1), metavar="N", help="Instead of those of STUDY.")
@click.option(
    "--within-dimension",
    type=click.Choice(("earliest-phase", "fifo", "smallest-first")),
    help="Which chunk a dimension serves first, instead of what STUDY says.",
)
def schedule(study: str, size: str, operation: str, chunks: int | None, within_dimension: str | None) -> None:
    """Compare chunk schedulers for one collective of all NPUs, alone on the machine.

    STUDY is a study or platform file, or the name of a preset; its own workload is not run. The bound is what no
    order of any chunks beats; how far a scheduler is from it is how far at most it is from optimal.
    """
    from dataclasses import replace

    from rich.table import Table

    from armillary.cli.outputs import show_table, working
    from armillary.errors import InputError
    from armillary.platform.native import load_platform
    from armillary.study import chunk_schedules
    from armillary.units import format_bytes, format_time, parse_bytes

    try:
        count = parse_bytes(size)
    except ValueError as error:
        raise InputError(f"--size: {error}") from error
    if count < 1:
        raise InputError(f"--size: got {size!r}, expected at least 1 byte")
    platform = load_platform(study)
    physical = replace(platform.physical, chunks=chunks or platform.physical.chunks)
    if within_dimension:
        physical = replace(physical, within_dimension=within_dimension)  # type: ignore[arg-type]
    platform = replace(platform, physical=physical)
    with working("scheduling"):
        found = chunk_schedules.compare(platform, operation, count)
        bound = chunk_schedules.bound(platform, operation, count)
        # The orders of online-greedy are known after a run only.
        known = [how for how in found if how != "online-greedy"]
        best = chunk_schedules.under(platform, min(known, key=lambda how: found[how].time))
        orders = chunk_schedules.orders(best, operation, count)
    least = min(each.time for each in found.values())
    click.echo(
        f"{operation} of {format_bytes(count)}, {platform.npus} NPUs, {physical.chunks} chunks, "
        f"{physical.within_dimension}; no order beats {format_time(bound)}"
    )
    click.echo()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, name in enumerate(("scheduler", "time", "bandwidth used", "over the bound", "over the best")):
        table.add_column(name, justify="right" if number else "left")
    for how, each in found.items():
        over = (each.time / max(bound, 1) - 1, each.time / least - 1)
        table.add_row(how, format_time(each.time), f"{each.used:.1%}", *(f"{part:.1%}" for part in over))
    show_table(table)
    click.echo()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, name in enumerate((f"order of {best.physical.chunk_order}", "chunks", "bytes")):
        table.add_column(name, justify="right" if number else "left")
    for name, times, moved in orders:
        table.add_row(name, str(times), format_bytes(moved))
    show_table(table)
