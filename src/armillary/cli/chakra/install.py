"""`armillary chakra install`: programs named like Chakra's, where they do not replace Chakra's own."""

from __future__ import annotations

from pathlib import Path

import click

from armillary.cli.chakra import SUBCOMMANDS
from armillary.cli.outputs import say


@click.command(
    help=f"{SUBCOMMANDS['install']}\n\nDIR is a folder on the path. A program that already exists there, such as "
    "Chakra's own, is kept, and is an error. With --python, DIR also gets a package `chakra` for PYTHONPATH=DIR, "
    "for scripts that make traces: Chakra's schema (et_def_pb2, which needs protobuf), protolib, and the programs "
    "as modules."
)
@click.option("--python", "modules", is_flag=True, help="Also install a Python package `chakra`.")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
def command(folder: Path, modules: bool) -> None:
    """Write the programs and name them."""
    from armillary.cli.programs import CHAKRA, CHAKRA_MODULES, install

    programs = install(folder, CHAKRA, "chakra install", CHAKRA_MODULES if modules else None)
    for path in programs[: len(CHAKRA)]:
        say(f"wrote {path}")
    if modules:
        say(f"wrote {folder / 'chakra'}: {len(programs) - len(CHAKRA)} modules of Python")
