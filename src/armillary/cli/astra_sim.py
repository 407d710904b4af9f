"""`armillary astra-sim`: that program's flags, and its result line for every rank."""

from __future__ import annotations

import click

from armillary.cli import COMMANDS
from armillary.cli.options import network_model
from armillary.cli.outputs import say, working

# Not checked for existence: a workload is a prefix, and errors should be ours.
_PATH = click.Path()


@click.command("astra-sim", help=COMMANDS["astra-sim"])
@click.option(
    "--workload-configuration", required=True, type=_PATH, metavar="PREFIX", help="PREFIX.<rank>.et"
)
@click.option("--system-configuration", required=True, type=_PATH, metavar="JSON", help="System file.")
@click.option("--network-configuration", required=True, type=_PATH, metavar="YAML", help="Network file.")
@click.option("--remote-memory-configuration", type=_PATH, metavar="JSON", help="Remote-memory file.")
@click.option("--comm-group-configuration", type=_PATH, metavar="JSON", help="'empty' means none.")
@click.option("--num-queues-per-dim", metavar="N", help="Queues per dimension.  [default: 1]")
@click.option(
    "--rendezvous-protocol", is_flag=False, flag_value="true", metavar="BOOL", help="Receivers ask first."
)
@click.option("--injection-scale", metavar="X", help="Scales the endpoint delay.")
@click.option("--comm-scale", metavar="X", help="Without effect, as there.")
@click.option("--compute-scale", metavar="X", help="Without effect, as there.")
@click.option("--logging-configuration", metavar="TOML", help="Without effect.")
@click.option("--logging-folder", metavar="FOLDER", help="Without effect.")
@network_model("analytical")
def command(
    workload_configuration: str,
    system_configuration: str,
    network_configuration: str,
    remote_memory_configuration: str | None,
    comm_group_configuration: str | None,
    network_model: str | None,
    **flags: str | None,
) -> None:
    """Simulate and print the result lines."""
    from armillary import astra_sim
    from armillary.report import astra_exposed

    with working("simulating"):
        result = astra_sim.simulate(
            workload_configuration,
            system_configuration,
            network_configuration,
            remote_memory_configuration,
            comm_group_configuration,
            # Flags go through as text: the reader of ASTRA-sim's files also parses their values.
            [f"--{name.replace('_', '-')}={value}" for name, value in flags.items() if value is not None],
            network_model,
        )
    for warning in result.info["warnings"]:
        say(f"armillary: warning: {warning}", err=True)
    exposed = astra_exposed(result)
    # One text per class of ranks; the loop below repeats it for each rank.
    text = [
        f"finished, {cycles} cycles, exposed communication {hidden} cycles."
        for cycles, hidden in zip(result.finish.tolist(), exposed.tolist(), strict=True)
    ]
    click.echo("\n".join(f"sys[{rank}] {text[cls]}" for rank, cls in enumerate(result.rank_class.tolist())))
