"""`armillary machine show`: a machine description as Armillary reads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from armillary.cli.command import Command, option
from armillary.cli.machine import SUBCOMMANDS
from armillary.cli.options import astra_sim_options, html_option, json_option, machine_argument, plot_option
from armillary.cli.outputs import say, show_table, write_json
from armillary.cli.values import OUTPUT

if TYPE_CHECKING:
    from armillary.platform.files.preset import Preset


@click.command(
    cls=Command,
    help=f"{SUBCOMMANDS['show']}\n\nMACHINE is a study or platform file, or a preset. Give ASTRA-sim's files with "
    "--system and --network.",
    examples=(
        "armillary machine show hgx-h100",
        "armillary machine show dgx-superpod-h100 --plot superpod.png --json -",
    ),
)
@machine_argument(required=False)
@astra_sim_options
@plot_option("the network")
@html_option("Draw the network as a page that names the link or node under the pointer.", OUTPUT)
@json_option("Write the result as JSON, in bytes, ns and FLOP/s.")
@option("--schema", is_flag=True, help="Print the JSON Schema of study files and stop.")
def command(
    machine: str | None,
    system: Path | None,
    network: Path | None,
    plot: Path | None,
    html: Path | None,
    json_file: Path | None,
    schema: bool,
) -> None:
    """Print, and write what else is asked for."""
    # Before anything else: the schema needs no machine.
    if schema:
        from armillary.workload.plan.request import study_schema

        click.echo(json.dumps(study_schema(), indent=2))
        return
    from armillary.platform import describe, load_platform, read_platform, table
    from armillary.platform.topology import load_network, panels_of
    from armillary.platform.topology import show as graphs
    from armillary.platform.topology.levels import levels_of, panels
    from armillary.platform.topology.picture import write_page, write_picture

    if machine and (system or network):
        raise click.UsageError("MACHINE and ASTRA-sim's files exclude each other")
    if (system is None) != (network is None):
        raise click.UsageError("--system and --network go together")
    preset = None
    if system and network:
        platform = read_platform(system, network)
        described, shown = describe(platform), table(platform)
    elif machine:
        # A graph has its own table; its dimensions are only what collectives see.
        graph = load_network(machine)
        if graph:
            described, shown = graphs.describe(graph), graphs.table(graph)
        else:
            platform = load_platform(machine)
            described, shown = describe(platform), table(platform)
        preset = _preset(machine)
    else:
        raise click.UsageError("Missing argument 'MACHINE' (or --system and --network)")
    show_table(shown)
    if preset:
        from armillary.platform.files.preset_table import describe_numbers

        described |= {"title": preset.title, "notes": preset.notes, "numbers": describe_numbers(preset)}
        _origin(preset)
    write_json(json_file, described)
    if plot or html:
        # The picture of a preset may be another graph than the one simulated.
        title, parts = (
            panels_of(machine) if machine else (str(network), panels(levels_of(platform.dimensions)))
        )
        for path, write in ((plot, write_picture), (html, write_page)):
            if path:
                write(title, parts, path)
                say(f"wrote {path}", err=True)


def _preset(name: str) -> Preset | None:
    from armillary.platform.files.native import platform_document
    from armillary.platform.files.preset import is_preset, read_preset

    # A file of the same name is no preset.
    named = is_preset(name) and platform_document(name).path is None
    return read_preset(name) if named else None


def _origin(preset: Preset) -> None:
    from armillary.platform.files.preset_table import numbers_table, sources

    click.echo(f"\n{preset.title}. {preset.notes}\n")
    show_table(numbers_table(preset))
    for number, address in enumerate(sources(preset), 1):
        say(f"[{number}] {address}")
