"""`armillary machine convert`: the network of a machine in another format."""

from __future__ import annotations

from pathlib import Path

import click

from armillary.cli.command import Command, option
from armillary.cli.machine import SUBCOMMANDS
from armillary.cli.options import OneOf, machine_argument
from armillary.cli.outputs import say
from armillary.cli.values import OUTPUT


@click.command(
    cls=Command,
    help=f"{SUBCOMMANDS['convert']}\n\nMACHINE is a study or platform file, a preset, an InfraGraph, an edge list, "
    "GraphML, or ASTRA-sim's network file. What the format cannot express is named on standard error.",
    examples=(
        "armillary machine convert dgx-h100 --to infragraph --out dgx.yaml",
        "armillary machine convert dgx.yaml --to astra-sim --out network.yml",
    ),
)
@machine_argument()
@option(
    "--to", required=True, type=OneOf("armillary.platform.files.network_convert:FORMATS"), metavar="FORMAT",
    help="study, infragraph, graphml, astra-sim (its analytical network file), or ns3 or htsim (topologies of its back "
    "ends).",
)  # fmt: skip
@option("-o", "--out", required=True, type=OUTPUT, metavar="FILE", help="The file to write.")
def command(machine: str, to: str, out: Path) -> None:
    """Convert, write, and say what is assumed and lost."""
    from armillary.base.files import write_text
    from armillary.platform.files.network_convert import convert_network

    found = convert_network(machine, to)  # type: ignore[arg-type]
    write_text(out, found.text)
    for text in found.assumed:
        say(f"assumed: {text}", err=True)
    if found.lost:
        say(f"left out: {', '.join(found.lost)}", err=True)
    say(f"wrote {out}", err=True)
