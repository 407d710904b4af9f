"""What a reproduction found: tables, a figure, and a verdict on each claim of the source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from rich.table import Table

Verdict = Literal["holds", "partly", "fails", "open"]
VERDICTS: dict[Verdict, str] = {
    "holds": "what the source says is what we find",
    "partly": "so for some of the cases, or weaker",
    "fails": "we find something else",
    "open": "cannot be judged by what is public",
}
STYLES: dict[str, str] = {"holds": "green", "partly": "yellow", "fails": "red", "open": "dim"}


@dataclass(frozen=True)
class Claim:
    """A sentence of the source, and what we make of it.

    Attributes:
        text: What is claimed, in our words.
        source: Where.
        found: What we find, with numbers and units.
        verdict: One of `VERDICTS`.
    """

    text: str
    source: str
    found: str
    verdict: Verdict


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
        """Return the claims for the terminal."""
        from rich.table import Table
        from rich.text import Text

        out = Table(box=None, pad_edge=False, header_style="bold", title="Claims", title_justify="left")
        for name in ("claim", "found", "verdict"):
            out.add_column(name, overflow="fold")
        for claim in self.claims:
            text = Text(f"{claim.text} ").append(f"({claim.source})", style="dim")
            out.add_row(text, claim.found, Text(claim.verdict, style=STYLES[claim.verdict]))
        return out


def changed(base: Outcome, other: Outcome) -> str:
    """Return which claims `other` judges differently: ``"2: holds -> fails"``, by their place; or "none"."""
    turned = [
        f"{place}: {one.verdict} -> {two.verdict}"
        for place, (one, two) in enumerate(zip(base.claims, other.claims, strict=True), 1)
        if one.verdict != two.verdict
    ]
    return "; ".join(turned) or "none"
