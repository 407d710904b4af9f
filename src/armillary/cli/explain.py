"""`armillary explain`: the summary of a saved result, and the reasons for its time."""

from __future__ import annotations

from pathlib import Path

import click

from armillary.cli import COMMANDS
from armillary.cli.command import Command
from armillary.cli.outputs import Outputs, output_options

WIDTH = 100


@click.command(
    cls=Command,
    help=f"{COMMANDS['explain']}\n\nRESULT is a file that `armillary run --save` wrote.",
    examples=("armillary explain step.npz", "armillary explain step.npz --plot step.png --links links.csv"),
)
@click.argument("result", type=click.Path(path_type=Path))
@output_options
def command(result: Path, outputs: Outputs) -> None:
    """Load a timeline, print its summary and the reasons, and write what else is asked for."""
    import textwrap

    from armillary import report
    from armillary.engine.common.timeline import Timeline

    timeline = Timeline.load(result)
    outputs.present(timeline)
    lines = []
    for number, reason in enumerate(report.explain(timeline), 1):
        lines += [f"{number}. {reason.text}", f"   {reason.help}"]
    if timeline.network:
        from armillary.report.links import hot_spot_line

        lines.append(f"{hot_spot_line(timeline.network)}.")
    if lines:
        click.echo("\nWhy it takes so long, on the slowest rank:")
    for line in lines:
        # Continuation lines stand below the text, not below the number.
        indent = "   " if line[:1].isdigit() or line.startswith("   ") else ""
        click.echo(textwrap.fill(line, WIDTH, subsequent_indent=indent, break_on_hyphens=False))
