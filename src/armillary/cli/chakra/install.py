"""`armillary chakra install`: programs named like Chakra's, where they do not replace Chakra's own."""

from __future__ import annotations

from pathlib import Path

import click

from armillary.cli.chakra import SUBCOMMANDS
from armillary.cli.outputs import say


@click.command(
    help=f"{SUBCOMMANDS['install']}\n\nDIR is a folder on the path. A program that is there already, as Chakra's own, "
    "stays, and is an error."
)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
def command(folder: Path) -> None:
    """Write the programs and name them."""
    from armillary.cli.programs import CHAKRA, install

    for path in install(folder, CHAKRA, "chakra install"):
        say(f"wrote {path}")
