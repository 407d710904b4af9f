"""`armillary explain`: the reasons for the time of a saved result."""

from __future__ import annotations

from pathlib import Path

import click

from armillary.cli import COMMANDS

WIDTH = 100


@click.command(help=COMMANDS["explain"])
@click.argument("result", type=click.Path(path_type=Path))
def command(result: Path) -> None:
    """Load a timeline and print its lower bound and the reasons for its time."""
    import textwrap

    from armillary import report
    from armillary.engine.common.timeline import Timeline
    from armillary.report.memory_fit import fit_line
    from armillary.report.summary import assumed_of_input

    timeline = Timeline.load(result)
    lines = [
        fit_line(timeline),
        report.headline(timeline),
        *assumed_of_input(timeline),
        report.bound_line(timeline, report.bound(timeline)),
    ]
    if timeline.network:
        from armillary.report.links import hot_spot_line

        lines.append(f"{hot_spot_line(timeline.network)}.")
    for number, reason in enumerate(report.explain(timeline), 1):
        lines.append(f"{number}. {reason.text}")
        lines.append(f"   {reason.help}")
    for line in filter(None, lines):
        indent = "   " if line[:1].isdigit() or line.startswith("   ") else ""
        click.echo(textwrap.fill(line, WIDTH, subsequent_indent=indent, break_on_hyphens=False))
