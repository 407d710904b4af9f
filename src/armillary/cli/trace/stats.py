"""`armillary trace stats`: sizes, times and operators."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from armillary.cli.command import Command
from armillary.cli.options import json_option, top_option
from armillary.cli.outputs import show_table, working, write_json
from armillary.cli.trace import SUBCOMMANDS

if TYPE_CHECKING:
    from rich.table import Table

_BAR = 20
# Rows of a table; the rest is counted.
_LANES_SHOWN = 16
_GROUPS_SHOWN = 24
_HELP = f"""{SUBCOMMANDS["stats"]}

An INPUT is a file, or the prefix of the files PREFIX.<rank>.et of all ranks. Sums are over all ranks.
"""


@click.command(
    cls=Command,
    help=_HELP,
    examples=("armillary trace stats step", "armillary trace stats step.0.et --top 3 --json -"),
)
@click.argument("inputs", type=click.Path(), nargs=-1, required=True, metavar="INPUT...")
@top_option("Operators", 10)
@json_option()
def command(inputs: tuple[str, ...], top: int, json_file: Path | None) -> None:
    """Count and print."""
    from armillary.trace.inputs import read_inputs
    from armillary.trace.stats import stats

    with working("counting"):
        # Statistics of ranks that share a graph are counted once and multiplied.
        found = [{"source": each.name} | stats(each.trace, top) for each in read_inputs(inputs)]
    for number, table in enumerate(table for facts in found for table in _tables(facts)):
        if number:
            click.echo()
        show_table(table)
    write_json(json_file, found)


def _tables(facts: dict[str, Any]) -> Iterator[Table]:
    from armillary.base.units import format_bytes, format_flops, format_time

    total = facts["all"]
    table = _table(f"{facts['source']}: {_ranks(facts)}", "nodes", "time", "share of time")
    for name, sums in {"all": total, **facts["types"]}.items():
        table.add_row(name, *_cells(sums, total))
    # Gaps between recorded nodes are no node, but time.
    if facts["gap"]["nodes"]:
        table.add_row("gaps (nothing was recorded)", *_cells(facts["gap"], total))
    yield table
    operators = facts["operators"]
    table = _table("operator (# is any number)", "nodes", "time", "share of time")
    for sums in operators:
        table.add_row(sums["name"], *_cells(sums, total))
    # "# is any number": names that differ in numbers only are one operator.
    if facts["operators_in_all"] > len(operators):
        table.add_row(f"… {facts['operators_in_all'] - len(operators):,} more", "", "", "")
    yield table
    if facts["lanes"]:
        table = _table("stream or thread", "nodes", "time", "share of time")
        for lane in facts["lanes"][:_LANES_SHOWN]:
            table.add_row(f"{lane['kind']} {lane['number']}", *_cells(lane, total))
        if len(facts["lanes"]) > _LANES_SHOWN:
            table.add_row(f"… {len(facts['lanes']) - _LANES_SHOWN:,} more", "", "", "")
        yield table
    if facts["communication"]:
        table = _table("communication", "group", "nodes", "bytes", "min", "median", "max", last="right")
        for row in facts["communication"][:_GROUPS_SHOWN]:
            sizes = [format_bytes(row[key]) for key in ("bytes", "min", "median", "max")]
            table.add_row(row["type"], row["group"] or "-", f"{row['nodes']:,}", *sizes)
        if len(facts["communication"]) > _GROUPS_SHOWN:
            table.add_row(f"… {len(facts['communication']) - _GROUPS_SHOWN:,} more")
        yield table
    # Only a trace with recorded times has durations to show.
    if total["time_ns"]:
        yield _histogram(facts)
    table = _table("graph", "", last="right")
    path, deps = facts["longest_path"], facts["dependencies"]
    # FLOPs and bytes are often not recorded.
    if facts["flops"]:
        table.add_row("operations", format_flops(facts["flops"]).removesuffix("/s"))
    if facts["bytes"]:
        table.add_row("memory traffic", format_bytes(facts["bytes"]))
    table.add_row("longest path", f"{path['nodes']:,} nodes")
    table.add_row("longest path in time", format_time(path["time_ns"]))
    if facts["starts"]:
        span = facts["starts"]["last_end_ns"] - facts["starts"]["first_ns"]
        table.add_row("first start", format_time(facts["starts"]["first_ns"]))
        table.add_row("first start to last end", format_time(span))
    for text, key in _DEPENDENCIES.items():
        # The two counts that everybody looks for are shown even if they are 0.
        if deps[key] or key in ("data", "ctrl"):
            table.add_row(text, f"{deps[key]:,}")
    yield table


_DEPENDENCIES = {
    "data dependencies": "data",
    "control dependencies": "ctrl",
    "dependencies on absent nodes": "dangling",
    "nodes that wait for none": "roots",
    "nodes that none waits for": "leaves",
    "most dependencies of a node": "most_parents",
    "most nodes that wait for one": "most_children",
}


def _histogram(facts: dict[str, Any]) -> Table:
    from armillary.base.units import format_time
    from armillary.trace.stats import BOUNDS

    table = _table("duration", "nodes", "time", "share of nodes")
    ends = dict(pairwise(BOUNDS))
    for row in facts["durations"]:
        low = row["from_ns"]
        # The last interval has no end.
        high = ends.get(low)
        text = (
            "none"
            if low == 0
            else f"from {format_time(low)}"
            if high is None
            else f"below {format_time(high)}"
        )
        table.add_row(
            text, f"{row['nodes']:,}", format_time(row["time_ns"]), _bar(row, facts["all"], "nodes")
        )
    return table


def _ranks(facts: dict[str, Any]) -> str:
    ranks, graphs = facts["ranks"], facts["graphs"]
    return f"{ranks:,} rank{'s' * (ranks > 1)}" + (f", {graphs:,} distinct" if ranks > 1 else "")


def _table(title: str, *columns: str, last: str = "left") -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column(title, min_width=32, overflow="fold")
    for column in columns[:-1]:
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column(columns[-1], justify="right" if last == "right" else "left", no_wrap=True)
    return table


def _cells(sums: dict[str, Any], total: dict[str, Any]) -> tuple[str, str, str]:
    from armillary.base.units import format_time

    return f"{sums['nodes']:,}", format_time(sums["time_ns"]), _bar(sums, total, "time_ns")


def _bar(sums: dict[str, Any], total: dict[str, Any], key: str) -> str:
    if not total[key]:
        return ""
    share = sums[key] / total[key]
    # 20 blocks wide: enough to compare rows.
    return f"{share:6.1%} {'█' * round(share * _BAR)}"
