"""What was observed of a machine, as tables for the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from math import exp, isnan
from pathlib import Path
from typing import TYPE_CHECKING

from armillary.base.units import format_time
from armillary.evidence.calibrate.nccl_show import plain_columns
from armillary.evidence.calibrate.observe.machine import Found

if TYPE_CHECKING:
    from rich.table import Table

SURELY = 1.645
"""Standard deviations on each side of 90 % of a normal distribution."""


def part_table(found: Found) -> Table:
    """Return what was observed, what it decides, and how far predictions were from what they had not seen."""
    table = plain_columns(("part", "observed", "times", "decide", "held out", "90 % within"), 1)
    for row in _parts(found):
        table.add_row(*row)
    return table


def _parts(found: Found) -> Iterator[tuple[str, ...]]:
    if found.kernels:
        for name, fit in found.kernels.fits.items():
            wide = max(fit.spread.values(), default=float("nan"))
            yield (
                f"GEMMs, {name}",
                f"{fit.shapes:,}",
                f"{fit.rows:,}",
                _count(len(fit.free)),
                _share(fit.mean),
                _wide(wide),
            )
    if found.network:
        network = found.network
        places = {place for _, place in network.fit.measured}
        known = [network.fit.spread[place]["any"] for place in places]
        wide = max(known, default=float("nan"))
        yield (
            "collectives", f"{network.cases:,}", f"{network.rows:,}", _count(network.moved), _share(network.mean),
            _wide(wide),
        )  # fmt: skip
    if found.steps:
        steps = found.steps
        times = sum(len(row.seconds) for row in steps.rows)
        yield (
            "steps", f"{len(steps.rows):,}", f"{times:,}", _count(len(steps.names)), _share(steps.held_out),
            _wide(steps.spread.step),
        )  # fmt: skip


def step_table(found: Found) -> Table:
    """Return measured steps beside what is predicted, with and without having seen them."""
    table = plain_columns(("row", "batch", "measured", "held out", "predicted", "90 % interval"), 1)
    rows = found.steps.rows if found.steps else ()
    for row, again in zip(rows, found.again, strict=True):
        low, high = again.interval_s
        table.add_row(
            Path(row.case.label).name,
            f"{again.plan.batch:,}",
            _time(row.case.seconds()),
            _time(row.held_out),
            _time(again.step_time_s),
            f"{_time(low)} to {_time(high)}",
        )
    return table


def _count(number: int) -> str:
    return f"{number} constant" + "s" * (number != 1)


def _share(value: float) -> str:
    return "-" if isnan(value) else f"{100 * value:.1f} %"


def _wide(deviation: float) -> str:
    return "-" if isnan(deviation) else f"a factor of {exp(SURELY * deviation):.2f}"


def _time(seconds: float) -> str:
    return format_time(seconds * 1e9)
