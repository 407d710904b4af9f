"""Bus bandwidth over size: measured, and as fitted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from armillary.base.pictures import new_figure, save_figure
from armillary.collective.fitted.model import CollectiveFit
from armillary.collective.fitted.regimes import share
from armillary.evidence.calibrate.samples import Sample, merged

# The palette of Okabe and Ito, which colour-blind readers can tell apart.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


def draw(fit: CollectiveFit, samples: Sequence[Sample], path: Path) -> None:
    """Draw a panel for each operation, with points as measured and lines as fitted (.png, .svg or .pdf)."""
    points = merged(samples)
    operations = sorted({sample.operation for sample in points})
    across = min(len(operations), 3)
    down = -(-len(operations) // across)
    figure = new_figure(4.6 * across + 0.4, 3.5 * down + 0.4)
    panels = list(figure.subplots(down, across, squeeze=False).flat)
    for panel, operation in zip(panels, operations, strict=False):
        mine = [sample for sample in points if sample.operation == operation]
        places = sorted({(sample.nodes, sample.per_node) for sample in mine})
        for number, (nodes, per_node) in enumerate(places):
            colour = _COLOURS[number % len(_COLOURS)]
            here = [sample for sample in mine if (sample.nodes, sample.per_node) == (nodes, per_node)]
            # Bus bandwidth as nccl-tests define it: size times a factor of operation and members, over time.
            factor = share(operation, nodes * per_node)
            sizes = np.array([sample.size for sample in here], float)
            panel.plot(sizes, [s.size * factor / s.ns for s in here], "o", ms=3.5, color=colour)
            # The line between measured sizes shows where regimes switch.
            fine = np.geomspace(sizes.min(), sizes.max(), 400)
            times = [fit.time(operation, per_node, nodes, float(size)) for size in fine]
            # Sizes for which the fit has no regime are left out.
            rate = [size * factor / t.total_ns for size, t in zip(fine, times, strict=True) if t is not None]
            label = f"{per_node} GPUs" if nodes == 1 else f"{nodes} nodes of {per_node}"
            panel.plot(fine, rate, lw=1.2, color=colour, label=label)
        panel.set(title=operation, xscale="log", xlabel="bytes", ylabel="bus bandwidth (GB/s)")
        panel.set_xscale("log", base=2)
        panel.set_ylim(bottom=0)
        panel.grid(alpha=0.25)
        panel.legend(frameon=False, fontsize=8)
    # The last row may have empty panels.
    for panel in panels[len(operations) :]:
        panel.set_axis_off()
    figure.suptitle(f"{fit.name}: points measured, lines fitted", fontsize=11)
    save_figure(figure, path)
