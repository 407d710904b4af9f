"""Rates over time of four flows that join a link one after the other and leave it in the same order.

Flow i begins at i spans. Its bytes are those of fair shares until span 4 + i: the curves of a perfect control are
stairs, 1, 1/2, 1/3, 1/4, 1/3, 1/2, 1 of the link.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.engine.transport.offer import offer
from armillary.engine.transport.rdma import Rdma
from armillary.platform.topology import Ecmp, leaf_spine

from .bottleneck import LATENCY, WIRE, Case
from .bottleneck_reference import Bottleneck
from .dcqcn_fluid import Fluid

Floats = NDArray[np.float64]
FLOWS, PARTS = 4, 8
"""Flows, and parts of a span over which rates are averaged."""
SPANS = 2 * FLOWS - 1
SHARES = (1, 1 / 2, 1 / 3, 1 / 4, 1 / 3, 1 / 2, 1)
SPAN = {"dcqcn": 40.0, "timely": 20.0, "swift": 2.0, "hpcc": 2.0, "ndp": 2.0, "nscc": 2.0, "rccc": 2.0}
"""ms."""


def sizes(rate: float, span: float) -> list[int]:
    """Return the bytes of each flow, of a link of `rate` bytes/s and spans of s."""
    share = [sum(SHARES[flow : flow + FLOWS]) for flow in range(FLOWS)]
    return [int(each * rate * span * 4096 / WIRE) // 4096 * 4096 for each in share]


def stairs() -> Floats:
    """Return (flows, parts) the shares of a perfect control."""
    found = np.zeros((FLOWS, SPANS * PARTS))
    for flow in range(FLOWS):
        for span in range(flow, flow + FLOWS):
            found[flow, span * PARTS : (span + 1) * PARTS] = SHARES[span]
    return found


def ours(control: str, rate: float, span: float, **options: Any) -> tuple[Floats, Floats]:
    """Return (flows, parts) the shares of the link that flows send with, and (parts) the deepest queue in KB."""
    star = leaf_spine(1, 1, FLOWS + 1, rate / 1e9, LATENCY * 1e9)
    begins = [round(flow * span * 1e12) for flow in range(FLOWS)]
    rdma = Rdma(control=control, **options)
    got = offer(rdma, Ecmp(star), range(FLOWS), FLOWS, sizes(rate, span), begins, flow=np.arange(FLOWS))
    use, wide = got.use, got.use.bin / 1e12
    # Bins are a power of two in ps: their middles decide.
    part = ((np.arange(use.series.shape[1]) + 0.5) * wide / (span / PARTS)).astype(int)
    first = [int(np.flatnonzero(star.tail == flow)[0]) for flow in range(FLOWS)]
    count = np.bincount(part)
    shares = np.array([np.bincount(part, use.series[link]) / (count * wide * rate) for link in first])
    last = int(np.flatnonzero(star.head == FLOWS)[0])
    depth = np.zeros(len(count))
    np.maximum.at(depth, part, use.depths[last] / 1e3)
    return _fit(shares), depth[: SPANS * PARTS]


def second(case: Case, span: float) -> Floats:
    """Return the same shares by the second program."""
    marks = (5000.0, 200_000.0, case.options["pmax"]) if case.control == "dcqcn" else None
    sent: list[tuple[float, int]] = []
    senders = [case.make(case.base, case.window) for _ in range(FLOWS)]
    begins = [flow * span for flow in range(FLOWS)]
    Bottleneck(case.rate, LATENCY, marks=marks).run(
        senders, sizes(case.rate, span), case.act, 0, begins, sent
    )
    times, flows = np.array(sent).T
    part = (times / (span / PARTS)).astype(int)
    found = np.array([np.bincount(part[flows == flow], minlength=part.max() + 1) for flow in range(FLOWS)])
    return _fit(found * WIRE / (span / PARTS * case.rate))


def fluid(case: Case, span: float) -> Floats:
    """Return the same shares by the fluid model of DCQCN."""
    model = Fluid(
        case.rate / WIRE,
        5000 / WIRE,
        200_000 / WIRE,
        case.options["pmax"],
        counter=10e6 / WIRE,
        additive=5e6 / WIRE,
    )
    packets = [size / 4096 for size in sizes(case.rate, span)]
    rates = model.rates([flow * span for flow in range(FLOWS)], packets, SPANS * span)
    return (rates.reshape(SPANS * PARTS, -1, FLOWS).mean(axis=1) / model.capacity).T


def _fit(shares: Floats) -> Floats:
    """Return the parts of all spans: flows that end later are cut off, and those that end sooner send nothing."""
    found = np.zeros((FLOWS, SPANS * PARTS))
    wide = min(found.shape[1], shares.shape[1])
    found[:, :wide] = shares[:, :wide]
    return found


def fairness(shares: Floats) -> float:
    """Return the mean of Jain's index of the flows that share the link, over the last half of each span."""
    found = []
    for span in range(1, SPANS - 1):
        active = range(max(0, span - FLOWS + 1), min(FLOWS, span + 1))
        each = shares[list(active), span * PARTS + PARTS // 2 : (span + 1) * PARTS].mean(axis=1)
        found.append(each.sum() ** 2 / (len(each) * (each**2).sum()))
    return float(np.mean(found))
