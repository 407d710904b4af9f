"""`armillary trace`: look into execution trace files."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from armillary.cli import COMMANDS
from armillary.cli.outputs import show_table

if TYPE_CHECKING:
    from rich.table import Table

_files = click.argument("files", type=click.Path(), nargs=-1, required=True, metavar="FILE...")
_as_json: Callable[[Any], Any] = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(help=COMMANDS["trace"])
def command() -> None:
    """Group the commands about traces."""


@command.command()
@_files
@_as_json
def info(files: tuple[str, ...], as_json: bool) -> None:
    """Count what is in trace files (.et, plain, gzip or zstd, or .json)."""
    from armillary.trace import info as describe
    from armillary.trace import read_graph

    found = [describe(read_graph(file)) for file in files]
    if as_json:
        click.echo(json.dumps(found, indent=1))
        return
    alike: dict[str, list[dict[str, Any]]] = {}
    for facts in found:
        alike.setdefault(json.dumps(facts | {"source": ""}), []).append(facts)
    for group in alike.values():
        show_table(_table(group[0], len(group) - 1))


@command.command()
@_files
def dump(files: tuple[str, ...]) -> None:
    """Print nodes as JSON, one a line, after a line for each file."""
    from armillary.trace import node_at, read_graph
    from armillary.trace.json_layout import node_to_dict, plain

    for file in files:
        graph = read_graph(file)
        metadata = [[name, kind, plain(value)] for name, kind, value in graph.metadata]
        click.echo(json.dumps({"file": file, "version": graph.version, "metadata": metadata}))
        for position in range(graph.n_nodes):
            click.echo(json.dumps(node_to_dict(node_at(graph, position)), ensure_ascii=False))


@command.command()
@_files
@_as_json
@click.pass_context
def check(ctx: click.Context, files: tuple[str, ...], as_json: bool) -> None:
    """Look for what would stop or falsify a simulation; exit code 2 if there is an error."""
    from armillary.trace import check as diagnose
    from armillary.trace import read_graph

    graphs = [read_graph(file) for file in files]
    findings = [(graph.source, finding) for graph in graphs for finding in diagnose(graph)]
    if as_json:
        click.echo(json.dumps([{"file": file, **vars(finding)} for file, finding in findings], indent=1))
    else:
        for file, finding in findings:
            click.echo(f"{file}: {finding.severity}: {finding.message}")
        if not findings:
            click.echo(f"{len(files)} file{'s' * (len(files) > 1)}: nothing wrong")
    if any(finding.severity == "error" for _, finding in findings):
        ctx.exit(2)


def _table(facts: dict[str, Any], others: int) -> Table:
    from rich import box
    from rich.table import Table

    from armillary.units import format_bytes, format_time

    deps = facts["dependencies"]
    title = f"{facts['source']}" + (f" and {others} alike" if others else "")
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column(f"Chakra {facts['version']}")
    table.add_column("nodes", justify="right")
    table.add_column("sum", justify="right")
    table.add_row("all", str(facts["nodes"]), format_time(facts["duration_micros"] * 1000))
    for name, count in facts["types"].items():
        size = facts["messages"].get(name)
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
