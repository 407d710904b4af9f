"""`armillary trace`: one module for each command about execution traces, loaded when it is called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from armillary.cli import COMMANDS
from armillary.cli.command import LazyGroup

SUBCOMMANDS = {
    "info": "Count the contents of trace files (.et, plain, gzip or zstd, or .json).",
    "dump": "Print nodes as JSON, one per line, after a line for each file.",
    "check": "Check for what would stop or falsify a simulation; exit code 2 on an error.",
    "stats": "Show sizes, times and operators of trace files in a table.",
    "diff": "Show how two traces differ.",
    "slice": "Cut out a part of a trace.",
    "extrapolate": "Extrapolate a trace to more ranks, other batches and lengths, or other hardware.",
    "json": "Write a trace as valid JSON.",
    "graph": "Draw the dependency graph: DOT, GraphML or HTML.",
    "timeline": "Write a timeline for ui.perfetto.dev.",
    "goal": "Write a trace as a GOAL schedule, for LogGOPSim and ATLAHS.",
    "replay": "Execute a Chakra trace on this hardware, and compare measured with simulated times.",
    "link": "Join a PyTorch host trace and a device trace.",
    "obfuscate": "Hide what a trace reveals about its model, but preserve how it runs.",
    "attack": "Show what a trace reveals: hidden size, layers, parallelism.",
    "privacy": "Measure what obfuscation hides from attacks, over many training runs.",
    "collect": "Run a PyTorch script on all ranks on this machine, and collect its traces.",
    "convert": "Convert another format to Chakra traces PREFIX.<rank>.et.",
}
"""Command name -> one-line help; the module is the name with underscores."""

files_argument: Callable[[Any], Any] = click.argument(
    "files", type=click.Path(), nargs=-1, required=True, metavar="FILE..."
)


@click.group(cls=LazyGroup, help=COMMANDS["trace"], modules=__name__, table=SUBCOMMANDS)
def command() -> None:
    """Group the commands about traces."""
