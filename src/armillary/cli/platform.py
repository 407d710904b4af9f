"""`armillary platform`: a machine description as it is understood."""

from __future__ import annotations

import click

from armillary.cli import COMMANDS
from armillary.cli.outputs import show_table


@click.group(help=COMMANDS["platform"])
def command() -> None:
    """Group the commands about platforms."""


@command.command()
@click.argument("file", type=click.Path(), required=False)
@click.option(
    "--system", type=click.Path(), metavar="JSON", help="FILE is an ASTRA-sim network; this its system."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, in bytes, ns and FLOP/s.")
@click.option("--schema", is_flag=True, help="Print the JSON Schema of study files and stop.")
def show(file: str | None, system: str | None, as_json: bool, schema: bool) -> None:
    """Print the machine of a study file, or of ASTRA-sim's network file with its --system."""
    import json

    if schema:
        from armillary.workload.plan.request import study_schema

        click.echo(json.dumps(study_schema(), indent=2))
        return
    from armillary.platform import describe, load_platform, read_platform, table

    if file is None:
        raise click.UsageError("Missing argument 'FILE'")
    platform = read_platform(system, file) if system else load_platform(file)
    if as_json:
        click.echo(json.dumps(describe(platform), indent=2))
    else:
        show_table(table(platform))
