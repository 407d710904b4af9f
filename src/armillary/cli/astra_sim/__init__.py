"""`armillary astra-sim`: that program's flags and lines, and its programs at the paths where scripts look for them."""

from __future__ import annotations

import click

from armillary.cli import COMMANDS
from armillary.cli.command import DefaultGroup

SUBCOMMANDS = {
    "ns3": "Run the inputs of ASTRA-sim's ns-3 back end as lossless packets, and print its result lines.",
    "htsim": "Run the inputs of ASTRA-sim's HTSim back end as TCP packets, and print its result lines.",
    "service": "Write the input files for a configuration of ASTRA-sim-service, and print the command.",
    "install": "Install programs where scripts expect those of ASTRA-sim.",
}
"""Command name -> one-line help; the module is the name."""


# The default command: flags alone are a simulation.
@click.group(cls=DefaultGroup, help=COMMANDS["astra-sim"], modules=__name__, table=SUBCOMMANDS, default="run")
def command() -> None:
    """Group the simulation and what installs its programs."""
