"""A fit of collectives and its errors, as tables for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from armillary.base.units import format_bandwidth, format_time
from armillary.collective.fitted.mechanism import Mechanism
from armillary.collective.fitted.model import CollectiveFit
from armillary.evidence.calibrate.nccl import Prediction
from armillary.evidence.calibrate.nccl_mechanism import constants_of
from armillary.evidence.calibrate.samples import Sample, merged

if TYPE_CHECKING:
    from rich.table import Table


def headline(fit: CollectiveFit, device: str, samples: Sequence[Sample]) -> str:
    """Return one line: what was fitted to what."""
    known = merged(samples)
    nodes = max(sample.nodes for sample in known)
    most = max(sample.members for sample in known)
    return (
        f"{fit.name}: {device}, up to {most} GPUs"
        + (f" on {nodes} nodes" if nodes > 1 else "")
        + f"; {len(samples)} times of {len(known)} cases"
    )


def line_table(mechanism: Mechanism) -> Table:
    """Return the lines within a node and between nodes."""
    table = plain_columns(("where", "protocol", "overhead", "per hop", "bandwidth"), 2)
    for name, line in mechanism.lines.items():
        table.add_row("node", name, _time(line.overhead), _time(line.hop), format_bandwidth(line.bandwidth))
    for name, outer in mechanism.network.items():
        table.add_row("network", name, "-", _time(outer.hop), format_bandwidth(outer.bandwidth))
    return table


def constants_line(fit: CollectiveFit, samples: Sequence[Sample]) -> str:
    """Return how many constants there are for how many cases."""
    assert fit.mechanism is not None
    count = len(constants_of(fit.mechanism))
    return f"{count} constants for {len(merged(samples))} cases; those that no case tells are as on other such devices"


def error_table(fitted: Sequence[Prediction], held_out: Sequence[Prediction]) -> Table:
    """Return mean and largest absolute errors by operation: of the fit, and of sizes that a fit had not seen."""
    table = plain_columns(("operation", "cases", "mean error", "largest", "unseen sizes: mean", "largest"), 1)
    operations = sorted({each.sample.operation for each in fitted})
    # A sum over one operation would repeat it.
    for operation in (*operations, "all") if len(operations) > 1 else operations:
        seen, unseen = (
            [abs(each.error) for each in found if operation in ("all", each.sample.operation)]
            for found in (fitted, held_out)
        )
        table.add_row(operation, str(len(seen)), *_errors(seen), *_errors(unseen))
    return table


def _errors(errors: Sequence[float]) -> tuple[str, str]:
    if not errors:
        return "-", "-"
    return f"{sum(errors) / len(errors):.1%}", f"{max(errors):.1%}"


def _time(ns: float) -> str:
    return format_time(ns) if ns else "-"


def plain_columns(columns: Sequence[str], left: int) -> Table:
    """Return an empty table whose first `left` columns hold text, and the others numbers."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, name in enumerate(columns):
        table.add_column(name, justify="left" if number < left else "right")
    return table
