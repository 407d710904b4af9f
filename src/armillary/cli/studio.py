"""`armillary studio`: a local web application to play with."""

from __future__ import annotations

import click

from armillary.cli import COMMANDS
from armillary.cli.command import Command, option

_HELP = f"""{COMMANDS["studio"]}

Prints an address for a browser on this computer: nobody else reaches it, and without the token in the address nothing
is answered. Choose a model, a machine and a plan, move a slider, and see the step change. Ctrl-C ends it. Needs the
extra studio: pip install armillary[studio].
"""


@click.command(cls=Command, help=_HELP, examples=("armillary studio", "armillary studio --port 0"))
@option(
    "--port", type=click.IntRange(0, 65535), metavar="N",
    help="Where to listen; 0: any port that is free. By default 8765, or if that is taken any that is free.",
)  # fmt: skip
def command(port: int | None) -> None:
    """Serve until interrupted."""
    from armillary.studio.server import run

    run(port, lambda address: click.echo(f"The studio is at {address}\nCtrl-C ends it."))
