"""A reproduction as a picture, and as one HTML page that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.base.files import write_text
from armillary.base.page import html_page, html_text
from armillary.base.pictures import check_picture, new_figure, save_figure, svg_text
from armillary.evidence.reproduce.assumptions import about, flag
from armillary.evidence.reproduce.judge import DEFINITION, STYLES, VERDICTS
from armillary.evidence.reproduce.outcome import Grid, Line, Outcome

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Everything in one file: no fonts, no scripts, no network.
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1a1a1a; max-width: 62rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem; margin-bottom: 0 } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem } p { color: #555; margin: 0 }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; display: block; overflow-x: auto }
th, td { text-align: left; padding: .3rem 1rem .3rem 0; border-bottom: 1px solid #ddd; vertical-align: top }
.numbers th:not(:first-child), .numbers td:not(:first-child) { text-align: right }
.verdict { font-weight: 600 } .green { color: #00744f } .yellow { color: #9a6700 } .red { color: #b3261e }
.dim, small { color: #666 } svg { max-width: 100%; height: auto; margin-top: 2rem }
@media (max-width: 44rem) {
  .claims tbody, .claims tr, .claims td { display: block; border: 0; padding: 0 } .claims th { display: none }
  .claims tr { border-bottom: 1px solid #ddd; padding: .5rem 0 } .claims td:first-child { float: left; width: 2rem }
  .claims td:not(:first-child) { margin-left: 2rem }
  .claims td:nth-child(3)::before { content: "stated " } .claims td:nth-child(4)::before { content: "ours " }
}
@media (prefers-color-scheme: dark) {
  body { background: #16181c; color: #e6e6e6 } p { color: #aaa } th, td, .claims tr { border-color: #3a3d42 }
  .green { color: #4cc38a } .yellow { color: #e0b04c } .red { color: #ff8a80 } .dim, small { color: #999 }
  svg { background: #fff }
}
"""


def picture(outcome: Outcome, path: Path) -> None:
    """Draw the figure into a .png, .svg or .pdf file.

    Raises:
        InputError: matplotlib is not installed, the suffix is unknown, or the file cannot be written.
    """
    check_picture(path)
    save_figure(_drawn(outcome, outcome.title), path)


def write_page(
    name: str,
    outcome: Outcome,
    assumptions: type[Any],
    path: Path,
    *,
    texts: Mapping[str, str] | None = None,
    sweep: Grid | None = None,
) -> None:
    """Write figure, tables, verdicts and assumptions.

    Args:
        name: Of the reproduction.
        outcome: What was found.
        assumptions: Of what kind its assumptions are.
        path: The file, written complete or not at all.
        texts: What was written for each assumption; without it the defaults.
        sweep: Which verdicts depend on what.

    Raises:
        InputError: matplotlib is not installed, or the file cannot be written.
    """
    # Inline, so that the page needs nothing else.
    svg = svg_text(_drawn(outcome))
    parts = [
        f"<h1>{html_text(outcome.title)}</h1>",
        f"<p>armillary validate reproduce {html_text(name)}</p>",
        "<h2>Claims</h2>",
        claims_html([claim.line() for claim in outcome.claims]),
        f"<p>{html_text(DEFINITION)}</p>",
        svg,
        *(_grid(grid) for grid in outcome.grids),
        *([_grid(sweep)] if sweep else []),
        "<h2>What was assumed</h2>",
        _assumptions(assumptions, texts or {}),
    ]
    write_html(path, outcome.title, parts)


def write_html(path: Path, title: str, parts: Iterable[str]) -> None:
    """Write a page of these parts of its body, complete or not at all.

    Raises:
        InputError: the file cannot be written.
    """
    write_text(path, *html_page(title, _STYLE, ["\n".join(parts), "\n"]))


def _drawn(outcome: Outcome, title: str = "") -> Figure:
    figure = new_figure(9.0, 4.8)
    outcome.draw(figure)
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    return figure


def claims_html(lines: Sequence[Line]) -> str:
    """Return judged claims as a table."""
    rows = [
        (
            f"{number}",
            f"{html_text(line.claim)}<br><small>{html_text(line.source)}</small>",
            html_text(line.number),
            html_text(line.ours),
            f'<span class="verdict {STYLES[line.verdict]}" title="{VERDICTS[line.verdict]}">{line.verdict}</span>',
            html_text(line.why),
        )
        for number, line in enumerate(lines, 1)
    ]
    return _table(("", "claim", "number", "ours", "verdict", "why"), rows, "claims")


def _grid(grid: Grid) -> str:
    rows = [tuple(html_text(cell) for cell in row) for row in grid.rows]
    return f"<h2>{html_text(grid.title)}</h2>" + _table(grid.header, rows, "numbers")


def _assumptions(assumptions: type[Any], texts: Mapping[str, str]) -> str:
    rows = []
    for name, known in about(assumptions).items():
        # What was written on the command line, or the default.
        text = texts.get(name, known.text)
        value = text if text == known.text else f"{text} (default {known.text})"
        rows.append((f"<code>{flag(name)}</code>", html_text(value), html_text(known.why)))
    return _table(("option", "value", "why"), rows)


def _table(header: Iterable[str], rows: Iterable[tuple[str, ...]], kind: str = "texts") -> str:
    # Cells are HTML already; headers are not.
    head = "".join(f"<th>{html_text(cell)}</th>" for cell in header)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>\n" for row in rows)
    return f'<table class="{kind}"><thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody></table>'
