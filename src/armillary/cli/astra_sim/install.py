"""`armillary astra-sim install`: programs at the paths of ASTRA-sim's."""

from __future__ import annotations

from pathlib import Path

import click

from armillary.cli.astra_sim import SUBCOMMANDS
from armillary.cli.outputs import say


@click.command(
    help=f"{SUBCOMMANDS['install']}\n\nDIR is ASTRA-sim's own folder, or any other: only these files are written to "
    "it. A file that already exists is kept, and is an error.",
)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
def command(folder: Path) -> None:
    """Write the programs and name them."""
    from armillary.cli.programs import ASTRA_SIM, install

    for path in install(folder, ASTRA_SIM, "astra-sim install"):
        say(f"wrote {path}")
