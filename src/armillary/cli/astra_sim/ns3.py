"""`armillary astra-sim ns3`: the flags and inputs of ASTRA-sim's ns-3 back end."""

from __future__ import annotations

from contextlib import nullcontext

import click

from armillary.cli.astra_sim import SUBCOMMANDS
from armillary.cli.astra_sim.back_end import PATH, back_end_flags, scales
from armillary.cli.astra_sim.run import show_log, unknown_words
from armillary.cli.options import consented
from armillary.cli.outputs import say, show_table, working


@click.command(
    help=f"{SUBCOMMANDS['ns3']}\n\nRate controls other than DCQCN have no counterpart, and are named. Unknown flags "
    "are ignored with a warning.",
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
@click.option(
    "--network-configuration", required=True, type=PATH, metavar="TXT", help="The back end's config.txt."
)
@click.option(
    "--logical-topology-configuration",
    required=True,
    type=PATH,
    metavar="JSON",
    help="Sizes of the dimensions.",
)
@back_end_flags
@click.option(
    "--ns3-binary", type=PATH, metavar="PATH",
    help="Your own build of that back end: run it on the same input, too, and print one table of both; no log is "
    "written.",
)  # fmt: skip
@click.option("--ns3-timeout", metavar="TIME", help="Time limit for that build.  [default: 10 min]")
@click.option(
    "--allow-programs",
    is_flag=True,
    help="Allow the build to be started.",
    callback=consented,
    expose_value=False,
)
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
    ns3_binary: str | None,
    ns3_timeout: str | None,
    **flags: str | None,
) -> None:
    """Simulate, print and write."""
    from armillary import astra_sim
    from armillary.report.astra_log import read_logging
    from armillary.report.astra_log.log_files import folder_of_logs

    for warning in unknown_words(click.get_current_context()):
        say(f"armillary: warning: {warning}", err=True)
    logging = read_logging(logging_configuration)
    if ns3_timeout is not None and ns3_binary is None:
        say("armillary: warning: --ns3-timeout has no effect without --ns3-binary", err=True)
    given = (
        workload_configuration, system_configuration, network_configuration, logical_topology_configuration,
        remote_memory_configuration, comm_group_configuration, scales(flags), network_model,
    )  # fmt: skip
    if ns3_binary is not None:
        from armillary.evidence.ns3_binary import beside_table

        with working("simulating, here and there"):
            found, log = astra_sim.beside_ns3(
                ns3_binary,
                *given,
                timeout=ns3_timeout or "10 min",
            )
        for warning in [*log.timeline.info["warnings"], *log.warnings, *logging.warnings]:
            say(f"armillary: warning: {warning}", err=True)
        say(found.headline)
        show_table(beside_table(found))
        return
    with nullcontext() if terse else folder_of_logs(logging_folder), working("simulating"):
        heading, log = astra_sim.log_ns3(
            *given,
        )
    show_log(log, logging, None if terse else logging_folder, heading)
