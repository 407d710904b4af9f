"""The fluid model of DCQCN (Zhu et al., SIGCOMM 2015, equations 5 to 9), its fixed points and its transients.

Rates are packets per s, times s, queues packets. The fixed point is that of equal flows (Zhu et al., "ECN or delay",
CoNEXT 2016, theorem 1).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import expm1, log1p

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Fluid:
    """Flows of one rate each into a link of `capacity` packets per s, which marks between `kmin` and `kmax` packets."""

    capacity: float
    kmin: float
    kmax: float
    pmax: float
    g: float = 1 / 256
    notify: float = 50e-6
    alpha_timer: float = 55e-6
    timer: float = 55e-6
    counter: float = 10e6 / 4096
    fast: int = 5
    additive: float = 5e6 / 4096
    delay: float = 4e-6

    def marks(self, queue: float) -> float:
        """Return the share of packets that are marked."""
        if queue <= self.kmin:
            return 0.0
        return 1.0 if queue > self.kmax else self.pmax * (queue - self.kmin) / (self.kmax - self.kmin)

    def _rises(self, p: float, rate: float, span: float) -> tuple[float, float]:
        """Return how often a rate rises per packet by a counter of `span` packets, and after fast recovery only."""
        if p <= 0:
            return 1 / span, 1 / span
        # p / ((1 - p)^-span - 1), and (1 - p)^(F span) of it.
        often = p / expm1(min(700.0, -span * log1p(-min(p, 0.999))))
        return often, often * (1 - min(p, 0.999)) ** (self.fast * span)

    def slopes(
        self, p: float, rate: float, target: float, alpha: float, old: float
    ) -> tuple[float, float, float]:
        """Return the changes of rate, target and alpha; `p` and the rate `old` are those of a delay ago."""
        seen = 1 - (1 - p) ** (self.notify * old)
        by_bytes, by_time = self._rises(p, old, self.counter), self._rises(p, old, self.timer * old)
        up = old * (by_bytes[0] + by_time[0])
        rates = -rate * alpha / (2 * self.notify) * seen + (target - rate) / 2 * up
        more = self.additive * old * (by_bytes[1] + by_time[1])
        targets = -(target - rate) / self.notify * seen + more
        alphas = self.g / self.alpha_timer * (1 - (1 - p) ** (self.alpha_timer * old) - alpha)
        return rates, targets, alphas

    def fixed_point(self, flows: int) -> tuple[float, float]:
        """Return the share of marks and the queue of equal flows that fill the link."""
        rate = self.capacity / flows

        def surplus(p: float) -> float:
            seen = 1 - (1 - p) ** (self.notify * rate)
            alpha = 1 - (1 - p) ** (self.alpha_timer * rate)
            by_bytes, by_time = self._rises(p, rate, self.counter), self._rises(p, rate, self.timer * rate)
            # The rate stands still at target - rate = gap, the target where the gap closes as fast as it opens.
            gap = rate * alpha * seen / self.notify / (rate * (by_bytes[0] + by_time[0]))
            return gap * seen / self.notify - self.additive * rate * (by_bytes[1] + by_time[1])

        low, high = 1e-9, 0.5
        for _ in range(100):
            middle = (low * high) ** 0.5
            low, high = (low, middle) if surplus(middle) > 0 else (middle, high)
        return low, self.kmin + low / self.pmax * (self.kmax - self.kmin)

    def rates(
        self, begins: Sequence[float], packets: Sequence[float], end: float, step: float = 2e-6
    ) -> NDArray[np.float64]:
        """Return (steps, flows) the rates of flows that begin at the rate of the link and send so much each."""
        flows = len(begins)
        rate, target, alpha = [0.0] * flows, [0.0] * flows, [1.0] * flows
        left, begun, queue = [*packets], [False] * flows, 0.0
        past: deque[tuple[float, list[float]]] = deque(
            [(0.0, [0.0] * flows)] * max(1, round(self.delay / step))
        )
        found = np.zeros((round(end / step), flows))
        for at in range(len(found)):
            old_queue, old = past.popleft()
            past.append((queue, [*rate]))
            marks = self.marks(old_queue)
            for flow in range(flows):
                if not begun[flow] and at * step >= begins[flow]:
                    begun[flow], rate[flow], target[flow] = True, self.capacity, self.capacity
                elif rate[flow] > 0:
                    rates, targets, alphas = self.slopes(
                        marks, rate[flow], target[flow], alpha[flow], max(old[flow], 1.0)
                    )
                    rate[flow] = min(self.capacity, max(1.0, rate[flow] + step * rates))
                    target[flow] = min(self.capacity, max(rate[flow], target[flow] + step * targets))
                    alpha[flow] += step * alphas
                left[flow] -= step * rate[flow]
                if left[flow] <= 0:
                    rate[flow] = 0.0
            found[at] = rate
            queue = max(0.0, queue + step * (sum(rate) - self.capacity))
        return found

    def transfer(self, flows: int, packets: float, step: float = 1e-6) -> tuple[float, float]:
        """Return when equal flows that begin at the rate of the link have sent so much each, and the deepest queue."""
        rate = target = self.capacity
        alpha, queue, sent, time, deepest = 1.0, 0.0, 0.0, 0.0, 0.0
        past: deque[tuple[float, float]] = deque([(0.0, rate)] * max(1, round(self.delay / step)))
        while sent < packets:
            old_queue, old = past.popleft()
            past.append((queue, rate))
            rates, targets, alphas = self.slopes(self.marks(old_queue), rate, target, alpha, old)
            rate = min(self.capacity, max(1.0, rate + step * rates))
            target = min(self.capacity, max(rate, target + step * targets))
            alpha += step * alphas
            before = queue
            queue = max(0.0, queue + step * (flows * rate - self.capacity))
            deepest = max(deepest, queue)
            # What has left: all that came, but what the queue has grown by.
            sent += step * rate - (queue - before) / flows
            time += step
        return time, deepest
