"""`armillary astra-sim ns3`: the flags and inputs of ASTRA-sim's ns-3 back end."""

from __future__ import annotations

from contextlib import nullcontext

import click

from armillary.cli.astra_sim import SUBCOMMANDS
from armillary.cli.astra_sim.run import show_log, unknown_words
from armillary.cli.outputs import say, working
from armillary.cli.values import OneOf

_PATH = click.Path()


@click.command(
    help=f"{SUBCOMMANDS['ns3']}\n\nIts rate controls but DCQCN have no counterpart, and are named. Flags that it does "
    "not know are ignored with a warning.",
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
@click.option(
    "--workload-configuration", required=True, type=_PATH, metavar="PREFIX", help="PREFIX.<rank>.et"
)
@click.option("--system-configuration", required=True, type=_PATH, metavar="JSON", help="System file.")
@click.option(
    "--network-configuration", required=True, type=_PATH, metavar="TXT", help="The back end's config.txt."
)
@click.option(
    "--logical-topology-configuration", required=True, type=_PATH, metavar="JSON", help="Sizes of dimensions."
)
@click.option("--remote-memory-configuration", type=_PATH, metavar="JSON", help="Remote-memory file.")
@click.option("--comm-group-configuration", type=_PATH, metavar="JSON", help="'empty' means none.")
@click.option("--num-queues-per-dim", metavar="N", help="Queues per dimension.  [default: 1]")
@click.option(
    "--rendezvous-protocol", is_flag=False, flag_value="true", metavar="BOOL", help="Receivers ask first."
)
@click.option("--injection-scale", metavar="X", help="Scales the endpoint delay.")
@click.option("--comm-scale", metavar="X", help="Without effect, as there.")
@click.option(
    "--network-model", type=OneOf("armillary.platform.network:NETWORK_MODELS"), default="packet", show_default=True,
    help="How messages share links.",
)  # fmt: skip
@click.option("--logging-configuration", type=_PATH, metavar="TOML", help="Loggers that write more.")
@click.option(
    "--logging-folder", type=_PATH, metavar="FOLDER", default="log", show_default=True,
    help="For log.log and err.log.",
)  # fmt: skip
@click.option("--terse", is_flag=True, help="Print one line for each rank, and write no log.")
def command(
    workload_configuration: str,
    system_configuration: str,
    network_configuration: str,
    logical_topology_configuration: str,
    remote_memory_configuration: str | None,
    comm_group_configuration: str | None,
    network_model: str,
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
    logging = read_logging(logging_configuration)
    with nullcontext() if terse else folder_of_logs(logging_folder), working("simulating"):
        heading, log = astra_sim.log_ns3(
            workload_configuration,
            system_configuration,
            network_configuration,
            logical_topology_configuration,
            remote_memory_configuration,
            comm_group_configuration,
            [f"--{name.replace('_', '-')}={value}" for name, value in flags.items() if value is not None],
            network_model,
        )
    show_log(log, logging, None if terse else logging_folder, heading)
