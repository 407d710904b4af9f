"""The figure of COMET: the plans, and heat maps of what memory and network do to them."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan, nan
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.base.units import format_bandwidth, format_time
from armillary.evidence.reproduce.comet_assumptions import Assumptions
from armillary.evidence.reproduce.comet_claims import gigabytes
from armillary.evidence.reproduce.comet_dlrm import FoundDlrm
from armillary.evidence.reproduce.comet_sweep import CAPACITIES, FACTORS, RATES, SWEPT, Found
from armillary.evidence.reproduce.comet_workload import name
from armillary.report import figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw(figure: Any, found: Found, dlrm: FoundDlrm, chosen: Assumptions) -> None:
    """Draw four panels of the Transformer and two of the DLRM."""
    # Six panels on a page.
    figure.set_size_inches(12.0, 13.0)
    panels = list(figure.subplots(3, 2).flat)
    rates = [f"{rate:g}" for rate in RATES]
    _plans(panels[0], found)
    _heat(
        panels[1],
        "Step by plan and bandwidth of the expansion (s)",
        ("expansion (GB/s)", rates),
        ("", [name(mp) for mp in SWEPT]),
        # NaN: plans that cannot be held.
        [[found.hybrid.get((mp, rate), nan) / 1e9 for rate in RATES] for mp in SWEPT],
        "{:.0f}",
        "viridis_r",
    )
    own = found.fitting()
    rows = [[found.best(capacity, rate) for rate in RATES] for capacity in CAPACITIES]
    _heat(
        panels[2],
        "Gain by capacity and bandwidth of the expansion",
        ("expansion (GB/s)", rates),
        ("expansion", [gigabytes(capacity) for capacity in CAPACITIES]),
        [[own.time.total / best.time if own and best else nan for best in row] for row in rows],
        "{:.2f}",
        "cividis",
    )
    _heat(
        panels[3],
        f"Gain at {format_bandwidth(chosen.expansion)} and {gigabytes(chosen.expansion_capacity)} by network",
        ("between pods (GB/s)", [f"{inter * chosen.inter:g}" for inter in FACTORS]),
        # Factors of the sweep, shown as bandwidths.
        ("within pods (GB/s)", [f"{intra * chosen.intra:g}" for intra in FACTORS]),
        [[found.network[intra, inter].gain or nan for inter in FACTORS] for intra in FACTORS],
        "{:.2f}",
        "cividis",
    )
    _sizes(panels[4], dlrm)
    alone = dlrm.fitting()
    grown = [[dlrm.best(capacity, rate) for rate in RATES] for capacity in CAPACITIES]
    _heat(
        panels[5],
        "DLRM: gain in node time by capacity and bandwidth",
        ("expansion (GB/s)", rates),
        ("expansion", [gigabytes(capacity) for capacity in CAPACITIES]),
        [[alone.node_time / best.time if alone and best else nan for best in row] for row in grown],
        "{:.2f}",
        "cividis",
    )


def _sizes(axes: Axes, found: FoundDlrm) -> None:
    parts = {
        "compute": [size.nodes * size.time.compute for size in found.sizes],
        "exposed communication": [size.nodes * size.time.exposed for size in found.sizes],
    }
    tops = figures.stacked(axes, range(len(found.sizes)), parts, figures.STEP)
    for at, (size, top) in enumerate(zip(found.sizes, tops, strict=True)):
        # Bold labels: plans that fit.
        weight = "bold" if size.fits else "normal"
        axes.annotate(gigabytes(size.needed), (at, top), (0, 3), ha="center", fontsize=8, fontweight=weight,
                      textcoords="offset points")  # fmt: skip
    axes.set_xticks(range(len(found.sizes)), [f"{size.nodes}" for size in found.sizes], fontsize=8)
    axes.set_xlabel("nodes", fontsize=9)
    figures.written(axes.yaxis, lambda value: format_time(value) if value else "0")
    axes.tick_params(axis="y", labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    _title(axes, "DLRM: node time by nodes; above it the memory needed (bold: fits)")


def _plans(axes: Axes, found: Found) -> None:
    shown = [plan for plan in found.plans if plan.mp in SWEPT]
    parts = {
        "compute": [plan.time.compute for plan in shown],
        "exposed communication": [plan.time.exposed for plan in shown],
    }
    tops = figures.stacked(axes, range(len(shown)), parts, figures.STEP)
    for at, (plan, top) in enumerate(zip(shown, tops, strict=True)):
        weight = "bold" if plan.fits else "normal"
        axes.annotate(gigabytes(plan.needed), (at, top), (0, 3), ha="center", fontsize=8, fontweight=weight,
                      textcoords="offset points")  # fmt: skip
    axes.set_xticks(range(len(shown)), [name(plan.mp) for plan in shown], rotation=30, fontsize=8)
    figures.written(axes.yaxis, lambda value: format_time(value) if value else "0")
    axes.tick_params(axis="y", labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9, loc="upper center")
    _title(axes, "Step as if all fitted; above it the memory needed (bold: fits)")


def _heat(
    axes: Axes,
    title: str,
    across: tuple[str, Sequence[str]],
    down: tuple[str, Sequence[str]],
    values: list[list[float]],
    form: str,
    colours: str,
) -> None:
    """Draw a map with its numbers; what is not a number is left white."""
    from matplotlib.colors import LogNorm

    known = [value for row in values for value in row if not isnan(value)]
    least, most = min(known, default=1.0), max(known, default=1.0)
    # Logarithmic, as values span decades; LogNorm needs two different ends.
    shown = axes.imshow(values, aspect="auto", cmap=colours, norm=LogNorm(least, max(most, least * 1.01)))
    for y, row in enumerate(values):
        for x, value in enumerate(row):
            if not isnan(value):
                red, green, blue, _ = shown.to_rgba(np.array(value))
                # Luma of BT.601: white on dark cells, black on light ones.
                dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
                axes.text(x, y, form.format(value), ha="center", va="center", fontsize=8,
                          color="white" if dark else "black")  # fmt: skip
    axes.set_xticks(range(len(across[1])), across[1], fontsize=8)
    axes.set_yticks(range(len(down[1])), down[1], fontsize=8)
    axes.set_xlabel(across[0], fontsize=9)
    axes.set_ylabel(down[0], fontsize=9)
    axes.tick_params(length=0)
    _title(axes, title)


def _title(axes: Axes, text: str) -> None:
    axes.set_title(text, loc="left", fontsize=10, fontweight="bold")
