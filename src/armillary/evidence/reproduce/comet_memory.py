"""Hybrid memory: a node whose working set exceeds its local memory keeps the rest in an expansion.

With placement "spread" every access touches both memories in proportion to what lies there, one after the other: of
n bytes n f_exp take BW_exp and the rest BW_local, so that 1 / BW = f_local / BW_local + f_exp / BW_exp with
f_exp = 1 - capacity / working set. The share follows from the footprint of each plan, so the bandwidth of the local
memory in the platform does, too. With "weights" only weights lie there, and nodes of the trace load them before
every use, over a path of their own: nothing of it is a formula here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from armillary.evidence.reproduce.comet_assumptions import Assumptions
from armillary.evidence.reproduce.comet_workload import Share, share
from armillary.platform.memory import RemoteMemory
from armillary.platform.model import Platform

# Any positive share makes the plan load weights.
_TRACE = 1e-9
"""A share of the weights that counts for nothing, but lets the footprint hold a layer that was loaded."""


@dataclass(frozen=True)
class Expansion:
    """Memory besides that of a node: bytes, and bytes per ns in each direction."""

    capacity: float
    bandwidth: float


def beyond(needed: float, capacity: float) -> float:
    """Return f_exp, the share of a working set that does not fit into the local memory."""
    return max(0.0, 1 - capacity / needed)


def hybrid_bandwidth(local: float, expansion: float, outside: float) -> float:
    """Return the bandwidth of both memories when `outside` of all bytes are in the expansion; in any one unit."""
    # Bytes of both memories are read one after the other: times add up, rates combine harmonically.
    return 1 / ((1 - outside) / local + outside / expansion)


def with_bandwidth(platform: Platform, rate: float) -> Platform:
    """Return a machine whose local memory has another bandwidth, bytes per ns."""
    memory = replace(platform.npu.memory, bandwidth=rate)
    return replace(platform, npu=replace(platform.npu, memory=memory))


def fits(needed: float, platform: Platform, expansion: Expansion | None) -> bool:
    """Return whether a node can hold so much."""
    return needed <= platform.npu.memory.capacity + (expansion.capacity if expansion else 0)


def expanded(
    mp: int, platform: Platform, expansion: Expansion, chosen: Assumptions
) -> tuple[Share, Platform] | None:
    """Return what a node does and the machine on which it does it; None if that cannot be held."""
    own, capacity = share(mp, chosen), platform.npu.memory.capacity
    if not fits(own.needed, platform, expansion):
        return None
    outside = beyond(own.needed, capacity)
    if not outside:
        return own, platform
    if chosen.placement == "spread":
        rate = hybrid_bandwidth(platform.npu.memory.bandwidth, expansion.bandwidth, outside)
        return own, with_bandwidth(platform, rate)
    # The footprint with almost nothing, and with all weights outside.
    least, most = share(mp, chosen, _TRACE), share(mp, chosen, 1.0)
    if most.needed > capacity:
        return None
    part = _TRACE
    # What is not weights moves with the peak, so that the first step may fall short by a little.
    # Each step adds what is missing; it ends at 1, where `most` fits.
    while (held := share(mp, chosen, part)).needed > capacity:
        part = min(part + (held.needed - capacity) / least.weights, 1.0)
    # Whole bytes per ns, as ASTRA-sim's kinds of memory have.
    path = RemoteMemory("per-npu", bandwidth=max(round(expansion.bandwidth), 1))
    return held, replace(platform, remote_memory=path)
