"""`armillary trace extrapolate`: extrapolate a trace to more ranks, other batches or hardware."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from armillary.base.errors import InputError, nearest, one_of
from armillary.cli.command import Command, option
from armillary.cli.generate.request import Request, request_options
from armillary.cli.options import comm_groups_option, ranks_option
from armillary.cli.outputs import show_table, working
from armillary.cli.trace import SUBCOMMANDS
from armillary.cli.trace.group_file import read_group_file

if TYPE_CHECKING:
    from rich.table import Table

    from armillary.lab.extrapolation import Evidence, Extrapolated, Reference
    from armillary.trace import Trace

_PATH = click.Path(path_type=Path)
_SCALED = ("dp", "tp", "pp", "cp", "ep", "batch", "sequence", "microbatches")
_HELP = f"""{SUBCOMMANDS["extrapolate"]}

INPUT is a prefix of the files PREFIX.<rank>.et of all ranks, or with --from-one-rank the file of one rank. The command
infers from groups, collectives and messages which ranks are data, tensor, pipeline, context or expert parallel, unless
--axes or --group states it. Without --scale it prints only that. dp, tp, pp, cp and ep scale to a number of ranks (ep
ranks are dp ranks, whose number stays the same); batch (samples of a microbatch), sequence and microbatches scale by a
factor. Every applied rule is listed, with its number of nodes.
"""


_WHAT, _FOUND, _LAWS = "What is scaled", "What the ranks are", "How it scales"


@click.command(
    cls=Command,
    help=_HELP,
    examples=(
        "armillary trace extrapolate step",
        "armillary trace extrapolate step --scale dp=16 --scale batch=2 --out larger",
    ),
)
@click.argument("source", type=click.Path(), metavar="INPUT")
@option(
    "--scale",
    multiple=True,
    metavar="AXIS=N",
    heading=_WHAT,
    help=f"One of {', '.join(_SCALED)}; may be repeated.",
)
@ranks_option("Total number of ranks; changes the number of replicas.", heading=_WHAT)
@option(
    "--axes",
    "axes_text",
    metavar="AXIS=N,…",
    heading=_FOUND,
    help="All axes, neighbouring ranks first, e.g. tp=2,dp=4,pp=2.",
)
@option(
    "--group",
    "roles",
    multiple=True,
    metavar="AXIS=GROUP",
    heading=_FOUND,
    help="Group that lies along an axis, e.g. dp=3.",
)
@option("--from-one-rank", is_flag=True, heading=_FOUND, help="All ranks do what the rank of the file did.")
@option(
    "--sizes",
    metavar="batch=N,sequence=N",
    heading=_FOUND,
    help="Sizes of the trace, if its token ids do not show them.",
)
@option(
    "--also",
    multiple=True,
    metavar="PREFIX",
    heading=_LAWS,
    help="A second run, to measure scaling laws from …",
)
@option("--at", "at", multiple=True, metavar="AXIS=N", heading=_LAWS, help="… and its size, as for --scale.")
@option(
    "--hardware",
    type=_PATH,
    nargs=2,
    metavar="FROM TO",
    heading=_LAWS,
    help="Convert recorded durations from one machine to the other.",
)
@comm_groups_option
@request_options()
def command(
    source: str,
    scale: tuple[str, ...],
    ranks: int | None,
    axes_text: str | None,
    roles: tuple[str, ...],
    from_one_rank: bool,
    also: tuple[str, ...],
    at: tuple[str, ...],
    sizes: str | None,
    hardware: tuple[Path, Path] | None,
    comm_groups: Path | None,
    request: Request,
) -> None:
    """Recognise, extrapolate, list assumptions, and write or simulate."""
    from armillary.lab.extrapolation import extrapolate
    from armillary.platform import load_platform

    # Scales of axes and factors together: `extrapolate` tells them apart.
    wanted: dict[str, Fraction | int] = dict(_pairs("--scale", scale, _SCALED))
    if ranks:
        wanted["ranks"] = ranks
    # Axes that the user knows, so that they are not guessed.
    told = _whole("--axes", (axes_text or "").split(",") if axes_text else ())
    own = _whole("--group", roles)
    known = _whole("--sizes", sizes.split(",") if sizes else (), ("batch", "sequence"))
    if sizes and len(known) < 2:
        raise InputError(f"--sizes {sizes}: expected both, e.g. batch=4,sequence=64")
    # A run and its size belong together.
    if len(also) != len(at):
        raise click.UsageError("each --also needs an --at, and each --at an --also")
    platform = request.platform()
    # Which ranks form which axis: the evidence is printed.
    with working("recognising"):
        trace, evidence = _read(source, from_one_rank, told, own, comm_groups)
    references = {axis: _reference(axis, value, name, trace, told) for name, (axis, value) in
                  zip(also, _pairs("--at", at, _SCALED).items(), strict=True)}  # fmt: skip
    # Durations go from the first machine to the second.
    machines = (load_platform(hardware[0]), load_platform(hardware[1])) if hardware else None
    with working("extrapolating"):
        found = extrapolate(
            trace, wanted, axes=evidence, references=references,
            sizes=(known["batch"], known["sequence"]) if known else None, hardware=machines,
        )  # fmt: skip
    show_table(_axes_table(found))
    if found.assumptions:
        click.echo()
        show_table(_assumptions_table(found))
        # What no rule knew stays as it was, and is named.
        click.echo(_unclassified(found))
    request.carry_out(found.trace, platform, found.report())


def _read(
    source: str, one: bool, told: dict[str, int], own: dict[str, int], groups: Path | None
) -> tuple[Trace, tuple[Evidence, ...]]:
    from math import prod

    from armillary.lab.extrapolation import ranks_named_by, recognise, recognise_one
    from armillary.trace import read_graph
    from armillary.trace.inputs import read_input
    from armillary.trace.trace import recorded_rank

    # One file: its rank is in its metadata or in its name.
    if one:
        graph = read_graph(source)
        count = prod(told.values()) if told else ranks_named_by(graph)
        match = re.search(r"\.(\d+)\.(?:et|json)", Path(source).name)
        said = recorded_rank(graph)
        rank = said if said is not None else int(match[1]) if match else 0
        # A rank beyond the count would be a contradiction: rank 0 then.
        rank = rank if rank < count else 0
        return recognise_one(graph, rank, count, axes=told, groups=own, given=read_group_file(groups, count))
    found = read_input(source)
    # A prefix that names one file only.
    if not found.whole:
        raise InputError(f"{source} is the file of one rank; expected the prefix of all, or --from-one-rank")
    given = read_group_file(groups, found.trace.n_ranks)
    return recognise(found.trace, axes=told, groups=own, given=given)


def _reference(axis: str, value: Fraction, name: str, trace: Trace, told: dict[str, int]) -> Reference:
    from armillary.lab.extrapolation import Reference, recognise
    from armillary.trace import load_trace
    from armillary.trace.axis_sets import grid_of

    # The other run differs in this axis only.
    sizes = {role: int(value) if role == axis else size for role, size in told.items()}
    other, _ = recognise(load_trace(name), axes=sizes)
    grid = grid_of(trace)
    # Factors are relative to the trace: axes to its size, factors to 1.
    ratio = value / grid.size(axis) if axis in grid.axes else value
    if ratio == 1:
        raise InputError(f"--at {axis}={value}: the trace has that size itself; expected another")
    return Reference(other, ratio, name)


def _pairs(option: str, texts: tuple[str, ...], known: tuple[str, ...]) -> dict[str, Fraction]:
    found: dict[str, Fraction] = {}
    # "a=1,b=2" and two options are both taken.
    for text in (part for each in texts for part in each.split(",")):
        axis, _, value = text.partition("=")
        if axis not in known:
            raise InputError(
                f"{option} {text}: no axis '{axis}', expected {one_of(known)}{nearest(axis, known)}"
            )
        try:
            # Fraction reads "0.5" and "1/2" exactly.
            number = Fraction(value)
        except (ValueError, ZeroDivisionError):
            raise InputError(f"{option} {text}: expected a number, e.g. {axis}=8") from None
        if axis in found:
            raise InputError(f"{option} {text}: {axis} is given twice")
        found[axis] = number
    return found


def _whole(
    option: str, texts: Any, known: tuple[str, ...] = ("tp", "cp", "ep", "dp", "pp")
) -> dict[str, int]:
    found = _pairs(option, tuple(texts), known)
    for axis, value in found.items():
        # A group's number may be 0; a size may not.
        if value.denominator > 1 or value < (0 if option == "--group" else 1):
            raise InputError(f"{option} {axis}={value}: expected a whole number")
    return {axis: int(value) for axis, value in found.items()}


def _axes_table(found: Extrapolated) -> Table:
    from rich import box
    from rich.table import Table

    from armillary.lab.extrapolation.extrapolate import FACTORS

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in ("axis", "from", "to", "because"):
        table.add_column(column, justify="right" if column in ("from", "to") else "left")
    # A result without a grid has no axes to show.
    grid = found.trace.grid
    assert grid is not None
    for each in found.axes:
        old, new = found.changes.get(each.role, (each.size, grid.size(each.role)))
        table.add_row(each.role, f"{int(old):,}", f"{int(new):,}", each.reason)
    for axis, (old, new) in found.changes.items():
        # Factors are no axes, but belong into the same table.
        if not any(axis == each.role for each in found.axes):
            unit = " x" if axis in FACTORS else ""
            table.add_row(axis, f"{float(old):g}{unit}", f"{float(new):g}{unit}", "as asked")
    table.add_row("ranks", f"{found.before.n_ranks:,}", f"{found.trace.n_ranks:,}", "")
    table.add_row("nodes", f"{found.before.total_nodes:,}", f"{found.trace.total_nodes:,}", "of all ranks")
    return table


def _unclassified(found: Extrapolated) -> str:
    """Return how much work no rule classifies; a share above 0 names most of it."""
    work = found.unclassified
    text = f"No rule classified {work.operations:.1%} of the operations and {work.bytes:.1%} of the bytes of kernels"
    if not work.names:
        return text + "."
    names = [f"{name} ({count:,})" for name, count in list(work.names.items())[:5]]
    return f"{text}, which stay: {', '.join(names)}{', …' if len(work.names) > 5 else ''}."


def _assumptions_table(found: Extrapolated) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("assumption")
    table.add_column("nodes", justify="right")
    for each in found.assumptions:
        table.add_row(each.rule, f"{each.nodes:,}" if each.nodes else "-")
    return table
