"""A comparison of a synthesised collective as a table, as plain values and as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.pictures import check_picture, new_figure, save_figure
from armillary.base.units import format_bytes, format_count, format_time
from armillary.engine.transport.layout import PS
from armillary.explore.synthesis import Comparison

if TYPE_CHECKING:
    from rich.table import Table

_SHOWN = 6
"""Built-in algorithms in a picture."""


def table(found: Comparison) -> Table:
    """Return the main results of a comparison as a table."""
    from rich import box
    from rich.table import Table

    schedule, best = found.schedule, found.built_in[0] if found.built_in else None
    size = format_bytes(schedule.size)
    shown = Table(box=box.SIMPLE, show_header=False, title_justify="left")
    shown.title = f"{schedule.operation} of {size} among {schedule.n} NPUs"
    rows = {
        "taken": found.taken + (" (built-in)" if found.taken != "synthesized" else ""),
        "predicted": format_time(schedule.predicted),
        "simulated": format_time(found.simulated.time),
    }
    if best:
        rows["best built-in"] = f"{format_time(best.time)}  {best.name}, {best.chunks} chunks"
        rows["built-in ÷ synthesized"] = f"{best.time / max(found.simulated.time, 1):.4g}"
    rows["lower bound"] = (
        f"{format_time(found.bound)}  {found.bound / max(found.simulated.time, 1):.1%} of simulated"
    )
    mean, most = utilisation(found)
    rows["links in use"] = f"{mean:.1%} on average, the busiest {most:.1%}"
    rows["messages"] = (
        f"{format_count(schedule.messages)} of {format_bytes(schedule.chunk)}, {schedule.per_npu} chunks per NPU"
    )
    for name, value in rows.items():
        shown.add_row(name, value)
    return shown


def describe(found: Comparison) -> dict[str, Any]:
    """Return a comparison as plain values, ready for JSON; times in ns."""
    schedule = found.schedule
    mean, most = utilisation(found)
    return {
        "operation": schedule.operation,
        "npus": schedule.n,
        "size_bytes": schedule.size,
        "chunks_per_npu": schedule.per_npu,
        "chunk_bytes": schedule.chunk,
        "messages": schedule.messages,
        "taken": found.taken,
        "predicted_ns": schedule.predicted,
        "simulated_ns": found.simulated.time,
        "built_in": [
            {"name": one.name, "chunks": one.chunks, "simulated_ns": one.time} for one in found.built_in
        ],
        "lower_bound_ns": found.bound,
        "link_utilisation": {"mean": mean, "most": most},
    }


def utilisation(found: Comparison) -> tuple[float, float]:
    """Return the share of simulated time in which links carry bytes: mean over usable links, and the busiest."""
    # Only links on some path: others could not carry anything whatever the schedule.
    links = np.unique(found.schedule.edges.paths.link)
    busy = found.simulated.use.busy[links] / (max(found.simulated.time, 1) * PS)
    return float(busy.mean()), float(busy.max())


def draw(found: Comparison, path: str | Path) -> None:
    """Draw the use of links over time, by kind of link, and the times of all algorithms (.png, .svg or .pdf).

    Raises:
        InputError: matplotlib is missing, or the file cannot be written.
    """
    check_picture(path)
    figure = new_figure(10, 4)
    over_time, bars = figure.subplots(1, 2, width_ratios=(3, 2))
    topology, use = found.schedule.edges.topology, found.simulated.use
    share = use.utilisation(topology)
    used = np.unique(found.schedule.edges.paths.link)
    ends = (np.arange(share.shape[1]) + 1) * use.bin / PS
    scale, unit = _scale(found.simulated.time)
    last = ends[-1] if len(ends) else 1.0
    if len(ends):  # the run ends within the last bin, which is therefore shorter
        share[:, -1] *= use.bin / PS / max(found.simulated.time - (last - use.bin / PS), 1e-9)
    for kind in np.unique(topology.kind[used]).tolist():
        mine = used[topology.kind[used] == kind]
        # Rounding of bins may push a full link slightly above 1.
        mean: NDArray[np.float64] = np.clip(share[mine].mean(axis=0), 0, 1) * 100
        edges = np.concatenate([[0], np.minimum(ends, found.simulated.time)]) / scale
        over_time.stairs(mean, edges, label=f"{topology.kinds[kind]} ({len(mine):,} links)", linewidth=1.5)
    over_time.set(xlabel=f"time ({unit})", ylabel="links in use (%)", ylim=(0, 104), xlim=(0, None))
    over_time.set_title(f"{found.schedule.operation} of {format_bytes(found.schedule.size)}, synthesized")
    over_time.legend(loc="lower left", fontsize=8)
    names = ["lower bound", "synthesized", *(one.name for one in found.built_in[:_SHOWN])]
    times = [found.bound, float(found.simulated.time), *(float(one.time) for one in found.built_in[:_SHOWN])]
    colours = ["0.7", "tab:orange", *["tab:blue"] * len(found.built_in)]
    drawn = bars.barh(range(len(names)), [value / scale for value in times], color=colours[: len(names)])
    bars.bar_label(drawn, [format_time(value) for value in times], padding=3, fontsize=8)
    bars.set_yticks(range(len(names)), names, fontsize=8)
    # The first name at the top.
    bars.invert_yaxis()
    bars.set(xlabel=f"time ({unit})", xlim=(0, 1.3 * max(times) / scale))
    bars.set_title("against built-in algorithms")
    save_figure(figure, path, 120)


def _scale(time: float) -> tuple[float, str]:
    for scale, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if time >= scale:
            return scale, unit
    return 1.0, "ns"
