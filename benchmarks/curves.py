"""Four flows join a link and leave it: rates over time by network model `packet`, a second program, and a fluid.

One JSON line per control. `use`: share of the link over the whole time; `fair`: mean of Jain's index in the last half
of each span (1: all flows have the same); `stairs`: mean distance of a flow's share of the link from that of a perfect
control; `second`, `fluid`: the same distance from the second program of the tests, and from DCQCN's fluid model; their
own `use` and `fair` stand beside. `queue`: mean of the deepest queue of each eighth of a span, KB.

Usage: python benchmarks/curves.py [CONTROL ...]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.engine.transport.control.bottleneck import CASES
from tests.engine.transport.control.curves import PARTS, SPAN, SPANS, fairness, fluid, ours, second, stairs

OPTIONS: dict[str, dict[str, Any]] = {"dcqcn": {"pmax": 0.1}, "swift": {"full": "pause"}}


def main() -> None:
    """Measure the controls that are named, or all."""
    for control in sys.argv[1:] or SPAN:
        rate, span = (5e9 if control == "dcqcn" else 12.5e9), SPAN[control] / 1e3
        shares, depth = ours(control, rate, span, **OPTIONS.get(control, {}))
        row: dict[str, Any] = {
            "control": control,
            **_measures(shares),
            "queue": round(float(depth.mean()), 1),
        }
        row["stairs"] = _distance(shares, stairs())
        if control in CASES:
            other = second(CASES[control], span)
            row |= {"second": _distance(shares, other), "second's": _measures(other)}
        if control == "dcqcn":
            other = fluid(CASES[control], span)
            row |= {"fluid": _distance(shares, other), "fluid's": _measures(other)}
        print(json.dumps(row), flush=True)


def _measures(shares: Any) -> dict[str, float]:
    return {"use": round(float(shares.sum()) / (SPANS * PARTS), 3), "fair": round(fairness(shares), 3)}


def _distance(one: Any, other: Any) -> float:
    return round(float(np.abs(one - other).mean()), 4)


if __name__ == "__main__":
    main()
