"""`armillary show`: what a saved result says."""

from __future__ import annotations

from pathlib import Path

import click

from armillary.cli import COMMANDS
from armillary.cli.outputs import Outputs, output_options


@click.command(help=COMMANDS["show"])
@click.argument("result", type=click.Path(path_type=Path))
@output_options
def command(result: Path, outputs: Outputs) -> None:
    """Load a timeline, print its summary and write what else is asked for."""
    from armillary.engine.common.timeline import Timeline

    outputs.present(Timeline.load(result))
