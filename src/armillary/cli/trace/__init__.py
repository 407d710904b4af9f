"""`armillary trace`: one module for each command about execution traces, loaded when it is called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from armillary.cli import COMMANDS
from armillary.cli.command import LazyGroup

SUBCOMMANDS = {
    "info": "Count what is in trace files (.et, plain, gzip or zstd, or .json).",
    "dump": "Print nodes as JSON, one a line, after a line for each file.",
    "check": "Look for what would stop or falsify a simulation; exit code 2 if there is an error.",
    "stats": "Sizes, times and operators of trace files, in a table.",
    "diff": "Say how two traces differ.",
    "slice": "Cut a part out of a trace.",
    "extrapolate": "From a trace to that of more ranks, other batches and lengths, other hardware.",
    "json": "Write a trace as valid JSON.",
    "graph": "Draw the dependencies: DOT, GraphML or HTML.",
    "timeline": "Write a timeline for ui.perfetto.dev.",
    "goal": "Write a trace as a GOAL schedule, for LogGOPSim and ATLAHS.",
    "replay": "Execute a Chakra trace on this hardware, measured against simulated.",
    "link": "Join a PyTorch host trace and a device trace.",
    "obfuscate": "Hide what a trace says about its model, and keep how it runs.",
    "attack": "Say what a trace gives away: hidden size, layers, parallelism.",
    "privacy": "Measure what obfuscation hides from attacks, on many training runs.",
    "collect": "Run a PyTorch script on all ranks, here, and collect its traces.",
    "convert": "Turn another format into Chakra traces PREFIX.<rank>.et.",
}
"""Command name -> one-line help; the module is the name with underscores."""

files_argument: Callable[[Any], Any] = click.argument(
    "files", type=click.Path(), nargs=-1, required=True, metavar="FILE..."
)


@click.group(cls=LazyGroup, help=COMMANDS["trace"], modules=__name__, table=SUBCOMMANDS)
def command() -> None:
    """Group the commands about traces."""
