"""`armillary trace link`: join a PyTorch host trace and a device trace."""

from __future__ import annotations

from pathlib import Path

import click

from armillary.cli.command import Command, option
from armillary.cli.options import json_option
from armillary.cli.outputs import say, working, write_json
from armillary.cli.trace import SUBCOMMANDS
from armillary.cli.values import OUTPUT

_FILE = click.Path(path_type=Path)


@click.command(
    cls=Command,
    help=SUBCOMMANDS["link"],
    examples=(
        "armillary trace link --host host_0.json --device device_0.json -o joined.json",
        "armillary trace link --host host_0.json --device device_0.json -o joined.json --json -",
    ),
)
@click.option(
    "--host", type=_FILE, required=True, metavar="FILE", help="Execution trace (ExecutionTraceObserver)."
)
@click.option(
    "--device", type=_FILE, required=True, metavar="FILE", help="Kineto trace (export_chrome_trace)."
)
@option("-o", "--out", type=OUTPUT, required=True, metavar="FILE", help="Write the joined trace.")
@json_option("Write a report as JSON.")
def command(host: Path, device: Path, out: Path, json_file: Path | None) -> None:
    """Join and write."""
    from armillary.convert.pytorch.link_files import link_files

    with working("linking"):
        facts = link_files(host, device, out)
    for warning in facts["warnings"]:
        say(f"note: {warning}", err=True)
    ways = ", ".join(f"{count} by {name}" for name, count in facts["strategies"].items())
    say(f"linked {facts['linked']} of {facts['linkable']} nodes ({100 * facts['link_rate']:.2f} %): {ways}")
    if facts["device_ops"]:
        say(f"{facts['device_ops_linked']} of {facts['device_ops']} device operations have their launch")
    say(f"wrote {out}", err=True)
    write_json(json_file, facts)
