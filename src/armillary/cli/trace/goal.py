"""`armillary trace goal`: a trace as a GOAL schedule, for LogGOPSim and ATLAHS."""

from __future__ import annotations

from pathlib import Path

import click

from armillary.cli.command import Command, option
from armillary.cli.options import machine_option
from armillary.cli.outputs import say, working
from armillary.cli.trace import SUBCOMMANDS
from armillary.cli.values import OUTPUT


@click.command(
    cls=Command,
    help=f"{SUBCOMMANDS['goal']}\n\nTRACE is the prefix of files TRACE.<rank>.et. GOAL has only sends, receives and "
    "computations: the machine provides the times of computations and the messages of collectives. Its links are "
    "not in the schedule. What GOAL cannot express is named on standard error.",
    examples=(
        "armillary trace goal step --machine dgx-h100 -o step.goal",
        "armillary trace goal step --machine machine.yaml -o step.bin",
    ),
)
@click.argument("trace", type=click.Path(), metavar="TRACE")
@machine_option("Machine on which the trace runs.", required=True)
@option(
    "-o", "--out", type=OUTPUT, required=True, metavar="FILE",
    help="A .goal file for text, or a .bin file as txt2bin would write it.",
)  # fmt: skip
@option(
    "--loggops", default="", metavar="NAME=N,…",
    help="Parameters of LogGOPSim's model, in ns and bytes: L=500,G=0.02.  [default: its own]",
)  # fmt: skip
def command(trace: str, machine: str, out: Path, loggops: str) -> None:
    """Write the schedule, and say what LogGOPSim's model makes of it."""
    from armillary.base.units import format_count
    from armillary.convert.goal.from_trace import schedule_of
    from armillary.convert.goal.loggops import Model, simulate, told
    from armillary.convert.goal.write import check_suffix, write_schedule
    from armillary.platform.files.native import load_platform
    from armillary.trace import load_trace

    check_suffix(out)
    model = Model.of(loggops)
    with working("scheduling"):
        found = schedule_of(load_trace(trace), load_platform(machine))
        # Before it is written: a schedule that never ends is none.
        outcome = simulate(found.ranks, model, trace)
        write_schedule(out, found.ranks)
    for warning in found.warnings:
        say(f"warning: {warning}", err=True)
    click.echo(told(model, outcome), err=True)
    count = sum(map(len, found.ranks))
    say(f"wrote {out}: {len(found.ranks)} ranks, {format_count(count)} operations", err=True)
