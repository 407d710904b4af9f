"""What a picture of a network consists of: panels of marks and lines, in a square from -1 to 1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Place = tuple[float, float]


@dataclass(frozen=True)
class Mark:
    """A node, or a part of the machine that is drawn as one.

    Attributes:
        at: Its place.
        sort: "npu", "switch", "block", "gap" (an ellipsis for what is left out) or "row" (the name of a row).
        label: Written beside or in it.
        tip: Said about it where a reader can ask.
    """

    at: Place
    sort: str
    label: str = ""
    tip: str = ""


@dataclass(frozen=True)
class Line:
    """A link, or several; `bend` is how far it leaves the straight line, relative to its length.

    `members` are the two members of the panel that it joins (see `Panel.ends`), or -1.
    """

    start: Place
    end: Place
    kind: str = ""
    bend: float = 0.0
    width: float = 1.0
    dashed: bool = False
    tip: str = ""
    members: tuple[int, int] = (-1, -1)

    @property
    def control(self) -> Place:
        """The control point of the quadratic Bézier curve."""
        (x0, y0), (x1, y1) = self.start, self.end
        # The middle, moved at a right angle to the line.
        return (x0 + x1) / 2 - self.bend * (y1 - y0), (y0 + y1) / 2 + self.bend * (x1 - x0)


@dataclass
class Panel:
    """One drawing with a title and lines of text below.

    `ends` are, if known, (2, links) the members that the links of the topology leave and enter, -1 for none.
    """

    title: str
    notes: list[str]
    marks: list[Mark] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    ends: NDArray[np.int64] | None = None

    @property
    def kinds(self) -> list[str]:
        """Kinds of links, in the order they appear."""
        return list(dict.fromkeys(line.kind for line in self.lines if line.kind))


def visible(count: int, most: int) -> list[int | None]:
    """Return which of `count` things to show; None stands for those left out."""
    if count <= most:
        return list(range(count))
    # The first ones, a gap, and the last one: that shows how the numbering ends.
    return [*range(most - 2), None, count - 1]


def circle(count: int, radius: float = 0.8, centre: Place = (0.0, 0.0)) -> list[Place]:
    """Return places on a circle, clockwise from the top."""
    turns = [2 * math.pi * i / max(count, 1) for i in range(count)]
    return [(centre[0] + radius * math.sin(turn), centre[1] + radius * math.cos(turn)) for turn in turns]


def row(count: int, y: float, width: float = 1.8, middle: float = 0.0) -> list[Place]:
    """Return places side by side."""
    return [(middle + width * ((i + 0.5) / count - 0.5), y) for i in range(count)]


def grid(sizes: Sequence[int]) -> dict[tuple[int, ...], Place]:
    """Return the places of a grid of one, two or three axes; the third goes into the depth."""
    # Missing axes have one position.
    x, y, z = (*sizes, 1, 1)[:3]
    # A cube in oblique projection: the third axis takes up 0.42 of the width.
    deep = 0.42 if z > 1 else 0.0
    # Nearer layers shrink by as much, so that all stay in the square.
    span = 1.6 - 1.6 * deep
    places = {}
    for k in range(z):
        far = k / (z - 1) if z > 1 else 0.0
        for j in range(y):
            for i in range(x):
                # A single position stands in the middle.
                left = i / (x - 1) if x > 1 else 0.5
                down = j / (y - 1) if y > 1 else 0.5
                place = (
                    -0.8 + span * left + 1.6 * deep * far,
                    0.8 - span * down - 1.6 * deep * (1 - far),
                )
                places[(i, j, k)[: len(sizes)]] = place
    return places
