"""`armillary trace diff`: how two traces differ."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from armillary.cli.command import Command
from armillary.cli.options import json_option
from armillary.cli.outputs import say, show_table, working, write_json
from armillary.cli.trace import SUBCOMMANDS

if TYPE_CHECKING:
    from rich.table import Table

_SHOWN = 48
_UNITS = {
    "start_micros": "µs",
    "duration_micros": "µs",
    "attribute duration_ns": "ns",
    "attribute comm_size": "B",
    "attribute tensor_size": "B",
    "attribute num_ops": "FLOP",
}
_HELP = f"""{SUBCOMMANDS["diff"]}

A and B are files, or prefixes of the files PREFIX.<rank>.et of all ranks. Nodes are matched by id and name, or by name
and occurrence if ids were reassigned. The exit code is 0 if A and B are the same, and 1 if they differ.
"""


@click.command(
    cls=Command,
    help=_HELP,
    examples=("armillary trace diff before after", "armillary trace diff step.0.et step.1.et --json -"),
)
@click.argument("one", type=click.Path(), metavar="A")
@click.argument("two", type=click.Path(), metavar="B")
@json_option()
@click.pass_context
def command(ctx: click.Context, one: str, two: str, json_file: Path | None) -> None:
    """Compare and print."""
    from armillary.trace.diff import diff
    from armillary.trace.inputs import read_input

    with working("comparing"):
        # Both are read completely: nodes are matched by id and name.
        found = diff(read_input(one).trace, read_input(two).trace)
    _show(found)
    write_json(json_file, found)
    if not found["same"]:
        ctx.exit(1)


def _show(found: dict[str, Any]) -> None:
    before, after = found["ranks"]
    if before != after:
        say(f"{before:,} ranks before, {after:,} after")
    for graph in found["graphs"]:
        # Graphs that are equal are only counted.
        if not graph["same"]:
            show_table(_table(graph, found["ranks"]))
    same = sum(len(graph["ranks"]) for graph in found["graphs"] if graph["same"])
    differ = sum(len(graph["ranks"]) for graph in found["graphs"]) - same
    if max(before, after) == 1:
        click.echo("they differ" if differ else "they are the same")
    else:
        say(f"{same:,} rank{'s' * (same != 1)} the same, {differ:,} different")


def _table(graph: dict[str, Any], ranks: list[int]) -> Table:
    from rich import box
    from rich.table import Table

    from armillary.base.units import format_bytes, format_count, format_time

    mine = graph["ranks"]
    # Where there are several ranks, who has this graph.
    who = f" (rank {mine[0]}{f' and {len(mine) - 1:,} alike' if len(mine) > 1 else ''})" * (max(ranks) > 1)
    title = f"{graph['sources'][0]} -> {graph['sources'][1]}{who}"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("what", no_wrap=True)
    table.add_column("nodes", justify="right")
    table.add_column("before", overflow="fold")
    table.add_column("after", overflow="fold")
    table.add_column("for example", overflow="fold")
    # Totals first: they show at once whether anything of weight changed.
    for what, unit in (("nodes", format_count), ("time_ns", format_time), ("bytes", format_bytes)):
        before, after = graph[what]
        name = {"nodes": "all", "time_ns": "sum of durations", "bytes": "sum of comm_size"}[what]
        table.add_row(name, "", unit(before), "" if before == after else unit(after), "")
    # Types, not names: a rename shows below.
    for what in ("removed", "added"):
        if graph[what]["count"]:
            types = ", ".join(f"{count:,} {name}" for name, count in graph[what]["types"].items())
            cells = (types, "") if what == "removed" else ("", types)
            table.add_row(what, f"{graph[what]['count']:,}", *cells, _node(graph[what]["examples"][0]))
    for field, change in graph["changed"].items():
        example = change["examples"][0]
        table.add_row(
            field,
            f"{change['count']:,}",
            _short(example["before"], _UNITS.get(field, "")),
            _short(example["after"], _UNITS.get(field, "")),
            _node(example),
        )
    return table


def _node(example: dict[str, Any]) -> str:
    return _short(f"{example['id']} '{example['name']}'") if "id" in example else ""


def _short(value: Any, unit: str = "") -> str:
    """Return a value in few characters; a number with its unit and all digits, since these may differ in the last."""
    text = "none" if value is None else f"{value:,} {unit}" if unit and isinstance(value, int) else str(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
