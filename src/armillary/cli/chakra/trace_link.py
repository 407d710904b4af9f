"""`armillary chakra trace_link`: the flags of chakra_trace_link."""

from __future__ import annotations

from pathlib import Path

import click

from armillary.cli.chakra import SUBCOMMANDS
from armillary.cli.outputs import say, working
from armillary.cli.values import OUTPUT

_FILE = click.Path(path_type=Path)


@click.command(help=SUBCOMMANDS["trace_link"])
@click.option("--rank", type=int, metavar="N", help="No effect: the files state it.")
@click.option(
    "--chakra-host-trace", "--pytorch-et-file", "host", type=_FILE, required=True, metavar="JSON",
    help="Host trace, written by ExecutionTraceObserver.",
)  # fmt: skip
@click.option(
    "--chakra-device-trace", "--kineto-file", "device", type=_FILE, required=True, metavar="JSON",
    help="Device trace, exported by the profiler (Kineto).",
)  # fmt: skip
@click.option("--output-file", type=OUTPUT, required=True, metavar="JSON", help="The joined trace to write.")
@click.option("--log-level", metavar="LEVEL", help="No effect.")
def command(rank: int | None, host: Path, device: Path, output_file: Path, log_level: str | None) -> None:
    """Join and write."""
    from armillary.convert.pytorch.link_files import link_files

    with working("linking"):
        report = link_files(host, device, output_file)
    for warning in report.get("warnings", ()):
        say(f"warning: {warning}", err=True)
    # A report without a rate has nothing that could be linked.
    rate = f"{100 * report['link_rate']:.1f} %" if "link_rate" in report else "done"
    say(f"wrote {output_file}: linked {rate}", err=True)
