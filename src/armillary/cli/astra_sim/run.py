"""`armillary astra-sim` with flags: simulate, print that program's lines, and write its logs."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import click

from armillary.base.hints import nearest
from armillary.cli import COMMANDS
from armillary.cli.options import OneOf
from armillary.cli.outputs import say, working

if TYPE_CHECKING:
    from armillary.report.astra_log import Logging, ResultLog

# Not checked for existence: a workload is a prefix, and errors should be ours.
_PATH = click.Path()


_ROWS = ("--units-count", "--links-count", "--link-bandwidth", "--link-latency")
"""Flags of ASTRA-sim 1.0 with several words, one per dimension."""
_TABLES = ("--path", "--run-name", "--total-stat-rows", "--stat-row")
"""Flags of ASTRA-sim 1.0 about tables that it wrote."""


class _Flags(click.Command):
    """A command that takes several words after some flags."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        made: list[str] = []
        rest = list(args)
        while rest:
            word = rest.pop(0)
            if word in _ROWS:
                values = []
                while rest and not rest[0].startswith("--"):
                    values.append(rest.pop(0))
                word = f"{word}={','.join(values)}"
            made.append(word)
        return super().parse_args(ctx, made)


@click.command(
    cls=_Flags,
    help=f"{COMMANDS['astra-sim']}\n\nUnknown flags are ignored with a warning; ASTRA-sim ignores them, too. "
    "Standard output holds ASTRA-sim's lines and nothing else. `armillary astra-sim install DIR` puts programs "
    "where scripts expect those of ASTRA-sim. Files and flags of version 1.0 are accepted, too: its network and "
    "system files, and a text workload (.txt) instead of PREFIX.",
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
@click.option(
    "--workload-configuration",
    required=True,
    type=_PATH,
    metavar="PREFIX",
    help="PREFIX.<rank>.et",
)
@click.option("--system-configuration", required=True, type=_PATH, metavar="JSON", help="System file.")
@click.option("--network-configuration", required=True, type=_PATH, metavar="YAML", help="Network file.")
@click.option("--remote-memory-configuration", type=_PATH, metavar="JSON", help="Remote-memory file.")
@click.option(
    "--comm-group-configuration", type=_PATH, metavar="JSON", help="Communicator groups; 'empty' means none."
)
@click.option("--num-queues-per-dim", metavar="N", help="Queues per dimension.  [default: 1]")
@click.option(
    "--rendezvous-protocol", is_flag=False, flag_value="true", metavar="BOOL",
    help="Make receivers request each message before it is sent.",
)  # fmt: skip
@click.option("--injection-scale", metavar="X", help="Scale the endpoint delay by X.")
@click.option(
    "--comm-scale",
    metavar="X",
    help="Scale the bytes of a text workload; no effect otherwise, as in ASTRA-sim.",
)
@click.option(
    "--compute-scale",
    metavar="X",
    help="Scale the times of a text workload; no effect otherwise, as in ASTRA-sim.",
)
@click.option("--num-passes", metavar="N", help="Steps of a text workload (1.0).  [default: 1]")
@click.option("--units-count", metavar="N...", help="NPUs per dimension, for a version 1.0 network file.")
@click.option(
    "--links-count", metavar="N...", help="Links of an NPU per dimension, for a version 1.0 network file."
)
@click.option(
    "--link-bandwidth",
    metavar="X...",
    help="Bandwidth of a link per dimension in GB/s, for a version 1.0 network file.",
)
@click.option(
    "--link-latency", metavar="X...", help="Latency per dimension in ns, for a version 1.0 network file."
)
@click.option(
    "--network-model", type=OneOf("armillary.platform.network:NETWORK_MODELS", "credit"),
    help="How messages share links; by default analytical, which is ASTRA-sim's congestion-unaware network. "
    "congestion is its congestion-aware one. All others share links as profile physical does; credit is packet with "
    "protocol credit.",
)  # fmt: skip
@click.option(
    "--logging-configuration", type=_PATH, metavar="TOML",
    help="Additional loggers, in the format of spdlog_setup.",
)  # fmt: skip
@click.option(
    "--logging-folder", type=_PATH, metavar="FOLDER", default="log", show_default=True,
    help="Folder for log.log and err.log.",
)  # fmt: skip
@click.option("--terse", is_flag=True, help="Print one line per rank, and write no log.")
def command(
    workload_configuration: str,
    system_configuration: str,
    network_configuration: str,
    remote_memory_configuration: str | None,
    comm_group_configuration: str | None,
    network_model: str | None,
    logging_configuration: str | None,
    logging_folder: str,
    terse: bool,
    **flags: str | None,
) -> None:
    """Simulate, print and write."""
    from armillary import astra_sim
    from armillary.report.astra_log import read_logging
    from armillary.report.astra_log.log_files import folder_of_logs

    for warning in unknown_words(click.get_current_context()):
        say(f"armillary: warning: {warning}", err=True)
    # What cannot be written is known before the simulation.
    logging = read_logging(logging_configuration)
    with nullcontext() if terse else folder_of_logs(logging_folder), working("simulating"):
        log = astra_sim.log(
            workload_configuration,
            system_configuration,
            network_configuration,
            remote_memory_configuration,
            comm_group_configuration,
            # Flags go through as text: the reader of ASTRA-sim's files also parses their values.
            [f"--{name.replace('_', '-')}={value}" for name, value in flags.items() if value is not None],
            network_model,
        )
    show_log(log, logging, None if terse else logging_folder)


def show_log(
    log: ResultLog, logging: Logging, folder: str | None, heading: str = "", ending: str = ""
) -> None:
    """Print a log between a heading and an ending, and write its files; without a folder print terse lines."""
    from armillary.report.astra_log import write_log_files

    for warning in [*log.timeline.info["warnings"], *log.warnings, *logging.warnings]:
        say(f"armillary: warning: {warning}", err=True)
    if folder is None:
        click.echo(log.terse(), nl=False)
        return
    log.write_memory()
    text = log.text()
    write_log_files(text, folder, logging)
    click.echo(heading + logging.console(text) + ending, nl=False)


def unknown_words(ctx: click.Context) -> list[str]:
    """Return a warning for each word that is neither a flag of this command nor the value of one."""
    known = [name for param in ctx.command.params for name in param.opts if name.startswith("--")]
    words = [word for word in ctx.args if word.startswith("-")]
    return [
        f"{word.partition('=')[0]} is ignored: tables of ASTRA-sim 1.0 are not written"
        if word.partition("=")[0] in _TABLES
        else f"{word.partition('=')[0]} is ignored, as in ASTRA-sim{nearest(word.partition('=')[0], known, {})}"
        for word in words
    ]
