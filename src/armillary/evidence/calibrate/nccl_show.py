"""A fit of collectives and its errors, as tables for the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from armillary.base.units import format_bandwidth, format_bytes, format_time
from armillary.collective.fitted.model import CollectiveFit
from armillary.evidence.calibrate.nccl import Prediction
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


def regime_table(fit: CollectiveFit) -> Table:
    """Return the regimes within a node."""
    table = _table(("operation", "GPUs", "up to", "latency", "bandwidth"), 1)
    for operation, curves in fit.inside.items():
        for members, curve in curves.items():
            for part in curve:
                bandwidth = "any" if part.bandwidth == math.inf else format_bandwidth(part.bandwidth)
                table.add_row(operation, str(members), _end(part.up_to), format_time(part.latency), bandwidth)
    return table


def network_table(fit: CollectiveFit) -> Table:
    """Return the regimes between nodes, and what a NIC carries by how many members of a node use theirs."""
    table = _table(("operation", "up to", "latency", "per doubling", "per ring step", "NICs of (GB/s)"), 1)
    for operation, spanning in fit.between.items():
        # Rates of NICs are the same in all regimes: shown once.
        rates = ", ".join(f"{count}: {rate:.3g}" for count, rate in spanning.nic.items())
        for stage in spanning.stages:
            times = (format_time(value) if value else "-" for value in (stage.base, stage.hop, stage.step))
            table.add_row(operation, _end(stage.up_to), *times, rates)
            rates = ""
    return table


def error_table(fitted: Sequence[Prediction], held_out: Sequence[Prediction]) -> Table:
    """Return mean and largest absolute errors by operation: of the fit, and of sizes that a fit had not seen."""
    table = _table(("operation", "cases", "mean error", "largest", "unseen sizes: mean", "largest"), 1)
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


def _end(size: float) -> str:
    return "any larger" if size == math.inf else format_bytes(size)


def _table(columns: Sequence[str], left: int) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, name in enumerate(columns):
        table.add_column(name, justify="left" if number < left else "right")
    return table
