"""Congestion controls at one link, against a second program of them and closed forms: one JSON line per case.

Senders of equal rank send so many ms of the link's bytes to one NPU. `ours` and `second` (the slow program of the
tests) list, over the second half of the time until the first flow ends, the mean share of the link that is used and the
mean of the deepest queue of each bin (KB), the share of packets marked, and the time of the last flow (ms); means over
seeds, where marks are drawn. `closed` is the closed form of what it names:

* Swift: W = B d / N and d = target(W) give the queue, d less the base round trip.
* HPCC: the utilisation U at which W (1 - eta / U) = W_AI, eta + N W_AI / (B T); a queue that is met counts in U.
* DCQCN: the share of marks at the fixed point of the fluid model (Zhu et al., "ECN or delay", theorem 1).

Usage: python benchmarks/controls.py [CASE ...]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.engine.transport.control.bottleneck import CASES, Case, ours, second
from tests.engine.transport.control.dcqcn_fluid import Fluid

SEEDS = 4


def closed(name: str, case: Case, flows: int) -> float | None:
    """Return what a closed form says of a case; None: it has none."""
    rate, base = case.rate, case.base
    if case.control == "swift":
        delay = base
        for _ in range(200):
            extra = 5 * 20e-6 / (10**0.5 - 0.1) * ((4096 * flows / (rate * delay)) ** 0.5 - 0.1)
            delay += (20e-6 + 2 * 20e-6 / 6.55 + max(0.0, min(extra, 100e-6)) - delay) / 2
        return (delay - base) * rate / 1e3
    if case.control == "hpcc":
        return 0.95 + flows * 80 / (rate * base)
    if name == "dcqcn":
        wire = 4158.0
        fluid = Fluid(rate / wire, 5000 / wire, 200_000 / wire, 0.1, counter=10e6 / wire, additive=5e6 / wire)
        return fluid.fixed_point(flows)[0]
    return None


def main() -> None:
    """Measure the controls that are named, or all."""
    for name in sys.argv[1:] or CASES:
        case = CASES[name]
        for flows in (2, 4, 8, 16):
            seeds = range(SEEDS if case.control == "dcqcn" else 1)
            row: dict[str, Any] = {"control": name, "flows": flows}
            for who, run in (("ours", ours), ("second", second)):
                found = [run(case, flows, seed) for seed in seeds]
                row[who] = [round(sum(column) / len(found), 4) for column in zip(*found, strict=True)]
            known = closed(name, case, flows)
            print(json.dumps(row | {"closed": None if known is None else round(known, 4)}), flush=True)


if __name__ == "__main__":
    main()
