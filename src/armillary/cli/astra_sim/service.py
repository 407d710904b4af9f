"""`armillary astra-sim service`: a configuration of ASTRA-sim-service as input files and a command."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from armillary.cli.astra_sim import SUBCOMMANDS
from armillary.cli.outputs import say
from armillary.cli.values import OUTPUT_FOLDER


@click.command(
    help=f"{SUBCOMMANDS['service']}\n\nCONFIG is the service's Config, as JSON or YAML. Its InfraGraph becomes the "
    "network of the chosen back end; settings without effect are named on standard error.",
)
@click.argument("config", metavar="CONFIG", type=click.Path())
@click.option(
    "-o", "--out", required=True, type=OUTPUT_FOLDER, metavar="DIR",
    help="Folder for the input files.",
)  # fmt: skip
def command(config: str, out: Path) -> None:
    """Convert, write, and print the command."""
    from armillary.base.files import write_text
    from armillary.platform.files.astra_sim_service import read_service

    made = read_service(config)
    for name, text in made.files.items():
        write_text(out / name, text)
    for note in made.assumed:
        say(f"assumed: {note}", err=True)
    for note in made.warnings:
        say(f"armillary: warning: {note}", err=True)
    for name in made.files:
        say(f"wrote {out / name}", err=True)
    of_files = [str(out / word) if word in made.files else word for word in made.options]
    flags = [
        f"--{flag}={out / value if value in made.files else value}" for flag, value in made.flags.items()
    ]
    say(shlex.join(["armillary", "astra-sim", *made.command, *flags, *of_files]))
