"""A comparison as a waterfall chart, from the step of one run to that of the other."""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import fsum
from pathlib import Path
from typing import TYPE_CHECKING

from armillary.base.errors import InputError
from armillary.base.pictures import check_picture, new_figure, save_figure
from armillary.base.units import format_time
from armillary.explore.compare.terms import Term, Terms
from armillary.report.figures import BLUE, GREY, VERMILION, panels, written
from armillary.report.time_breakdown import TITLES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LEAST = 0.002
_BARS = 12


def waterfall(
    title: str, names: Sequence[str], terms: Terms, path: str | os.PathLike[str] | None = None
) -> Figure | None:
    """Draw how the parts lead from the step time of A to that of B.

    Parts that change by less than 0.2 % of the step, and those after the twelve largest, are merged.

    Args:
        title: What stands above.
        names: Of the sides, files by their paths.
        terms: The parts of the step.
        path: A .png, .svg or .pdf file, written complete or not at all; None: no file.

    Returns:
        Without a path matplotlib's figure.

    Raises:
        InputError: there are not two sides, matplotlib is not installed, or the file cannot be written.
    """
    if path is not None:
        check_picture(path)
    if len(names) != 2:
        raise InputError(f"{path or 'plot'}: a waterfall shows two runs, got {len(names)}")
    steps = bars(terms)
    before, after = terms.total.ns
    figure = new_figure(9.6, 1.5 + 0.36 * (len(steps) + 2))
    figure.suptitle(title, fontsize=12, fontweight="bold", x=0.012, ha="left")
    axes = panels(figure)[0]
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x", color="#DDDDDD", linewidth=0.6)
    at, reach = before, [before, after]
    axes.barh(0, before, color=GREY, height=0.62)
    for row, term in enumerate(steps, 1):
        axes.barh(row, term.change, left=at, color=VERMILION if term.change > 0 else BLUE, height=0.62)
        axes.plot([at, at], [row - 1, row], color="#777777", linewidth=0.7)
        at += term.change
        reach.append(at)
        share = f"{100 * term.change / (before or 1):+.1f} %"
        text = f"{'+' if term.change > 0 else '-'}{format_time(abs(term.change))}  {share}"
        right = max(at, at - term.change)
        axes.annotate(text, (right, row), (4, 0), textcoords="offset points", va="center", fontsize=8)
    axes.plot([at, at], [len(steps), len(steps) + 1], color="#777777", linewidth=0.7)
    axes.barh(len(steps) + 1, after, color=GREY, height=0.62)
    for row, ns in ((0, before), (len(steps) + 1, after)):
        axes.annotate(format_time(ns), (ns, row), (4, 0), textcoords="offset points", va="center", fontsize=9)
    first, last = (f"{which}: {Path(name).name}" for which, name in zip("AB", names, strict=True))
    labels = [first, *(term.name for term in steps), last]
    axes.set_yticks(range(len(labels)), labels, parse_math=False)
    axes.set_ylim(len(labels) - 0.5, -0.6)
    low, high = min(reach), max(reach)
    # Small changes of a long step would be invisible on a scale that begins at 0.
    near = high - low < 0.4 * high
    start = max(low - 1.2 * (high - low), 0.0) if near else 0.0
    axes.set_xlim(start, high + 0.18 * (high - start))
    if near:
        axes.set_xlabel("the scale does not begin at 0", fontsize=8, color="#555555", loc="left")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    written(axes.xaxis, format_time)
    if path is None:
        return figure
    save_figure(figure, path, 130)
    return None


def bars(terms: Terms) -> list[Term]:
    """Return the changes that lead from one step to the other: decreases first, then increases."""
    parts: list[Term] = []
    for part in terms.parts:
        if part.name == TITLES["communication"] and terms.by_group:
            parts += [Term(f"exposed {each.name}", each.ns) for each in terms.by_group]
        else:
            parts.append(part)
    least = _LEAST * max(terms.total.ns)
    large = sorted(parts, key=lambda term: -abs(term.change))[:_BARS]
    large = [term for term in large if abs(term.change) >= least]
    small = [term for term in parts if term not in large]
    # Small changes together, so that the bars lead exactly from A to B.
    rest = Term("all else", tuple(fsum(term.ns[i] for term in small) for i in (0, 1)))
    shown = [*large, rest] if rest.change else large
    return sorted(shown, key=lambda term: term.change)
