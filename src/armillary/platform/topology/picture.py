"""Pictures of networks: PNG, SVG or PDF by matplotlib, or a web page that names what one points at."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from armillary.base.errors import InputError, one_of
from armillary.base.files import write_text
from armillary.base.page import html_page, html_text
from armillary.base.pictures import check_matplotlib, new_figure, save_figure
from armillary.platform.topology.sketch import Panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SUFFIXES = (".png", ".svg", ".pdf", ".html")
# The palette of Okabe and Ito, which colour-blind readers can tell apart.
_FILL = {"npu": "#0072B2", "switch": "#E69F00", "block": "#56B4E9"}
_LINES = ("#7A7A7A", "#009E73", "#CC79A7", "#D55E00", "#F0E442")
# Not in the palette, so that a broken link cannot be taken for a kind.
_DOWN = "#D00000"
# Pixels, width and height of a panel.
_SIZE = 460


def check_picture(path: str | os.PathLike[str]) -> None:
    """Refuse early what `write_picture` could not write.

    Raises:
        InputError: The suffix is none of `SUFFIXES`, or matplotlib is not installed.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(f"{path}: suffix {suffix!r}, expected {one_of(SUFFIXES)}")
    if suffix != ".html":
        # A page needs no matplotlib, so that it is always possible.
        check_matplotlib()


_STYLE = f"""
body {{ font: 14px system-ui, sans-serif; margin: clamp(0.7em, 3vw, 2em); color: #222 }}
h1 {{ font-size: 1.4em; overflow-wrap: anywhere }}
main {{ display: flex; flex-wrap: wrap; gap: 2em }}
figure {{ margin: 0; max-width: min({_SIZE}px, 100%) }} figcaption {{ text-align: center }}
svg {{ max-width: 100%; height: auto }}
text {{ text-anchor: middle; dominant-baseline: central; pointer-events: none }}
path {{ fill: none }} path:hover, circle:hover, rect:hover {{ stroke: currentColor }}
@media (prefers-color-scheme: dark) {{ body {{ background: #14181c; color: #e8ecef; color-scheme: dark }} }}
"""


