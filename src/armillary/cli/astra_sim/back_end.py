"""Common flags of ASTRA-sim's programs with a packet simulator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from armillary.cli.options import OneOf

PATH = click.Path()
"""Not checked for existence: a workload is a prefix, and errors should be ours."""
FLAGS = (
    click.option("--workload-configuration", required=True, type=PATH, metavar="PREFIX", help="PREFIX.<rank>.et"),
    click.option("--system-configuration", required=True, type=PATH, metavar="JSON", help="System file."),
    click.option("--remote-memory-configuration", type=PATH, metavar="JSON", help="Remote-memory file."),
    click.option("--comm-group-configuration", type=PATH, metavar="JSON", help="Communicator groups; 'empty' means "
    "none."),
    click.option("--num-queues-per-dim", metavar="N", help="Queues per dimension.  [default: 1]"),
    click.option(
        "--rendezvous-protocol", is_flag=False, flag_value="true", metavar="BOOL", help="Make receivers request "
        "each message before it is sent."
    ),
    click.option("--injection-scale", metavar="X", help="Scale the endpoint delay by X."),
    click.option("--comm-scale", metavar="X", help="No effect, as in ASTRA-sim."),
    click.option(
        "--network-model", type=OneOf("armillary.platform.network:NETWORK_MODELS"), default="packet",
        show_default=True, help="How messages share links.",
    ),
    click.option("--logging-configuration", type=PATH, metavar="TOML", help="Additional loggers."),
    click.option(
        "--logging-folder", type=PATH, metavar="FOLDER", default="log", show_default=True,
        help="Folder for log.log and err.log.",
    ),
    click.option("--terse", is_flag=True, help="Print one line per rank, and write no log."),
)  # fmt: skip


def back_end_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the flags, in the order of its help page."""
    for flag in reversed(FLAGS):
        command = flag(command)
    return command


def scales(flags: dict[str, str | None]) -> list[str]:
    """Return flags to pass on as text, because the reader of ASTRA-sim's files also parses their values."""
    return [f"--{name.replace('_', '-')}={value}" for name, value in flags.items() if value is not None]
