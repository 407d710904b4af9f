"""Draw incasts.png: the same incast in seven transports, from real runs.

Fifteen NPUs of a fat tree (k = 4, 100 Gb/s, 1 us per link) send 2 MB each to the sixteenth. Drawn is the last link:
what waits for it, how full it is, and when each flow has arrived.

Usage: python docs/images/draw_incasts.py
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
import matplotlib.pyplot as plt

from armillary.engine.transport.offer import offer
from armillary.engine.transport.rdma import Rdma
from armillary.platform.topology import Ecmp, fat_tree

RATE, HOP, FLOW = 12.5, 1000.0, 2_000_000
PFC = {"buffer": 1_000_000}
RUNS = (
    ("Pauses alone (PFC)", Rdma(**PFC), "#7f7f7f"),
    ("DCQCN", Rdma(control="dcqcn", **PFC), "#8c564b"),
    ("TIMELY", Rdma(control="timely", **PFC), "#d62728"),
    ("Swift", Rdma(control="swift"), "#ff7f0e"),
    ("HPCC", Rdma(control="hpcc", **PFC), "#2ca02c"),
    ("NDP", Rdma(control="ndp"), "#1f77b4"),
    ("Ultra Ethernet (NSCC)", Rdma(control="nscc"), "#9467bd"),
)
SHOWN = 6.0
"""ms of the axis; a flow that ends later is counted beside it."""


def draw(path: Path) -> None:
    """Run all, and write the picture."""
    tree = fat_tree(4, RATE, HOP)
    last = int(np.flatnonzero(tree.head == 15)[0])
    figure, axes = plt.subplots(len(RUNS), 1, figsize=(9, 11), sharex=True, constrained_layout=True)
    for axis, (title, rdma, colour) in zip(axes, RUNS, strict=True):
        got = offer(rdma, Ecmp(tree), range(15), 15, FLOW)
        time = np.arange(got.use.series.shape[1]) * got.use.bin / 1e9
        queue = got.use.depths[last] / 1e3
        full = got.use.series[last] / (got.use.bin / 1000 * RATE)
        axis.fill_between(time, queue, step="post", color=colour, alpha=0.35, linewidth=0)
        axis.set_ylim(0, 3400)
        axis.set_yticks([0, 1000, 2000, 3000])
        axis.set_ylabel("queue, kB", fontsize=8)
        right = axis.twinx()
        right.step(time, full * 100, where="post", color=colour, linewidth=1)
        right.set_ylim(0, 115)
        right.set_yticks([0, 50, 100])
        right.set_ylabel("link, %", fontsize=8)
        ends = np.sort(got.arrived) / 1e9
        axis.plot(ends, np.full(15, 3180), "|", color="black", markersize=7)
        lost = int(got.use.drops.sum())
        what = "trimmed" if rdma.when_full == "trim" else "dropped"
        later = int((ends > SHOWN).sum())
        text = f"last flow after {ends[-1]:.2f} ms, first after {ends[0]:.2f} ms" + (
            f", {lost} packets {what}" if lost else ""
        )
        text += f", {later} later than shown" if later else ""
        axis.set_title(f"{title}: {text}", fontsize=9, loc="left")
        axis.axvline(15 * FLOW * (1 + 62 / 4096) / RATE / 1e6, color="black", linewidth=0.7, linestyle=":")
    axes[-1].set_xlim(0, SHOWN)
    axes[-1].set_xlabel("ms; bars on top: arrivals of flows; dotted: the link has carried all once")
    figure.suptitle(
        "15 to 1, 2 MB each at 100 Gb/s. Area: bytes that wait for the last link. Line: its utilisation",
        fontsize=10,
    )
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    draw(Path(__file__).with_name("incasts.png"))
