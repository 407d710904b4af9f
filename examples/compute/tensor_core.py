"""A compute model for ``model: subprocess``: products in tiles of 128 x 128, as many at a time as there are cores.

It reads what Armillary asks, a line of JSON for the device and one for each kernel, and writes a line for each answer.
"""

from __future__ import annotations

import json
import sys
from typing import Any

CORES = 132
TILE = 128
LAUNCH_NS = 3000.0


def time(kernel: dict[str, Any], peak: float) -> float | None:
    """Return ns, or None for what is no matrix product."""
    total = 0.0
    for one in kernel["gemm"]:
        tiles = one["batch"] * -(-one["m"] // TILE) * -(-one["n"] // TILE)
        waves = -(-tiles // CORES)
        per_wave = 2 * TILE * TILE * one["k"] * CORES / peak * 1e9
        total += one["calls"] * (LAUNCH_NS + waves * per_wave)
    return total or None


def main() -> None:
    """Answer every kernel."""
    device = json.loads(sys.stdin.readline())["device"]
    for line in sys.stdin:
        kernel = json.loads(line)
        peak = device["peaks"].get(kernel["precision"], device["peak_flops"])
        answer = {"id": kernel["id"], "ns": time(kernel, peak), "bound": "waves"}
        sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
