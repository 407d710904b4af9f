"""The fluid model of TIMELY (Zhu et al., "ECN or delay", CoNEXT 2016), without hyper-active increase.

Rates are shares of the link, times s, the queue s that it takes to empty. Each flow has a gradient of its own, as it
compares the queue with that of its own step before.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

LOW, HIGH, BETA, WEIGHT, STEP = 50e-6, 500e-6, 0.8, 7 / 8, 1e-6
ADDITIVE = 1 / 1000
LEAST = 1 / 1000


def timely_rates(first: Sequence[float], segment: float, base: float, end: float) -> NDArray[np.float64]:
    """Return (steps, flows) the rates of flows that begin with `first`.

    Args:
        first: Shares of the link.
        segment: s that the link takes for the bytes of a step of a flow.
        base: s of a round trip in an empty network.
        end: s until which they send.
    """
    flows = range(len(first))
    rate, gradient = [*first], [0.0] * len(first)
    queues, found, acked = [], np.zeros((round(end / STEP), len(first))), 0
    queue = 0.0
    for at in range(len(found)):
        queues.append(queue)
        # What is acknowledged now was sent when the queue was what it met there.
        while acked < at and acked * STEP + queues[acked] + base <= at * STEP:
            acked += 1
        seen = queues[max(0, acked - 1)]
        for flow in flows:
            apart = max(segment / rate[flow], base)
            change = (seen - queues[max(0, acked - 1 - round(apart / STEP))]) / base
            gradient[flow] += STEP / apart * WEIGHT * (change - gradient[flow])
            delay = seen + base
            if delay > HIGH:
                more = -BETA * (1 - HIGH / delay) * rate[flow]
            elif delay < LOW or gradient[flow] <= 0:
                more = ADDITIVE
            else:
                more = -min(0.5, BETA * gradient[flow]) * rate[flow]
            rate[flow] = min(1.0, max(LEAST, rate[flow] + STEP / apart * more))
        queue = max(0.0, queue + STEP * (sum(rate) - 1))
        found[at] = rate
    return found
