"""The fit of a device on which nothing was measured: that of a sibling, by what their data sheets say."""

from __future__ import annotations

from dataclasses import replace

from armillary.collective.fitted.mechanism import (
    GATHER,
    LL128_DATA,
    MESSAGE_LL,
    SHARING,
    Line,
    Mechanism,
    Outer,
)
from armillary.collective.fitted.model import CollectiveFit
from armillary.collective.fitted.sheet import DataSheet
from armillary.collective.fitted.tuning import LL, LL128, NVLS, PCIE, SIMPLE, has_ll128

_HOP, _BANDWIDTH = 2.0, 0.65
"""Hop of LL128 by that of LL, and its bandwidth by that of Simple, where a sibling has none: as on A100 and H100."""
_ACROSS = 4 / 14
"""A hop of LL128 between nodes by that of Simple, where a sibling has none (4 of 14 us in NCCL's table hwLatencies)."""


def derive(name: str, sheet: DataSheet, sibling: CollectiveFit) -> CollectiveFit:
    """Return the fit of a device: bandwidths grow with those of links and NICs, latencies shrink with the clock.

    Args:
        name: Of the device.
        sheet: Its data sheet.
        sibling: A fit with a mechanism.
    """
    assert sibling.mechanism is not None
    faster, slower = sheet.link / sibling.sheet.link, sibling.sheet.clock / sheet.clock
    alike = sheet.generation == sibling.sheet.generation and faster == 1
    note = f"derived from {sibling.name}: {faster:.3g} times its link bandwidth, {slower:.3g} times its latencies"
    return replace(
        sibling,
        name=name,
        sheet=sheet,
        mechanism=_mechanism(sibling.mechanism, sheet, sibling.sheet),
        notes=(note, *sibling.notes),
        unseen={**sibling.unseen, "device": sibling.unseen.get("alike" if alike else "other", 0.0)},
    )


def _mechanism(known: Mechanism, sheet: DataSheet, sibling: DataSheet) -> Mechanism:
    faster, slower = sheet.link / sibling.link, sibling.clock / sheet.clock
    lines = {
        # One channel of LL is a loop of a processor.
        name: Line(
            line.overhead * slower,
            line.hop * slower,
            line.bandwidth / slower if name == MESSAGE_LL else line.bandwidth * faster,
        )
        for name, line in known.lines.items()
        if name != NVLS or sheet.reduces
    }
    if has_ll128(sheet) and LL128 not in lines:
        simple = lines[SIMPLE]
        lines[LL128] = Line(simple.overhead, _HOP * lines[LL].hop, _BANDWIDTH * simple.bandwidth)
    sharing = known.sharing
    if sheet.mesh:
        sharing = mesh_sharing(sheet)
    elif sheet.link >= PCIE:
        sharing = {}
    return replace(
        known,
        lines=lines,
        network=networked(known, sheet, sibling),
        # The size at which transfer and latency are equal scales with their product.
        saturation=known.saturation * faster * slower,
        ramp=known.ramp * slower,
        gather=known.gather * slower,
        peer=known.peer * slower,
        channel=known.channel * faster,
        sharing=sharing,
    )


def mesh_sharing(sheet: DataSheet) -> dict[str, dict[int, float]]:
    """Return how much slower the links of n members of a mesh are: each has one to each other member."""
    counts = [n for n in (2, 4, 8) if n < sheet.gpus] + [sheet.gpus]
    return {kind: {n: (sheet.gpus - 1) / (n - 1) for n in counts} for kind in SHARING if kind != GATHER}


def networked(known: Mechanism, sheet: DataSheet, other: DataSheet) -> dict[str, Outer]:
    """Return the lines between nodes, measured with the NICs of `other`, with those of `sheet`."""
    faster = sheet.nic / other.nic
    found = {
        name: outer._replace(bandwidth=outer.bandwidth * faster) for name, outer in known.network.items()
    }
    if found and LL128 not in found:
        simple = found[SIMPLE]
        found[LL128] = Outer(_HOP * found[LL].step, _ACROSS * simple.hop, LL128_DATA * simple.bandwidth)
    return found
