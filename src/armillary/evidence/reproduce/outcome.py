"""The outcome of a reproduction: tables, a figure, and a verdict on each claim of the source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from armillary.evidence.reproduce.judge import DEFINITION, STYLES, Case, Verdict, judge, numbers, ours

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class Claim:
    """A sentence of the source, and what we make of it.

    Attributes:
        text: What is claimed, in our words.
        source: Where.
        why: What explains ours, or is beyond it.
        cases: The numbers that decide the verdict; none: the source gives nothing to compare with.
    """

    text: str
    source: str
    why: str
    cases: tuple[Case, ...]

    @property
    def verdict(self) -> Verdict:
        """What follows from them; see `armillary.evidence.reproduce.judge`."""
        return judge(self.cases)

    @property
    def number(self) -> str:
        """What the source says, with tolerance or relation."""
        return numbers(self.cases)

    @property
    def ours(self) -> str:
        """What we find."""
        return ours(self.cases)

    def line(self) -> Line:
        """Return the claim as texts, for tables."""
        return Line(
            self.text,
            self.source,
            self.number,
            self.ours,
            self.verdict,
            self.why,
            tuple(map(Case.row, self.cases)),
        )


@dataclass(frozen=True)
class Line:
    """A judged claim as texts, which can be saved; `cases` are rows of `Case.row`."""

    claim: str
    source: str
    number: str
    ours: str
    verdict: Verdict
    why: str
    cases: tuple[dict[str, Any], ...]


COLUMNS = {"claim": 27, "number": 15, "ours": 21, "verdict": 15, "why": 22}
"""Column of a table of claims -> its share of the width."""


def claims_table(lines: Sequence[Line], title: str = "Claims") -> Table:
    """Return judged claims for the terminal; columns are as wide in all of them."""
    # Names and widths as in COLUMNS.
    from rich.table import Table
    from rich.text import Text

    out = Table(
        box=None, pad_edge=False, header_style="bold", title=Text(title), title_justify="left", expand=True
    )
    for name, width in COLUMNS.items():
        out.add_column(name, overflow="fold", ratio=width)
    for line in lines:
        text = Text(f"{line.claim} ").append(f"({line.source})", style="dim")
        out.add_row(text, line.number, line.ours, Text(line.verdict, style=STYLES[line.verdict]), line.why)
    return out


@dataclass(frozen=True)
class Grid:
    """A table of texts, with units in them.

    Attributes:
        title: What it shows.
        header: Names of the columns; the first is that of the rows.
        rows: Texts, as many as columns.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def table(self) -> Table:
        """Return it for the terminal."""
        from rich.table import Table

        out = Table(box=None, pad_edge=False, header_style="bold", title=self.title, title_justify="left")
        for number, name in enumerate(self.header):
            out.add_column(name, justify="right" if number else "left")
        for row in self.rows:
            out.add_row(*row)
        return out


@dataclass(frozen=True)
class Outcome:
    """The result of one reproduction.

    Attributes:
        title: What was simulated, in a line.
        grids: Tables in the order of reading.
        claims: What the source claims, judged.
        draw: Draws into a matplotlib figure.
    """

    title: str
    grids: tuple[Grid, ...]
    claims: tuple[Claim, ...]
    draw: Callable[[Any], None]

    def verdicts(self) -> Table:
        """Return the claims, and what a verdict means, for the terminal."""
        # The definition under the table, so that a reader can check each word.
        out = claims_table([claim.line() for claim in self.claims])
        out.caption, out.caption_justify = DEFINITION, "left"
        return out


def changed(base: Outcome, other: Outcome) -> str:
    """Return which claims `other` judges differently: ``"2: holds -> fails"``, by their place; or "none"."""
    turned = [
        f"{place}: {one.verdict} -> {two.verdict}"
        # Claims are numbered as on the page; both have the same, in order.
        for place, (one, two) in enumerate(zip(base.claims, other.claims, strict=True), 1)
        if one.verdict != two.verdict
    ]
    return "; ".join(turned) or "none"
