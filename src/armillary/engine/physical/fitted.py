"""Collectives and messages of profile `physical` as a fit times them: a latency, and the time a port is busy.

The port is that of the outermost dimension between the members, in both directions. What shares it slows, and is
slowed, as everywhere in this profile; alone, latency and transfer add up to what was measured.

One phase replaces those of the collective. The kernels of the engine know nothing of fits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from fractions import Fraction

import numpy as np

from armillary.collective.demand import plain
from armillary.engine.common import network
from armillary.engine.common.fits import busy, crosses_host, spanned, time_of, timed
from armillary.engine.common.items import MEMORY_OPERATIONS
from armillary.engine.common.network import CollectiveCall, Communicator
from armillary.engine.physical.phases import FITTED, PhysicalPhase
from armillary.platform.model import Platform
from armillary.platform.network import port


def fitted_phase(
    call: CollectiveCall,
    comm: Communicator,
    platform: Platform,
    schedule: Callable[[], Sequence[PhysicalPhase]],
) -> PhysicalPhase | None:
    """Return a collective as the fit of a platform times it, as one phase of all members.

    Args:
        call: The collective.
        comm: Its members.
        platform: The machine.
        schedule: Returns the phases that it has without a fit: they say how many bytes are sent at least.
    """
    time = timed(call, comm, platform)
    if time is None:
        return None
    dim = spanned(comm, platform)[-1]
    volume = busy(time.transfer_ns, platform, dim) / call.size
    there = [phase for phase in schedule() if any(d == dim for d, _ in phase.ports)]
    # A fit times, but does not say what was sent: at most what the port can carry in that time.
    sent = min(sum((phase.sent for phase in there), Fraction(0)), volume)
    return PhysicalPhase(
        -1, plain(call.operation), FITTED, (), time.latency_ns, volume, Fraction(0), sent, ((dim, 1),),
        host=crosses_host(call, comm, platform),
    )  # fmt: skip


def fit_warnings(
    platform: Platform, calls: Iterable[tuple[CollectiveCall, Communicator]], sizes: Collection[int]
) -> list[str]:
    """Return warnings about collectives and message sizes that the fit does not cover, or times implausibly fast."""
    choice = platform.collectives.fit
    if choice is None:
        return []
    where, sizes = choice.source or f"collectives.fit: {choice.name}", [size for size in sizes if size > 0]
    unknown, beaten = set(), set()
    for call, comm in calls:
        if len(comm.members) < 2 or call.size <= 0 or call.pace or call.operation in MEMORY_OPERATIONS:
            continue
        time = timed(call, comm, platform)
        if time is None:
            unknown.add(call.operation)
        elif time.transfer_ns < _least(call, comm, platform):
            beaten.add(call.operation)
    if sizes and time_of(choice, "send", 1, 2, max(sizes)) is None:
        unknown.add("send between nodes")
    if sizes and time_of(choice, "send", 2, 1, max(sizes)) is None:
        unknown.add("send in a node")
    found = []
    if unknown:
        found.append(f"{where}: the fit does not know {', '.join(sorted(unknown))}: timed by schedules")
    if beaten:
        found.append(
            f"{where}: {', '.join(sorted(beaten))} is faster than the bandwidth of the network allows: "
            "expected the machine that the fit is of; the lower bound takes its links to be as fast as the fit"
        )
    return found


def _least(call: CollectiveCall, comm: Communicator, platform: Platform) -> float:
    """Return the ns for which the outermost port is busy at least, whatever the algorithm."""
    dim = spanned(comm, platform)[-1]
    stride = network.strides(platform.dimensions)[dim]
    outer = len(np.unique(comm.members // stride))
    inner = len(comm.members) / outer
    share = {
        "all-reduce": 1 / inner,  # switches may add up
        "reduce-scatter": (outer - 1) / outer / inner,
        "all-gather": outer - 1.0,
        "all-to-all": (outer - 1) / outer,
    }
    return (
        # 1e-6 below, for the rounding of measured times: only a clear excess is reported.
        call.size * share.get(plain(call.operation), 0.0) / port(platform.dimensions[dim]).slower * (1 - 1e-6)
    )
