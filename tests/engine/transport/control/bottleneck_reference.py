"""Senders with a congestion control each and one link between them, packet by packet: slow and obvious.

Every sender has a port of its own, at the rate of the link; the switch stores a packet before it sends it on, and never
drops. ACKs wait nowhere. Times are in s, rates in bytes/s. A control says by `spacing` when a sender may send again,
and may have a `window`, see `control_reference`.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass
class Dcqcn:
    """Zhu et al., SIGCOMM 2015, section 3.1 and figure 7, as a sender of packets has it."""

    line: float
    g: float = 1 / 256
    timer: float = 55e-6
    decay: float = 55e-6
    counter: float = 10e6
    additive: float = 5e6
    hyper: float = 50e6
    rate: float = 0.0
    target: float = 0.0
    alpha: float = 1.0
    decays: float = float("inf")
    rises: float = float("inf")
    times: int = 0
    rounds: int = 0
    bytes: float = 0.0

    def __post_init__(self) -> None:
        self.rate = self.target = self.line

    def advance(self, now: float) -> None:
        while self.decays <= now:
            self.alpha *= 1 - self.g
            self.decays += self.decay
        while self.rises <= now:
            self.rises += self.timer
            self.times += 1
            self._rise()

    def _rise(self) -> None:
        if min(self.times, self.rounds) > 5:
            self.target += (min(self.times, self.rounds) - 5) * self.hyper
        elif max(self.times, self.rounds) >= 5:
            self.target += self.additive
        self.target = min(self.target, self.line)
        self.rate = (self.rate + self.target) / 2

    def sent(self, size: float, now: float) -> None:
        self.advance(now)
        self.bytes += size
        if self.bytes >= self.counter:
            self.bytes -= self.counter
            self.rounds += 1
            self._rise()

    def spacing(self, wire: float, now: float) -> float:
        """Return the s in which `wire` bytes leave at a rate that rises meanwhile."""
        if self.rate >= self.line:
            return 0.0
        later, time = copy(self), now
        while wire > later.rate * (later.rises - time):
            wire -= later.rate * (later.rises - time)
            time = later.rises
            later.advance(time)
        return time + wire / later.rate - now

    def notified(self, now: float) -> None:
        self.advance(now)
        self.target, self.rate = self.rate, self.rate * (1 - self.alpha / 2)
        self.alpha = (1 - self.g) * self.alpha + self.g
        self.decays, self.rises = now + self.decay, now + self.timer
        self.times, self.rounds, self.bytes = 0, 0, 0.0


@dataclass
class Bottleneck:
    """A link of `rate` bytes/s and `latency` s, which senders reach by links that are like it.

    Attributes:
        mtu: Bytes of a packet.
        header: More bytes of it on the wire.
        ack: Bytes of an ACK.
        marks: Waiting bytes from which on, and from which on at most, packets are marked, and the largest share.
    """

    rate: float
    latency: float
    mtu: float = 4096.0
    header: float = 62.0
    ack: float = 64.0
    marks: tuple[float, float, float] | None = None

    def run(
        self,
        controls: Sequence[Any],
        size: float | Sequence[float],
        act: Callable[..., None],
        seed: int = 0,
        begins: Sequence[float] = (),
        sent: list[tuple[float, int]] | None = None,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], float, float]:
        """Send `size` bytes each, from `begins` on; `act` gives an ACK to a control.

        `sent` is filled with the time and the sender of each packet.

        Returns:
            When the last byte of each arrived; bytes carried and most that waited in each bin; share of packets marked;
            s of a bin, a power of two in ps, of which there are 256 at most.
        """
        chance, wire = Random(seed), self.mtu + self.header
        back = 2 * (self.ack / self.rate + self.latency)
        senders = len(controls)
        left = [float(size)] * senders if isinstance(size, (int, float)) else [*size]
        flight, ready, free = [0.0] * senders, [0.0] * senders, [0.0] * senders
        number, quiet, total, wake = [0] * senders, [0.0] * senders, [0.0] * senders, [0.0] * senders
        arrived = np.zeros(senders)
        queue: deque[tuple[int, int, float, tuple[float, ...]]] = deque()
        waiting, busy, carried, marked, packets = 0.0, False, 0.0, 0, 0
        notes: list[tuple[float, float, float]] = []
        events: list[tuple[float, int, str, Any]] = []
        order = 0

        def at(time: float, kind: str, what: Any) -> None:
            nonlocal order
            order += 1
            heapq.heappush(events, (time, order, kind, what))

        def send(sender: int, now: float) -> None:
            control = controls[sender]
            window = getattr(control, "window", 0.0) or float("inf")
            start = max(now, ready[sender], free[sender])
            if left[sender] <= 0 or (flight[sender] > 0 and flight[sender] + self.mtu > window):
                return
            if start > now:
                if wake[sender] <= now:
                    wake[sender] = start
                    at(start, "send", sender)
                return
            left[sender] -= self.mtu
            flight[sender] += self.mtu
            free[sender] = now + wire / self.rate
            if hasattr(control, "sent"):
                control.sent(wire, now)
            ready[sender] = now + control.spacing(wire, now)
            total[sender] += wire
            if sent is not None:
                sent.append((now, sender))
            # The record of the first link: nothing waits for it.
            record = (self.rate, 0.0, total[sender], now)
            at(free[sender] + self.latency, "switch", (sender, number[sender], now, record))
            number[sender] += 1
            wake[sender] = max(ready[sender], free[sender])
            at(wake[sender], "send", sender)

        def transmit(now: float) -> None:
            nonlocal busy, waiting, carried, marked, packets
            if not queue:
                busy = False
                return
            busy = True
            sender, count, stamp, record = queue.popleft()
            waiting -= wire
            mark = self._marks(waiting, chance)
            marked += mark
            packets += 1
            carried += wire
            notes.append((now, 0.0, wire))
            last = (self.rate, waiting, carried, now)
            done = now + wire / self.rate
            at(done, "next", None)
            at(done + self.latency, "arrive", (sender, count, stamp, mark, [last, record]))

        for sender in range(senders):
            at(begins[sender] if begins else 0.0, "send", sender)
        while events:
            now, _, kind, what = heapq.heappop(events)
            if kind == "send":
                send(what, now)
            elif kind == "switch":
                queue.append(what)
                waiting += wire
                notes.append((now, waiting, 0.0))
                if not busy:
                    transmit(now)
            elif kind == "next":
                transmit(now)
            elif kind == "arrive":
                sender, count, stamp, mark, links = what
                arrived[sender] = now
                notice = mark and now >= quiet[sender]
                if notice:
                    quiet[sender] = now + 50e-6
                at(now + back, "ack", (sender, count, stamp, notice, links))
            else:
                sender, count, stamp, mark, links = what
                flight[sender] -= self.mtu
                act(controls[sender], self.mtu, now - stamp, mark, now, count, number[sender], links)
                send(sender, now)
        times, waited, sums = np.array(notes).T
        width = 2.0 ** np.ceil(np.log2(times[-1] * 1e12 / 256)) * 1e-12
        place = (times / width).astype(int)
        depths = np.zeros(place[-1] + 1)
        np.maximum.at(depths, place, waited)
        return arrived, np.bincount(place, sums), depths, marked / packets, float(width)

    def _marks(self, depth: float, chance: Random) -> bool:
        if self.marks is None or depth <= self.marks[0]:
            return False
        low, high, most = self.marks
        return depth > high or chance.random() < most * (depth - low) / (high - low)
