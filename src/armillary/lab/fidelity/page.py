"""A measurement of fidelity as a picture, and as one self-contained HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from armillary.base.files import write_text
from armillary.base.page import html_page, html_text
from armillary.base.pictures import check_picture, new_figure, save_figure, svg_text
from armillary.lab.fidelity.measure import WAYS, Fidelity
from armillary.lab.fidelity.show import TITLES, tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOURS = {"made": "#0072B2", "nearest": "#E69F00"}
_MARKS = {False: "o", True: "^"}
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1a1a1a; max-width: 62rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem } table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: 1.5rem 0 }
th, td { text-align: left; padding: .3rem 1rem .3rem 0; border-bottom: 1px solid #ddd; vertical-align: top }
svg { max-width: 100%; height: auto }
"""


def draw_picture(found: Fidelity, path: Path) -> None:
    """Draw the step times of made traces over those of true ones into a .png, .svg or .pdf file.

    Raises:
        InputError: matplotlib is not installed, the suffix is unknown, or the file cannot be written.
    """
    check_picture(path)
    save_figure(_drawn(found), path)


def _drawn(found: Fidelity) -> Figure:
    figure = new_figure(9.0, 4.4)
    against, errors = figure.subplots(1, 2)
    for axes in (against, errors):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(visible=True, color="#DDDDDD", linewidth=0.6)
        axes.set_axisbelow(True)
    # The baseline first, so that the made traces lie on top.
    for way in reversed(WAYS):
        for beyond, mark in _MARKS.items():
            points = [
                (times["true"] / 1e9, times[way] / 1e9)
                for each in found.compared
                if bool(each.beyond) == beyond
                for times in each.times.values()
            ]
            if points:
                where = "beyond" if beyond else "between"
                label = f"{TITLES[way]}, {where} the corpus"
                against.scatter(
                    *zip(*points, strict=True),
                    s=12,
                    marker=mark,
                    color=_COLOURS[way],
                    alpha=0.7,
                    label=label,
                )
    ends = against.get_xlim()
    against.set(xscale="log", yscale="log", xlabel="true step time (s)", ylabel="step time (s)")
    times = [times["true"] / 1e9 for each in found.compared for times in each.times.values()]
    if times:
        ends = (min(times), max(times))
        against.plot(ends, ends, color="#666666", linewidth=0.8)
        against.legend(frameon=False, fontsize=8)
    for way in WAYS:
        sizes = sorted(abs(float(each)) * 100 for each in found.errors("time", way))
        # The empirical distribution function: the share of steps up to each error.
        shares = [100 * (at + 1) / len(sizes) for at in range(len(sizes))]
        errors.step(sizes, shares, where="post", color=_COLOURS[way], label=TITLES[way])
    # Errors span several decades and may be 0, where a logarithmic axis ends.
    errors.set(xscale="symlog", xlabel="error of step time (%)", ylabel="steps with at most this error (%)")
    errors.set_xlim(left=-0.2)
    errors.set_ylim(0, 102)
    errors.axvline(5, color="#666666", linewidth=0.8, linestyle=":")
    errors.legend(frameon=False, fontsize=8)
    return figure


def write_page(found: Fidelity, path: Path) -> None:
    """Write picture and tables.

    Raises:
        InputError: matplotlib is not installed, or the file cannot be written.
    """
    title = "Made traces against true ones"
    parts = [f"<h1>{title}</h1>", svg_text(_drawn(found)), *(_table(each) for each in tables(found))]
    write_text(path, *html_page(title, _STYLE, ["\n".join(parts), "\n"]))


def _table(table: Table) -> str:
    head = "".join(f"<th>{html_text(str(column.header))}</th>" for column in table.columns)
    cells = [list(column.cells) for column in table.columns]
    body = "".join(
        "<tr>" + "".join(f"<td>{html_text(str(cell))}</td>" for cell in row) + "</tr>\n"
        for row in zip(*cells, strict=True)
    )
    return f"<table><thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody></table>"
