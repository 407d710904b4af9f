"""Tables of the memory of a plan, and of changes that make it fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.base.units import format_bytes
from armillary.workload.memory.advice import Advice
from armillary.workload.memory.footprint import Footprint

if TYPE_CHECKING:
    from rich.table import Table

TITLES = {
    "weights": "weights",
    "gradients": "gradients",
    "optimizer": "optimizer states",
    "buffers": "dummy gradients, workspaces",
    "activations": "activations",
    "cache": "keys and values",
    "logits": "logits",
    "working": "working buffers",
    "communication": "communication buffers",
    "fragmentation": "fragmentation (allowance)",
    "context": "CUDA context (assumed)",
    "nccl": "NCCL buffers (assumed)",
}
_CLOSEST = 3


def memory_table(footprint: Footprint, capacity: int | None = None) -> Table:
    """Return the bytes of every category at the peak, and their shares of the capacity or of the sum."""
    whole = capacity or footprint.needed
    table = _table(f"Memory of pipeline rank {footprint.stage} at its peak: {footprint.where}")
    for name in ("category", "bytes", "of the capacity" if capacity else "share"):
        table.add_column(name, justify="left" if name == "category" else "right")

    def add(title: str, size: int) -> None:
        table.add_row(title, format_bytes(size), f"{100 * size / whole:.1f} %")

    sums = {"fragmentation": ("allocated", footprint.peak), "context": ("reserved", footprint.reserved)}
    for category, size in footprint.at_peak.items():
        if category in sums:
            # What PyTorch's allocator reports, before the allowances that follow.
            table.add_section()
            add(*sums[category])
        if size:
            add(TITLES[category], size)
    table.add_section()
    add("needed", footprint.needed)
    if capacity is not None:
        rest = capacity - footprint.needed
        table.add_row("free" if rest >= 0 else "missing", format_bytes(abs(rest)), "")
    return table


def memory_line(footprint: Footprint, capacity: int | None = None) -> str:
    """Return weights, keys and values, and whether it fits, of the rank that needs most."""
    peak, needed = footprint.at_peak, format_bytes(footprint.needed)
    parts = [f"{TITLES[name]} {format_bytes(peak[name])}" for name in ("weights", "cache") if peak[name]]
    text = f"{', '.join(parts)}; {needed} per rank"
    if capacity is None:
        return text
    fits = "fits" if footprint.needed <= capacity else "does not fit"
    return f"{text}, {fits} into {format_bytes(capacity)}"


def advice_line(advice: Advice) -> str:
    """Return whether the plan fits, for people."""
    needed, capacity = format_bytes(advice.footprint.needed), format_bytes(advice.capacity)
    if advice.fits:
        return f"It fits: {needed} of {capacity}."
    if advice.fitting:
        return f"It does not fit: {needed} of {capacity}. Any one of these changes is enough:"
    return f"It does not fit: {needed} of {capacity}. No single change is enough; the closest:"


def advice_table(advice: Advice) -> Table:
    """Return the changes that make the plan fit; if none suffices, those that come closest."""
    table = _table(None)
    table.add_column("change")
    table.add_column("needed", justify="right")
    table.add_column("of the capacity", justify="right")
    closest = sorted(advice.changes, key=lambda change: change.needed)[:_CLOSEST]
    for change in advice.fitting or closest:
        table.add_row(
            change.text, format_bytes(change.needed), f"{100 * change.needed / advice.capacity:.1f} %"
        )
    return table


def _table(title: str | None) -> Table:
    from rich import box
    from rich.table import Table

    return Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
