"""`armillary trace slice`: cut a part out of a trace."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from armillary.base.errors import InputError
from armillary.cli.command import Command, option
from armillary.cli.options import comm_groups_option, out_option
from armillary.cli.outputs import say, working
from armillary.cli.trace import SUBCOMMANDS
from armillary.cli.trace.group_file import read_group_file

if TYPE_CHECKING:
    from armillary.trace import Trace

_HELP = f"""{SUBCOMMANDS["slice"]}

INPUT and OUT are files, or both are prefixes of the files PREFIX.<rank>.et of all ranks. A node must meet every
condition; a repeated condition accepts any of its values. METADATA nodes stay. A node that waited for a removed node
waits for the nearest remaining nodes before it.
"""


_NODES, _NEAR = "Which nodes", "And what is near them"


@click.command(
    cls=Command,
    help=_HELP,
    examples=(
        "armillary trace slice step -o compute --type comp",
        "armillary trace slice step.0.et -o near.et --around 12 --depth 3",
    ),
)
@click.argument("source", type=click.Path(), metavar="INPUT")
@out_option
@option(
    "--nodes", multiple=True, metavar="A-B", heading=_NODES, help="Nodes with ids from A to B (or just A)."
)
@option(
    "--name", multiple=True, metavar="REGEX", heading=_NODES, help="Nodes with REGEX somewhere in their name."
)
@option(
    "--type",
    "types",
    multiple=True,
    metavar="TYPE",
    heading=_NODES,
    help="Nodes of type comp, comm-send, …, or all-reduce, ….",
)
@option(
    "--from",
    "first",
    metavar="TIME",
    heading=_NODES,
    help="Nodes that start at TIME or later, such as 1.5ms.",
)
@option(
    "--to",
    "last",
    metavar="TIME",
    heading=_NODES,
    help="… and at TIME or earlier; +1.5ms counts from the first start.",
)
@option("--around", multiple=True, type=int, metavar="ID", heading=_NEAR, help="Nodes near ID.")
@option(
    "--depth",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    heading=_NEAR,
    help="Number of dependencies that --around follows.",
)
@option(
    "--ancestors-of",
    multiple=True,
    type=int,
    metavar="ID",
    heading=_NEAR,
    help="ID and all nodes that it waits for.",
)
@option(
    "--descendants-of",
    multiple=True,
    type=int,
    metavar="ID",
    heading=_NEAR,
    help="ID and all nodes that wait for it.",
)
@comm_groups_option
def command(source: str, out: Path, comm_groups: Path | None, **options: Any) -> None:
    """Cut and write."""
    from armillary.base.files import check_prefix
    from armillary.trace import write_graph, write_trace
    from armillary.trace.check_ranks import check_ranks
    from armillary.trace.inputs import read_input
    from armillary.trace.select import Selection
    from armillary.trace.slice import slice_trace

    # Ranges are read before the trace, which may be large.
    ids = [_range(text) for texts in options["nodes"] for text in texts.split(",")]
    with working("cutting"):
        found = read_input(source)
        trace = found.trace
        # A prefix is written to several files.
        if found.whole:
            check_prefix("--out", out)
        # Times may be relative to the trace's start, so that they are read after it.
        first = _time("--from", options["first"], trace)
        last = _time("--to", options["last"], trace)
        selection = Selection(
            ids, options["name"], options["types"], first, last, options["around"], options["depth"],
            options["ancestors_of"], options["descendants_of"],
        )  # fmt: skip
        # Groups decide whether ranks still fit each other after the cut.
        known = read_group_file(comm_groups, trace.n_ranks)
        part = slice_trace(trace, selection.masks(trace))
        # A cut may have removed one end of a message: warned, not refused.
        warnings = [finding.message for finding in check_ranks(part.trace, known)] if found.whole else []
        if found.whole:
            write_trace(out, part.trace)
        else:
            write_graph(out, part.trace.graphs[0])
    # Nodes where many meet cannot be left out without making the graph dense.
    if part.joins:
        warnings.append(
            f"{part.joins} nodes where many meet stay, as METADATA nodes without anything in them"
        )
    for warning in warnings:
        say(f"warning: {warning}", err=True)
    # Nodes of all ranks, in what stays and in what was there.
    counts = [sum(t.graph(rank).n_nodes for rank in range(t.n_ranks)) for t in (part.trace, trace)]
    what = f"{out}.<rank>.et: {trace.n_ranks:,} ranks, " if found.whole else f"{out}: "
    say(f"wrote {what}{counts[0]:,} of {counts[1]:,} nodes", err=True)


def _range(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"\s*(\d{1,20})\s*(?:-\s*(\d{1,20})\s*)?", text)
    # (1, 0) fails the test below.
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    # Ids are unsigned 64-bit numbers.
    if not first <= last < 2**64:
        raise InputError(f"--nodes {text}: expected an id, or a range of ids such as 10-20")
    return first, last


def _time(option: str, text: str | None, trace: Trace) -> float | None:
    """Return a time in ns; with a plus before it, it counts from the first start."""
    from armillary.base.units import parse_time
    from armillary.trace.select import first_start

    if text is None:
        return None
    try:
        time = parse_time(text)
    except ValueError as error:
        raise InputError(f"{option}: {error}") from error
    # A plus in front means relative to the first start.
    return time + first_start(trace) if text.lstrip().startswith("+") else time
