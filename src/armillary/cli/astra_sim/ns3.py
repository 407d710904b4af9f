"""`armillary astra-sim ns3`: the flags and inputs of ASTRA-sim's ns-3 back end."""

from __future__ import annotations

from contextlib import nullcontext

import click

from armillary.cli.astra_sim import SUBCOMMANDS
from armillary.cli.astra_sim.back_end import PATH, back_end_flags, scales
from armillary.cli.astra_sim.run import show_log, unknown_words
from armillary.cli.outputs import say, working


@click.command(
    help=f"{SUBCOMMANDS['ns3']}\n\nIts rate controls but DCQCN have no counterpart, and are named. Flags that it does "
    "not know are ignored with a warning.",
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
@click.option(
    "--network-configuration", required=True, type=PATH, metavar="TXT", help="The back end's config.txt."
)
@click.option(
    "--logical-topology-configuration", required=True, type=PATH, metavar="JSON", help="Sizes of dimensions."
)
@back_end_flags
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
            scales(flags),
            network_model,
        )
    show_log(log, logging, None if terse else logging_folder, heading)
