"""What differs between the NPUs of a machine, and from step to step, as distributions to draw from.

`armillary.explore.samples` draws from them; a plain simulation takes the machine without them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from armillary.platform.limits import COUNT, MOST_NS, SHARE, TEXT, Choice, Kind, Maybe, Number, check, refuse

ShapeName = Literal["normal", "uniform"]
LEVELS = Number(0, 4096, whole=True)
"""Number of levels of a distribution; 0: none."""
SLOWER = Number(0, 100, above=True, most="10000 %")
"""A share by which something takes longer."""
PART = Number(0, 0.999, above=True, most="99.9 %")
"""A share of a bandwidth that is lost; some must be left."""
DOWN = Number(0, MOST_NS, above=True, most="2501 h")
"""ns of a failure: one of 0 ns is none."""


@dataclass(frozen=True)
class Clock:
    """How long kernels take from NPU to NPU.

    Attributes:
        spread: Standard deviation (normal) or largest deviation (uniform) of the time of kernels, relative to it.
        shape: The distribution.
        levels: Values that are drawn from, 0: all. Ranks that draw the same value behave alike and fold.
        per: Neighbours in rank that draw together, such as the NPUs of a node.
        source: Where the numbers are from.
    """

    spread: float
    shape: ShapeName = "normal"
    levels: int = 16
    per: int = 1
    source: str = ""

    def __post_init__(self) -> None:
        """Validate the fields, see `armillary.platform.limits`."""
        check(self, spread=SHARE, shape=Choice(get_args(ShapeName)), levels=LEVELS, per=COUNT, source=TEXT)


@dataclass(frozen=True)
class Stragglers:
    """NPUs that are slow, few of many.

    Attributes:
        share: Probability that one is.
        slower: Share by which its kernels take longer.
        per: Neighbours in rank that are slow together.
        source: Where the numbers are from.
    """

    share: float
    slower: float
    per: int = 1
    source: str = ""

    def __post_init__(self) -> None:
        """Validate the fields, see `armillary.platform.limits`."""
        check(self, share=SHARE, slower=SLOWER, per=COUNT, source=TEXT)


@dataclass(frozen=True)
class LinkFlaps:
    """Links that go down and come back within a step.

    The ranks behind one begin the step that much later, which is the worst that a flap of this length can do to a step.

    Attributes:
        share: Probability that the link of a rank does in a step.
        lasts: Mean ns for which it is down, more than 0; the time is exponentially distributed.
        per: Neighbours in rank behind one link.
        source: Where the numbers are from.
    """

    share: float
    lasts: float
    per: int = 1
    source: str = ""

    def __post_init__(self) -> None:
        """Validate the fields, see `armillary.platform.limits`."""
        check(self, share=SHARE, lasts=DOWN, per=COUNT, source=TEXT)


@dataclass(frozen=True)
class SlowNics:
    """NICs that have lost part of their bandwidth.

    Attributes:
        share: Probability that one has.
        loses: Share of its bandwidth, in and out, that is lost.
        per: Neighbours in rank whose NICs are slow together.
        dimension: Name of the dimension of the network; empty: the outermost.
        source: Where the numbers are from.
    """

    share: float
    loses: float
    per: int = 1
    dimension: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        """Validate the fields, see `armillary.platform.limits`."""
        check(self, share=SHARE, loses=PART, per=COUNT, dimension=TEXT, source=TEXT)


@dataclass(frozen=True)
class Background:
    """Traffic of others, which takes part of a dimension's bandwidth for a whole step.

    Attributes:
        most: The largest share that it takes; each step draws one between 0 and this, all equally likely.
        per: Neighbours in rank that draw together; 0: all.
        dimension: Name of the dimension of the network; empty: the outermost.
        levels: Values that are drawn from, 0: all.
        source: Where the numbers are from.
    """

    most: float
    per: int = 0
    dimension: str = ""
    levels: int = 16
    source: str = ""

    def __post_init__(self) -> None:
        """Validate the fields, see `armillary.platform.limits`."""
        check(self, most=PART, per=Maybe(COUNT, 0), dimension=TEXT, levels=LEVELS, source=TEXT)


@dataclass(frozen=True)
class Variation:
    """The causes of variation of a machine; None: it does not vary so."""

    clock: Clock | None = None
    stragglers: Stragglers | None = None
    link_flaps: LinkFlaps | None = None
    slow_nics: SlowNics | None = None
    background: Background | None = None

    def __post_init__(self) -> None:
        """Validate the fields, see `armillary.platform.limits`."""
        kinds = (Clock, Stragglers, LinkFlaps, SlowNics, Background)
        check(self, **{
            each.name: Kind(kind, f"a {kind.__name__} or None", none=True)
            for each, kind in zip(fields(self), kinds, strict=True)
        })  # fmt: skip

    def causes(self) -> dict[str, Any]:
        """Return the causes that the machine has, by name, in the order of the fields."""
        return {each.name: cause for each in fields(self) if (cause := getattr(self, each.name)) is not None}

    def check_dimensions(self, names: list[str]) -> None:
        """Refuse a cause that names a dimension which the machine lacks.

        Raises:
            FieldError: names the cause.
        """
        for name in ("slow_nics", "background"):
            cause = getattr(self, name)
            if cause is not None and cause.dimension and (problem := Choice(names)(cause.dimension)):
                raise refuse(self, (name, "dimension"), problem)
