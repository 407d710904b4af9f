"""The times of served requests as a picture."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from armillary.base.pictures import check_picture, new_figure, save_figure
from armillary.base.units import format_time
from armillary.report.figures import BLUE, panels, written

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Curve = Sequence[tuple[float, float]]


def times_picture(
    title: str, curves: Mapping[str, Curve], over: Curve, path: str | os.PathLike[str] | None = None
) -> Figure | None:
    """Draw which share of the requests has at most which time, and the time to first token over the load.

    Args:
        title: What stands above.
        curves: Name of a time -> (s, share of the requests).
        over: (arrival, time to first token), both in s.
        path: A .png, .svg or .pdf file, written complete or not at all; None: no file.

    Returns:
        Without a path matplotlib's figure.

    Raises:
        InputError: matplotlib is not installed, the suffix is another, or the file cannot be written.
    """
    if path is not None:
        check_picture(path)
    figure = new_figure(10.5, 3.4)
    figure.suptitle(title, fontsize=12, fontweight="bold", x=0.012, ha="left")
    titles = [f"requests by {name}" for name in curves]
    for axes, curve in zip(
        panels(figure, [*titles, "TTFT over the load"]), [*curves.values(), over], strict=True
    ):
        x, y = [[ns * 1e9 for ns, _ in curve], [each for _, each in curve]]
        timed = curve is over
        axes.plot(x, [each * 1e9 for each in y] if timed else [100 * each for each in y], color=BLUE)
        axes.set_xlabel("arrival" if timed else "at most", fontsize=8)
        written(axes.xaxis, format_time)
        if timed:
            written(axes.yaxis, format_time)
        else:
            axes.set_ylabel("% of the requests", fontsize=8)
            axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
    if path is None:
        return figure
    save_figure(figure, path, 130)
    return None
