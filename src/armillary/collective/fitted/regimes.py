"""Time of one collective over one number of members, as a sequence of regimes over the size.

A communication library picks an algorithm and a protocol (NCCL: ring, tree, in-switch; LL, LL128, Simple) by static
thresholds on the size. Within one of them time is latency + volume ÷ bandwidth (Hockney, Parallel Computing 1994);
at a threshold it jumps, up or down. That is all that is kept: a few lines, and where each ends.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from dataclasses import dataclass

from armillary.base import portable

Terms = tuple[float, float]
"""(latency in ns, ns for each byte that a member sends): of the regime that holds at a size."""


def share(operation: str, members: int) -> float:
    """Return the bytes that a member must send for each byte of the size: bus over algorithm bandwidth.

    Source: the page on performance of nccl-tests. The size is that of the larger buffer.
    """
    if operation == "all-reduce":
        return 2 * (members - 1) / members
    if operation in ("all-gather", "reduce-scatter", "all-to-all"):
        return (members - 1) / members
    return 1.0


@dataclass(frozen=True)
class Regime:
    """One line: time = `latency` + bytes sent ÷ `bandwidth`.

    Attributes:
        up_to: The last size, in bytes, for which it holds; infinite in the last regime.
        latency: In ns.
        bandwidth: In bytes per ns (GB/s), of a member; infinite: the size does not matter.
    """

    up_to: float
    latency: float
    bandwidth: float

    @property
    def terms(self) -> Terms:
        """See `Terms`."""
        return self.latency, 1 / self.bandwidth


Curve = tuple[Regime, ...]
"""Regimes in the order of their sizes."""


def at_size(curve: Curve, size: float) -> Terms:
    """Return the terms of the regime that holds at `size`."""
    return next(regime for regime in curve if size <= regime.up_to).terms


def at_members(curves: Mapping[int, Curve], operation: str, members: int, size: float) -> Terms:
    """Return the terms for any number of members.

    Between two measured numbers both terms change linearly. Beyond the largest one time per byte stays as it is, and
    latency grows on as between the last two: by the steps of a ring, or, of an all-reduce, by the depth of a tree.
    """
    if members in curves:
        return at_size(curves[members], size)
    known = sorted(curves)
    # Below the smallest measured number nothing supports a trend.
    if members < known[0] or len(known) == 1:
        return at_size(curves[known[0]], size)
    above = bisect.bisect(known, members)
    if above < len(known):
        low, high = (at_size(curves[known[number]], size) for number in (above - 1, above))
        part = (members - known[above - 1]) / (known[above] - known[above - 1])
        return low[0] + part * (high[0] - low[0]), low[1] + part * (high[1] - low[1])
    # Extrapolate from the last two measurements, but never let latency fall with the number of members.
    before, last = (at_size(curves[number], size) for number in known[-2:])
    depth = portable.log2 if operation == "all-reduce" else float
    growth = max(last[0] - before[0], 0.0) / (depth(known[-1]) - depth(known[-2]))
    return last[0] + growth * (depth(members) - depth(known[-1])), last[1]
