"""`armillary studio`: a local web application."""

from __future__ import annotations

import click

from armillary.cli import COMMANDS
from armillary.cli.command import Command, option

_HELP = f"""{COMMANDS["studio"]}

Prints an address for a browser on this computer. Nobody else can reach it, and requests without the token in the
address are refused. Choose a model, a machine and a plan, move a slider, and watch the step change. Stop with Ctrl-C.
Needs the extra studio: pip install armillary[studio].
"""


@click.command(cls=Command, help=_HELP, examples=("armillary studio", "armillary studio --port 0"))
@option(
    "--port", type=click.IntRange(0, 65535), metavar="N",
    help="Port to listen on; 0: any free port. By default 8765, or any free port if 8765 is taken.",
)  # fmt: skip
def command(port: int | None) -> None:
    """Serve until interrupted."""
    from armillary.studio.server import run

    run(port, lambda address: click.echo(f"The studio is at {address}\nCtrl-C ends it."))
