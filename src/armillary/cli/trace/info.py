"""`armillary trace info`: count the contents of trace files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from armillary.cli.command import Command
from armillary.cli.options import json_option
from armillary.cli.outputs import show_table, write_json
from armillary.cli.trace import SUBCOMMANDS, files_argument

if TYPE_CHECKING:
    from rich.table import Table


@click.command(
    cls=Command,
    help=SUBCOMMANDS["info"],
    examples=("armillary trace info step.0.et", "armillary trace info step.*.et --json -"),
)
@files_argument
@json_option()
def command(files: tuple[str, ...], json_file: Path | None) -> None:
    """Count the contents of trace files (.et, plain, gzip or zstd, or .json)."""
    from armillary.trace import info as describe
    from armillary.trace import read_graph

    found = [describe(read_graph(file)) for file in files]
    alike: dict[str, list[dict[str, Any]]] = {}
    for facts in found:
        # Files that differ in name only are shown once.
        alike.setdefault(json.dumps(facts | {"source": ""}), []).append(facts)
    for group in alike.values():
        show_table(_table(group[0], len(group) - 1))
    write_json(json_file, found)


def _table(facts: dict[str, Any], others: int) -> Table:
    from rich import box
    from rich.table import Table

    from armillary.base.units import format_bytes, format_time

    deps = facts["dependencies"]
    title = f"{facts['source']}" + (f" and {others} alike" if others else "")
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column(f"Chakra {facts['version']}")
    table.add_column("nodes", justify="right")
    table.add_column("sum", justify="right")
    table.add_row("all", str(facts["nodes"]), format_time(facts["duration_micros"] * 1000))
    for name, count in facts["types"].items():
        size = facts["messages"].get(name)
        # Bytes of messages, where the type sends any.
        table.add_row(f"  {name}", str(count), format_bytes(size) if size else "")
    for name, total in facts["collectives"].items():
        table.add_row(f"  {name}", str(total["nodes"]), format_bytes(total["bytes"]))
    table.add_row("data dependencies", "", str(deps["data"]))
    table.add_row("control dependencies", "", str(deps["ctrl"]))
    if deps["dangling"]:
        table.add_row("dependencies on absent nodes", "", str(deps["dangling"]))
    if facts["unknown_fields"]:
        table.add_row("unknown fields, skipped", "", str(facts["unknown_fields"]))
    return table
