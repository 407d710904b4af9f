"""Draw curves.png: four flows join a link and leave it, under seven controls, from real runs.

Flows send at line rate from their begin on. Each begins one span after the last, and has the bytes that fair shares
would carry in four spans. Dotted: fair shares.

Usage: python docs/images/draw_curves.py
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
import matplotlib.pyplot as plt

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.engine.transport.control.curves import FLOWS, PARTS, SPAN, SPANS, ours, stairs

TITLES = {
    "dcqcn": ("DCQCN", {"pmax": 0.1}),
    "timely": ("TIMELY", {}),
    "swift": ("Swift", {"full": "pause"}),
    "hpcc": ("HPCC", {}),
    "ndp": ("NDP", {}),
    "nscc": ("Ultra Ethernet (NSCC)", {}),
    "rccc": ("Ultra Ethernet (RCCC)", {}),
}
COLOURS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728")


def draw(path: Path) -> None:
    """Run all, and write the picture."""
    figure, grid = plt.subplots(4, 2, figsize=(10, 10), constrained_layout=True)
    perfect = stairs()
    for axis, (control, (title, options)) in zip(grid.flat, TITLES.items(), strict=False):
        rate = 5e9 if control == "dcqcn" else 12.5e9
        span = SPAN[control]
        shares, _ = ours(control, rate, span / 1e3, **options)
        time = np.arange(SPANS * PARTS + 1) * span / PARTS
        for flow in range(FLOWS):
            for values, style in ((perfect[flow], ":"), (shares[flow], "-")):
                drawn = np.append(values, values[-1]) * 100
                axis.step(time, drawn, style, where="post", color=COLOURS[flow], linewidth=1.2, alpha=0.9)
        axis.set_title(f"{title}, {rate * 8 / 1e9:.0f} Gb/s", fontsize=10, loc="left")
        axis.set_ylim(0, 108)
        axis.set_xlim(0, SPANS * span)
        axis.set_ylabel("of the link, %", fontsize=8)
        axis.set_xlabel("ms", fontsize=8)
    legend = grid.flat[-1]
    legend.axis("off")
    for flow, colour in enumerate(COLOURS):
        legend.plot([], [], color=colour, label=f"flow {flow + 1}")
    legend.plot([], [], ":", color="black", label="fair shares")
    legend.legend(loc="center", fontsize=10, frameon=False)
    figure.savefig(path, dpi=100)


if __name__ == "__main__":
    draw(Path(__file__).with_name("curves.png"))
