"""The fit of a device on which nothing was measured: that of a sibling, by what their data sheets say."""

from __future__ import annotations

from dataclasses import replace

from armillary.collective.fitted.between import Spanning
from armillary.collective.fitted.model import CollectiveFit
from armillary.collective.fitted.regimes import Curve, Regime, share
from armillary.collective.fitted.sheet import DataSheet

SWITCH_EFFICIENCY = 0.8
"""Of the bandwidth that reducing in the switch saves, what is left: H100 over A100, all-reduce of 2 to 8 GPUs."""


def derive(name: str, sheet: DataSheet, sibling: CollectiveFit) -> CollectiveFit:
    """Return the fit of a device: bandwidths grow with those of the links, and so do the sizes of switches.

    Latencies are of software and do not stand on data sheets: they stay as they are. Where only one of the two switches
    reduces, an all-reduce sends its buffer once and not 2(n-1)/n times, at `SWITCH_EFFICIENCY`.
    """
    faster = sheet.link / sibling.sheet.link
    inside = {
        operation: {
            members: _scaled(curve, faster * _in_switch(operation, members, sheet, sibling.sheet))
            for members, curve in curves.items()
        }
        for operation, curves in sibling.inside.items()
    }
    note = f"derived from {sibling.name}: links {faster:.3g} times as fast"
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
    saved = max(SWITCH_EFFICIENCY * share(operation, members), 1.0)
    return saved if sheet.reduces else 1 / saved


def _scaled(curve: Curve, faster: float) -> Curve:
    return tuple(Regime(part.up_to * faster, part.latency, part.bandwidth * faster) for part in curve)