def write_picture(title: str, panels: Sequence[Panel], path: str | os.PathLike[str]) -> None:
    """Draw panels side by side under a title.

    Raises:
        InputError: See `check_picture`; or the file cannot be written.
    """
    check_picture(path)
    if Path(path).suffix.lower() == ".html":
        write_page(title, panels, path)
        return
    # Three panels side by side fit a screen.
    columns = min(len(panels), 3)
    rows = -(-len(panels) // columns)
    figure = new_figure(max(5.4 * columns, 6.5), 5.6 * rows + 0.4)
    figure.suptitle(title, fontsize=12)
    colours = _colours(panels)
    for position, panel in enumerate(panels):
        _draw(figure.add_subplot(rows, columns, position + 1), panel, colours)
    save_figure(figure, path, 110)


def write_page(title: str, panels: Sequence[Panel], path: str | os.PathLike[str]) -> None:
    """Write a web page with the panels of `write_picture`, whatever the suffix of the file."""
    write_text(path, *_page(title, panels))


def _draw(axes: Axes, panel: Panel, colours: dict[str, str]) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Curve

    # Room below the square for the lines of notes.
    below = 0.09 * len(panel.notes)
    axes.set(xlim=(-1.05, 1.05), ylim=(-1.0 - below, 1.05), aspect="equal")
    axes.axis("off")
    axes.set_title(panel.title, fontsize=10)
    # Hundreds of lines at full width would be a black square.
    thin = 1.0 if len(panel.lines) < 80 else 0.6 if len(panel.lines) < 200 else 0.35
    for line in panel.lines:
        curve = Curve([line.start, line.control, line.end], [Curve.MOVETO, Curve.CURVE3, Curve.CURVE3])
        style = (0, (2, 2)) if line.dashed else "-"
        colour = colours[line.kind]
        axes.add_patch(
            PathPatch(curve, fill=False, edgecolor=colour, lw=line.width * thin, ls=style, zorder=1)
        )
    draw_marks(axes, panel, *_sizes(panel))
    handles = [Line2D([], [], color=colours[kind], lw=2, label=kind) for kind in panel.kinds]
    if len(handles) > 1:
        axes.legend(handles=handles, loc="upper right", fontsize=7, frameon=False, ncols=len(handles))
    axes.text(0, -0.95, "\n".join(panel.notes), ha="center", va="top", fontsize=8, linespacing=1.4)


def draw_marks(axes: Axes, panel: Panel, size: float, font: float) -> None:
    """Draw the marks of a panel; a mark is `size` points wide, its label `font` points high (0: none)."""
    for mark in panel.marks:
        if mark.sort == "gap":
            axes.text(*mark.at, "…", ha="center", va="center", fontsize=11, color="#444444", zorder=3)
            continue
        if mark.sort == "row":
            axes.text(*mark.at, mark.label, ha="left", va="center", fontsize=7, color="#444444")
            continue
        shape = {"npu": "o", "switch": "s", "block": "s"}[mark.sort]
        axes.plot(*mark.at, shape, ms=size, color=_FILL[mark.sort], mec="white", mew=0.6, zorder=2)
        if mark.label and font:
            # Four characters fit into a mark; longer labels stand above it.
            inside = len(mark.label) <= 4
            y = mark.at[1] if inside else mark.at[1] + 0.11
            # Switches are orange, on which white text is hard to read.
            colour = "white" if inside and mark.sort != "switch" else "black"
            axes.text(
                mark.at[0], y, mark.label, ha="center", va="center", fontsize=font, color=colour, zorder=3
            )


def _colours(panels: Sequence[Panel]) -> dict[str, str]:
    kinds = [
        kind for kind in dict.fromkeys(kind for panel in panels for kind in panel.kinds) if kind != "down"
    ]
    # Colours repeat from the sixth kind on.
    return {kind: _LINES[i % len(_LINES)] for i, kind in enumerate(kinds)} | {"": _LINES[0], "down": _DOWN}


def _sizes(panel: Panel) -> tuple[float, float]:
    """Return the size of a mark and of its label (0: none) in points, so that neighbours do not touch."""
    # Names of rows stand at the margin and do not crowd the marks.
    places = sorted(mark.at for mark in panel.marks if mark.sort != "row")
    # Sorted by x: near marks are near in the list, and 12 successors suffice instead of all pairs.
    gaps = [math.dist(a, b) for i, a in enumerate(places) for b in places[i + 1 : i + 12]]
    size = max(3.5, min(20.0, 105 * min(gaps, default=0.2)))
    return size, (size * 0.42 if size > 9 else 0.0)


def _page(title: str, panels: Sequence[Panel]) -> list[str]:
    colours = _colours(panels)
    body = "\n".join(
        f"<figure><figcaption><b>{html_text(panel.title)}</b></figcaption>{_svg(panel, colours)}"
        f"<figcaption>{'<br>'.join(map(html_text, panel.notes))}</figcaption></figure>"
        for panel in panels
    )
    # One file without scripts or links: it opens anywhere, and tips are SVG titles.
    return html_page(title, _STYLE, [f"<h1>{html_text(title)}</h1><main>\n", body, "\n</main>\n"])


def _svg(panel: Panel, colours: dict[str, str]) -> str:
    half = _SIZE / 2

    def at(place: tuple[float, float]) -> tuple[float, float]:
        # Pictures count y upwards, SVG downwards; 0.95 leaves a margin.
        return half + place[0] * half * 0.95, half - place[1] * half * 0.95

    size, font = (value * 0.85 for value in _sizes(panel))
    parts = []
    for line in panel.lines:
        # Quadratic curves, as matplotlib draws them: a straight line has its control point in the middle.
        (x0, y0), (cx, cy), (x1, y1) = map(at, (line.start, line.control, line.end))
        dash = ' stroke-dasharray="3 3"' if line.dashed else ""
        parts.append(
            f'<path d="M{x0:.1f} {y0:.1f}Q{cx:.1f} {cy:.1f} {x1:.1f} {y1:.1f}" stroke="{colours[line.kind]}" '
            f'stroke-width="{line.width * 1.2:.1f}"{dash}><title>{html_text(line.tip)}</title></path>'
        )
    for mark in panel.marks:
        x, y = at(mark.at)
        tip = f"<title>{html_text(mark.tip)}</title>"
        if mark.sort == "npu":
            parts.append(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size / 2:.1f}" fill="{_FILL["npu"]}">{tip}</circle>'
            )
        # Neither a gap nor the name of a row, which are text only.
        elif mark.sort in _FILL:
            parts.append(
                f'<rect x="{x - size / 2:.1f}" y="{y - size / 2:.1f}" width="{size:.1f}" height="{size:.1f}" '
                f'fill="{_FILL[mark.sort]}">{tip}</rect>'
            )
        if mark.label and (font or mark.sort not in _FILL):
            high = max(font, 8)
            # A digit is 0.6 as wide as it is high; what is wider than its mark stands outside of the picture's lines.
            away = (size / 2 + 5) * (1 if mark.at[1] < -0.5 else -1)
            inside = mark.sort not in _FILL or 0.6 * high * len(mark.label) <= size
            left = ' style="text-anchor: start"' if mark.sort == "row" else ""
            # Outside of marks, and as the name of a row, it stands on the page, which may be dark.
            own = "#fff" if mark.sort in ("npu", "block") else "#000"
            colour = own if inside and mark.sort in _FILL else "currentColor"
            parts.append(
                f'<text{left} x="{x:.1f}" y="{y + (0 if inside else away):.1f}" font-size="{high:.1f}" '
                f'fill="{colour}">{html_text(mark.label)}</text>'
            )
    return f'<svg width="{_SIZE}" height="{_SIZE}" viewBox="0 0 {_SIZE} {_SIZE}">{"".join(parts)}</svg>'
