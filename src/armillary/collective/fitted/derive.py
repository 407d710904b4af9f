"""The fit of a device on which nothing was measured: that of a sibling, by what their data sheets say."""

from __future__ import annotations

from dataclasses import replace

from armillary.collective.fitted.between import Spanning
from armillary.collective.fitted.model import CollectiveFit, DataSheet
from armillary.collective.fitted.regimes import Curve, Regime, share

SWITCH_EFFICIENCY = 0.8
"""Share of the ideal gain of in-switch reduction that remains: H100 over A100, all-reduce of 2 to 8 GPUs."""


def derive(name: str, sheet: DataSheet, sibling: CollectiveFit) -> CollectiveFit:
    """Return the fit of a device: bandwidths grow with those of the links, and so do the sizes of switches.

    Latencies are those of loops that poll flags, and go with the clock. Where only one of the two switches reduces, an
    all-reduce sends its buffer once and not 2(n-1)/n times, at `SWITCH_EFFICIENCY`. In a mesh n members use n-1 links.
    """
    # Latencies scale with the inverse of the clock.
    faster, slower = sheet.link / sibling.sheet.link, sibling.sheet.clock / sheet.clock
    inside = {
        operation: {
            members: _scaled(
                curve,
                faster
                * _in_switch(operation, members, sheet, sibling.sheet)
                * _links(members, sheet)
                / _links(members, sibling.sheet),
                slower,
            )
            for members, curve in curves.items()
        }
        for operation, curves in sibling.inside.items()
    }
    note = f"derived from {sibling.name}: {faster:.3g} times its link bandwidth, {slower:.3g} times its latencies"
    return CollectiveFit(name, sheet, inside, borrowed(sheet, sibling), sibling.sources, (note,))


def borrowed(sheet: DataSheet, other: CollectiveFit) -> dict[str, Spanning]:
    """Return what `other` knows of several nodes, with the NICs of `sheet`."""
    faster = sheet.nic / other.sheet.nic
    return {
        operation: replace(spanning, nic={count: rate * faster for count, rate in spanning.nic.items()})
        for operation, spanning in other.between.items()
    }


def _in_switch(operation: str, members: int, sheet: DataSheet, sibling: DataSheet) -> float:
    if operation != "all-reduce" or sheet.reduces == sibling.reduces:
        return 1.0
    # Never below 1: reducing in the switch must not slow a device down.
    saved = max(SWITCH_EFFICIENCY * share(operation, members), 1.0)
    return saved if sheet.reduces else 1 / saved


def _links(members: int, sheet: DataSheet) -> float:
    """Return the share of the links that `members` members use."""
    return min((members - 1) / (sheet.gpus - 1), 1.0) if sheet.mesh else 1.0


def _scaled(curve: Curve, faster: float, slower: float) -> Curve:
    # Thresholds follow the size at which transfer and latency are equal, which scales with their product.
    return tuple(
        Regime(part.up_to * faster * slower, part.latency * slower, part.bandwidth * faster) for part in curve
    )
