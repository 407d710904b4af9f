"""`armillary plan allocate`: spend a budget of bandwidth, or of money, on the dimensions of a network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from armillary.base.errors import InputError
from armillary.cli.command import Command, option
from armillary.cli.options import json_option, programs_option
from armillary.cli.outputs import show_table, working, write_json
from armillary.cli.plan import SUBCOMMANDS
from armillary.cli.values import complete_costs

if TYPE_CHECKING:
    from rich.table import Table

    from armillary.explore.cost.allocation.compare import Comparison
    from armillary.explore.cost.allocation.traffic import Floats
    from armillary.platform.model import Platform

_HELP = f"""{SUBCOMMANDS["allocate"]}

STUDY is a study file whose network has dimensions. A simulation with equal bandwidths provides its traffic. The
allocation minimises communication time, and is simulated next to the equal one. Needs scipy (extra cost).
"""


@click.command(
    cls=Command,
    help=_HELP,
    examples=(
        'armillary plan allocate study.yaml --budget "1000 GB/s"',
        'armillary plan allocate study.yaml --dollars "20 MUSD" --costs libra',
    ),
)
@click.argument("study", type=click.Path(path_type=Path))
@option(
    "--budget", metavar="BANDWIDTH", help='Total bandwidth of an NPU over all dimensions, e.g. "1000 GB/s".'
)
@option("--dollars", metavar="PRICE", help='Price of the network instead, e.g. "20 MUSD"; needs --costs.')
@option(
    "--costs",
    metavar="COSTS",
    shell_complete=complete_costs,
    help="Prices per GB/s: a file, or a preset, e.g. libra.",
)
@option(
    "--min",
    "least",
    multiple=True,
    metavar="NAME=BANDWIDTH",
    help="Minimum for a dimension (by default 1 % of an equal share).",
)
@option(
    "--max",
    "most",
    multiple=True,
    metavar="NAME=BANDWIDTH",
    help="Maximum for a dimension; the same value as --min fixes it.",
)
@option("--step", metavar="BANDWIDTH", help="Allocate only multiples of this.")
@json_option()
@programs_option
def command(
    study: Path,
    budget: str | None,
    dollars: str | None,
    costs: str | None,
    least: tuple[str, ...],
    most: tuple[str, ...],
    step: str | None,
    json_file: Path | None,
) -> None:
    """Allocate, simulate and print."""
    from armillary.explore.cost.allocation.compare import compare
    from armillary.platform.files.native import load_study
    from armillary.report.summary import first_lines

    # Exactly one of them.
    if (budget is None) == (dollars is None):
        raise click.UsageError("expected --budget or --dollars, one of them")
    if (dollars is None) != (costs is None):
        raise click.UsageError("--dollars and --costs go together")
    plan = load_study(study)
    # In the unit of the budget: bandwidth itself, or money.
    price, total = _budget(plan.platform, budget, dollars, costs)
    width = _bandwidth("--step", step) if step else 0.0
    with working("simulating"):
        found = compare(
            plan, price, total, least=_limits("--min", least), most=_limits("--max", most), step=width
        )
    for line in first_lines(found.equal_run):
        click.echo(line)
    show_table(_table(found, money=dollars is not None))
    for line in _lines(found):
        click.echo(line)
    write_json(json_file, _json(found))


def _budget(
    platform: Platform, budget: str | None, dollars: str | None, costs: str | None
) -> tuple[Floats, float]:
    import numpy as np

    from armillary.base.units import parse_money
    from armillary.explore.cost import load_costs
    from armillary.explore.cost.price import per_bandwidth

    if budget is not None:
        # All dimensions cost the same per GB/s.
        return np.ones(len(platform.dimensions)), _bandwidth("--budget", budget)
    assert dollars is not None and costs is not None
    try:
        total = parse_money(dollars)
    except ValueError as error:
        raise InputError(f"--dollars: {error}") from error
    if not total:
        raise InputError("--dollars: got 0, expected more than 0")
    return np.array(per_bandwidth(platform, load_costs(costs))), total


def _bandwidth(option: str, text: str) -> float:
    from armillary.base.units import parse_bandwidth

    try:
        value = parse_bandwidth(text)
    except ValueError as error:
        raise InputError(f"{option}: {error}") from error
    if not value:
        raise InputError(f"{option}: got '{text}', expected more than 0, e.g. '1000 GB/s'")
    return value


def _limits(option: str, given: tuple[str, ...]) -> dict[str, float]:
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"{option}: got '{text}', expected NAME=BANDWIDTH, e.g. 'pod=50 GB/s'")
        found[name.strip()] = _bandwidth(f"{option} {name.strip()}", value)
    return found


def _table(found: Comparison, *, money: bool) -> Table:
    from rich import box
    from rich.table import Table

    from armillary.base.units import format_bandwidth, format_bytes

    # Per NPU, of the run with equal bandwidths.
    from armillary.explore.cost import use_of

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in (
        "dimension",
        "topology",
        "size",
        "sent by an NPU",
        "equal",
        "allocated",
        *(["price"] if money else []),
    ):
        table.add_column(name, justify="left" if name in ("dimension", "topology") else "right")
    used = use_of(found.equal_run)
    moved = [size / used.npus for size in used.moved]
    rows = zip(
        found.platform.dimensions,
        moved,
        found.equal.bandwidth,
        found.best.bandwidth,
        found.price,
        strict=True,
    )
    for dimension, size, equal, best, price in rows:
        cells = [format_bytes(size), format_bandwidth(equal), format_bandwidth(best)]
        cells += [f"${price * best:,.0f}"] if money else []
        table.add_row(dimension.name, dimension.topology, f"{dimension.size:,}", *cells)
    return table


def _lines(found: Comparison) -> list[str]:
    from armillary.base.units import format_time
    from armillary.report.job_tables import exposed

    equal, best = found.equal, found.best
    lines = [
        "",
        f"communication one after the other: {format_time(equal.time)} equal, {format_time(best.time)} allocated: "
        # 1: neither takes time.
        f"{equal.time / best.time if best.time else 1:.2f} x",
        f"no other split of this budget takes less than {format_time(best.bound)} (gap {100 * best.gap:.2g} %)",
    ]
    for what, values in {
        "simulated step": (found.equal_run.total_ticks, found.best_run.total_ticks),
        "of it exposed communication": (exposed(found.equal_run), exposed(found.best_run)),
    }.items():
        # A part of 0 has no ratio.
        ratio = f": {values[0] / values[1]:.2f} x" if values[1] else ""
        lines.append(f"{what}: {format_time(values[0])} equal, {format_time(values[1])} allocated{ratio}")
    return lines


def _json(found: Comparison) -> dict[str, Any]:
    names = [dimension.name for dimension in found.platform.dimensions]
    return {
        "schema": "armillary-allocation",
        "version": 1,
        "dimensions": [
            {"name": name, "equal_bytes_per_ns": equal, "allocated_bytes_per_ns": best}
            for name, equal, best in zip(
                names, found.equal.bandwidth.tolist(), found.best.bandwidth.tolist(), strict=True
            )
        ],
        "communication_ns": {
            "equal": found.equal.time,
            "allocated": found.best.time,
            "bound": found.best.bound,
        },
        "step_ns": {"equal": found.equal_run.total_ticks, "allocated": found.best_run.total_ticks},
    }
