"""`armillary trace link`: join a PyTorch host trace and a device trace."""

from __future__ import annotations

import json
from pathlib import Path

import click

from armillary.cli.output_file import OUTPUT
from armillary.cli.outputs import working
from armillary.cli.trace import SUBCOMMANDS

_FILE = click.Path(path_type=Path)


@click.command(help=SUBCOMMANDS["link"])
@click.option(
    "--host", type=_FILE, required=True, metavar="FILE", help="Execution trace (ExecutionTraceObserver)."
)
@click.option(
    "--device", type=_FILE, required=True, metavar="FILE", help="Kineto trace (export_chrome_trace)."
)
@click.option("-o", "--output", type=OUTPUT, required=True, metavar="FILE", help="Write the joined trace.")
@click.option("--json", "report_path", type=OUTPUT, metavar="REPORT", help="Write a report.")
def command(host: Path, device: Path, output: Path, report_path: Path | None) -> None:
    """Join and write."""
    from armillary.base.files import write_text
    from armillary.convert.pytorch.link_files import link_files

    with working("linking"):
        facts = link_files(host, device, output)
    for warning in facts["warnings"]:
        click.echo(f"note: {warning}", err=True)
    if report_path:
        write_text(report_path, json.dumps(facts, indent=1))
    ways = ", ".join(f"{count} by {name}" for name, count in facts["strategies"].items())
    click.echo(
        f"linked {facts['linked']} of {facts['linkable']} nodes ({100 * facts['link_rate']:.2f} %): {ways}"
    )
    if facts["device_ops"]:
        click.echo(
            f"{facts['device_ops_linked']} of {facts['device_ops']} device operations have their launch"
        )
    click.echo(f"wrote {output}", err=True)
