"""The same senders at one link in both programs: network model `packet`, and `bottleneck_reference`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from armillary.engine.transport.control.dcqcn import Dcqcn as Options
from armillary.engine.transport.offer import offer
from armillary.engine.transport.rdma import Rdma
from armillary.platform.topology import Ecmp, leaf_spine

from .bottleneck_reference import Bottleneck, Dcqcn
from .control_reference import Hpcc, Swift, Timely

WIRE = 4096 + 62
LATENCY = 1e-6


class Found(NamedTuple):
    """Share of the link that is used, deepest queues (KB), share of packets marked, and time of the last flow (ms)."""

    use: float
    queue: float
    marks: float
    last: float


@dataclass(frozen=True)
class Case:
    """A control, bytes/s of links, ms for which the link is full, options, a sender, and what an ACK tells it."""

    control: str
    rate: float
    span: float
    options: dict[str, Any]
    make: Callable[[float, float], Any]
    act: Callable[..., None]

    @property
    def base(self) -> float:
        """s of a round trip."""
        return 2 * (WIRE / self.rate + LATENCY) + 2 * (64 / self.rate + LATENCY)

    @property
    def window(self) -> float:
        """Bytes that a round trip carries, in whole packets."""
        return float(round(self.base * self.rate / WIRE) * WIRE)

    def size(self, flows: int, span: float) -> int:
        """Return bytes of a flow."""
        return int(self.rate * span / 1e3 / flows) // 4096 * 4096


class _Swift(Swift):
    recent = 0.0

    def spacing(self, wire: float, now: float) -> float:
        return self.recent * wire / self.window if self.window < self.mss else 0.0


class _Hpcc(Hpcc):
    def spacing(self, wire: float, now: float) -> float:
        return wire * self.base / self.window


class _Timely(Timely):
    def spacing(self, wire: float, now: float) -> float:
        return wire / self.rate if self.rate < self.line else 0.0


def _told(control: Any, acked: float, delay: float, mark: bool, now: float, *more: Any) -> None:
    control.ack(acked, delay, mark, now)
    control.recent = delay


def _hpcc(control: Any, acked: float, delay: float, mark: bool, now: float, *more: Any) -> None:
    number, sent, links = more
    control.ack(number, sent, links, 4096 / 100)


def _dcqcn(control: Any, acked: float, delay: float, mark: bool, now: float, *more: Any) -> None:
    if mark:
        control.notified(now)


def _marked(options: dict[str, Any], keys: dict[str, Any]) -> Case:
    return Case("dcqcn", 5e9, 100, {"pmax": 0.1, **options}, lambda base, window: Dcqcn(5e9, **keys), _dcqcn)


CASES = {
    "swift": Case(
        "swift", 12.5e9, 4, {"full": "pause"}, lambda base, window: _Swift(4096, 2, 409_600, 409_600), _told
    ),
    "hpcc": Case("hpcc", 12.5e9, 4, {}, lambda base, window: _Hpcc(base, window, window, window), _hpcc),
    "timely": Case("timely", 12.5e9, 20, {}, lambda base, window: _Timely(12.5e9, base, rate=12.5e9), _told),
    "dcqcn": _marked({}, {}),
    "dcqcn, pmax 1 %": _marked({"pmax": 0.01}, {}),
    "dcqcn, g 1/16": _marked({"dcqcn": Options(g=1 / 16)}, {"g": 1 / 16}),
    "dcqcn, counter 150 KB": _marked({"dcqcn": Options(byte_counter=150_000)}, {"counter": 150e3}),
    "dcqcn, timer 300 us": _marked({"dcqcn": Options(timer=300_000)}, {"timer": 300e-6}),
}
"""The controls, and DCQCN with one parameter of its paper changed."""


def ours(case: Case, flows: int, seed: int = 0, span: float = 0.0) -> Found:
    """Return what network model `packet` finds; `span` in ms instead of that of the case."""
    star = leaf_spine(1, 1, flows + 1, case.rate / 1e9, LATENCY * 1e9)
    last = int(np.flatnonzero(star.head == flows)[0])
    rdma = Rdma(control=case.control, seed=seed, **case.options)
    size = case.size(flows, span or case.span)
    got = offer(rdma, Ecmp(star), range(flows), flows, size, flow=np.arange(flows), mode="compiled")
    use = got.use
    marks = int(use.marks[last]) / (int(use.size[last]) / WIRE)
    return _found(case, got.arrived / 1e12, use.series[last], use.depths[last], marks, use.bin / 1e12)


def second(case: Case, flows: int, seed: int = 0, span: float = 0.0) -> Found:
    """Return what the second program finds."""
    marks = (5000.0, 200_000.0, case.options["pmax"]) if case.control == "dcqcn" else None
    link = Bottleneck(case.rate, LATENCY, marks=marks)
    senders = [case.make(case.base, case.window) for _ in range(flows)]
    return _found(case, *link.run(senders, case.size(flows, span or case.span), case.act, seed))


def _found(case: Case, arrived: Any, carried: Any, depths: Any, marks: float, width: float) -> Found:
    end = int(arrived.min() / width)
    part = slice(end // 2, end)
    use = float(np.mean(carried[part])) / (width * case.rate)
    return Found(use, float(np.mean(depths[part])) / 1e3, marks, float(arrived.max()) * 1e3)
