"""`armillary astra-sim htsim`: the flags and inputs of ASTRA-sim's HTSim back end."""

from __future__ import annotations

from contextlib import nullcontext

import click

from armillary.cli.astra_sim import SUBCOMMANDS
from armillary.cli.astra_sim.back_end import PATH, back_end_flags, scales
from armillary.cli.astra_sim.run import show_log, unknown_words
from armillary.cli.outputs import say, working

_OPTIONS = "--htsim_opts"
_OURS = "armillary.htsim_opts"
"""Where a context keeps the words after `_OPTIONS`."""


class _Htsim(click.Command):
    """A command whose line ends where that of htsim begins."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # Before click sees them: "-topo f" would be read as four short options.
        at = args.index(_OPTIONS) if _OPTIONS in args else len(args)
        ctx.meta[_OURS] = args[at + 1 :]
        return super().parse_args(ctx, args[:at])


@click.command(
    cls=_Htsim,
    help=f"{SUBCOMMANDS['htsim']}\n\nFlags after {_OPTIONS} go to htsim: -topo FILE (required), -nodes N, and the "
    "other options of the program that --htsim-proto names. Options without an effect are named, and unknown flags are "
    "ignored with a warning.",
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    epilog=f"{_OPTIONS} OPTION...  Must be the last flag.",
)
@click.option(
    "--network-configuration", required=True, type=PATH, metavar="YAML", help="Network file: ranks and dimensions."
)  # fmt: skip
@back_end_flags
@click.option("--compute-scale", metavar="X", help="No effect, as in ASTRA-sim.")
@click.option(
    "--htsim-proto", type=click.Choice(("tcp", "uet")), default="tcp", show_default=True,
    help="The transport; uet is Ultra Ethernet, with the options of its program.",
)  # fmt: skip
def command(
    workload_configuration: str,
    system_configuration: str,
    network_configuration: str,
    remote_memory_configuration: str | None,
    comm_group_configuration: str | None,
    network_model: str,
    logging_configuration: str | None,
    logging_folder: str,
    terse: bool,
    htsim_proto: str,
    **flags: str | None,
) -> None:
    """Simulate, print and write."""
    from armillary import astra_sim
    from armillary.report.astra_log import read_logging
    from armillary.report.astra_log.log_files import folder_of_logs

    ctx = click.get_current_context()
    for warning in unknown_words(ctx):
        say(f"armillary: warning: {warning}", err=True)
    logging = read_logging(logging_configuration)
    with nullcontext() if terse else folder_of_logs(logging_folder), working("simulating"):
        heading, log, ending = astra_sim.log_htsim(
            workload_configuration,
            system_configuration,
            network_configuration,
            ctx.meta[_OURS],
            remote_memory_configuration,
            comm_group_configuration,
            scales(flags),
            network_model,
            htsim_proto,
        )
    show_log(log, logging, None if terse else logging_folder, heading, ending)
