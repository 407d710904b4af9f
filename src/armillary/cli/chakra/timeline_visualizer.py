"""`armillary chakra timeline_visualizer`: the flags of chakra_timeline_visualizer."""

from __future__ import annotations

from pathlib import Path

import click

from armillary.cli.chakra import SUBCOMMANDS
from armillary.cli.outputs import say, working
from armillary.cli.values import OUTPUT

_FILE = click.Path(path_type=Path)


@click.command(help=SUBCOMMANDS["timeline_visualizer"])
@click.option(
    "--input_filename", type=_FILE, required=True, metavar="CSV", help="Issues and callbacks, one per line."
)
@click.option("--output_filename", type=OUTPUT, required=True, metavar="JSON", help="Chrome trace events.")
@click.option(
    "--num_npus", type=click.IntRange(min=1), required=True, metavar="N", help="Number of NPUs: 0 to N - 1."
)
@click.option(
    "--npu_frequency",
    required=True,
    metavar="F",
    help="Clock of the log, which counts cycles: in MHz, or with a unit such as 1.5GHz.",
)
@click.option("--log_filename", metavar="FILE", help="No effect: no log is written.")
def command(
    input_filename: Path, output_filename: Path, num_npus: int, npu_frequency: str, log_filename: str | None
) -> None:
    """Write the timeline."""
    from armillary.report.issue_log import parse_frequency, write_issue_log

    frequency = parse_frequency(npu_frequency)
    with working("reading"):
        found = write_issue_log(input_filename, output_filename, num_npus, frequency)
    if found.unfinished:
        say(f"warning: {found.unfinished} nodes were issued and have no callback: left out", err=True)
    if found.skipped:
        say(f"warning: {found.skipped} lines are no issue and no callback: left out", err=True)
    say(f"wrote {output_filename}: {found.nodes:,} nodes", err=True)
