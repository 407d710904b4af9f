"""`armillary platform`: a machine description as it is understood, and the known systems."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from armillary.cli import COMMANDS
from armillary.cli.gemm import command as gemm
from armillary.cli.output_file import OutputFile
from armillary.cli.outputs import show_table

if TYPE_CHECKING:
    from armillary.platform.files.preset import Preset


@click.group(help=COMMANDS["platform"])
def command() -> None:
    """Group the commands about platforms."""


command.add_command(gemm)


@command.command()
@click.argument("file", type=click.Path(), metavar="[FILE|PRESET]", required=False)
@click.option(
    "--system", type=click.Path(), metavar="JSON", help="FILE is an ASTRA-sim network; this its system."
)
@click.option(
    "--draw",
    type=OutputFile("armillary.platform.topology.picture:check_picture"),
    metavar="PICTURE",
    help="Draw it: .png, .svg, .pdf or .html.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, in bytes, ns and FLOP/s.")
@click.option("--schema", is_flag=True, help="Print the JSON Schema of study files and stop.")
def show(file: str | None, system: str | None, draw: Path | None, as_json: bool, schema: bool) -> None:
    """Print the machine of a study file, a preset, or ASTRA-sim's network file with its --system."""
    import json

    if schema:
        from armillary.workload.plan.request import study_schema

        click.echo(json.dumps(study_schema(), indent=2))
        return
    from armillary.platform import describe, load_platform, read_platform, table
    from armillary.platform.topology import load_network
    from armillary.platform.topology import show as graphs

    if file is None:
        raise click.UsageError("Missing argument 'FILE'")
    network = None if system else load_network(file)
    if network:
        described, shown = graphs.describe(network), graphs.table(network)
    else:
        platform = read_platform(system, file) if system else load_platform(file)
        described, shown = describe(platform), table(platform)
    preset = None if system else _preset(file)
    if preset:
        from armillary.platform.files.preset_table import describe_numbers

        described |= {"title": preset.title, "notes": preset.notes, "numbers": describe_numbers(preset)}
    if as_json:
        click.echo(json.dumps(described, indent=2))
    else:
        show_table(shown)
        if preset:
            _origin(preset)
    if draw:
        from armillary.platform.topology import panels_of
        from armillary.platform.topology.levels import levels_of, panels
        from armillary.platform.topology.picture import write_picture

        title, parts = (file, panels(levels_of(platform.dimensions))) if system else panels_of(file)
        write_picture(title, parts, draw)
        click.echo(f"wrote {draw}", err=True)


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_(as_json: bool) -> None:
    """List the presets: known systems that stand wherever a platform file does."""
    import json

    from armillary.platform.files.preset_table import list_presets, presets_table

    rows = list_presets()
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    else:
        show_table(presets_table(rows))


def _preset(file: str) -> Preset | None:
    from armillary.platform.files.native import platform_document
    from armillary.platform.files.preset import preset_names, read_preset

    named = file in preset_names() and platform_document(file).path is None
    return read_preset(file) if named else None


def _origin(preset: Preset) -> None:
    from armillary.platform.files.preset_table import numbers_table, sources

    click.echo(f"\n{preset.title}. {preset.notes}\n")
    show_table(numbers_table(preset))
    for number, address in enumerate(sources(preset), 1):
        click.echo(f"[{number}] {address}")
