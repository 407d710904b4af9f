"""What a reproduction found: tables, a figure, and a verdict on each claim of the source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from armillary.study.reproduce.judge import DEFINITION, STYLES, Case, Verdict, judge, numbers, ours

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class Claim:
    """A sentence of the source, and what we make of it.

    Attributes:
        text: What is claimed, in our words.
        source: Where.
        why: What explains ours, or is beyond it.
        judged: The numbers that decide the verdict; none: the source gives nothing to compare with.
    """

    text: str
    source: str
    why: str
    judged: tuple[Case, ...] | Verdict

    @property
    def cases(self) -> tuple[Case, ...]:
        """The numbers that decide."""
        return () if isinstance(self.judged, str) else self.judged

    @property
    def verdict(self) -> Verdict:
        """What follows from them; see `armillary.study.reproduce.judge`."""
        return self.judged if isinstance(self.judged, str) else judge(self.judged)

    @property
    def number(self) -> str:
        """What the source says, with tolerance or relation."""
        return numbers(self.cases)

    @property
    def ours(self) -> str:
        """What we find."""
        return ours(self.cases)


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
        for name in ("claim", "number", "ours", "verdict", "why"):
            out.add_column(name, overflow="fold")
        for claim in self.claims:
            text = Text(f"{claim.text} ").append(f"({claim.source})", style="dim")
            word = Text(claim.verdict, style=STYLES[claim.verdict])
            out.add_row(text, claim.number, claim.ours, word, claim.why)
        out.caption, out.caption_justify = DEFINITION, "left"
        return out


def changed(base: Outcome, other: Outcome) -> str:
    """Return which claims `other` judges differently: ``"2: holds -> fails"``, by their place; or "none"."""
    turned = [
        f"{place}: {one.verdict} -> {two.verdict}"
        for place, (one, two) in enumerate(zip(base.claims, other.claims, strict=True), 1)
        if one.verdict != two.verdict
    ]
    return "; ".join(turned) or "none"
