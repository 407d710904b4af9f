"""The keys of ``platform.variation``: what differs between NPUs and steps, as distributions."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from armillary.base import units
from armillary.platform import variation as values
from armillary.platform.fields import Count, Efficiency, Part, Quantity, Ruled

Slower = Annotated[float, Quantity(units.parse_percent, "percent", "20 %", values.SLOWER)]
Lost = Annotated[float, Quantity(units.parse_percent, "percent", "50 %", values.PART)]
Down = Annotated[float, Quantity(units.parse_time, "time", "3 s", values.DOWN)]
Levels = Annotated[int, Ruled(values.LEVELS)]
_SOURCE = "Where the numbers are from; printed with the result."
_PER = "Neighbours in rank that draw together, such as the NPUs of a node."


class ClockKeys(Part):
    """How long kernels take from NPU to NPU."""

    spread: Efficiency = Field(
        description="Standard deviation (normal) or largest deviation (uniform) of the time of kernels."
    )
    shape: values.ShapeName = Field(default="normal", description="The distribution.")
    levels: Levels = Field(default=16, description="Values that are drawn from; 0: no levels.")
    per: Count = Field(default=1, description=_PER)
    source: str = Field(default="", description=_SOURCE)


class StragglersKeys(Part):
    """NPUs that are slow, few of many."""

    share: Efficiency = Field(description="Probability that one is.")
    slower: Slower = Field(description="Share by which its kernels take longer.")
    per: Count = Field(default=1, description=_PER)
    source: str = Field(default="", description=_SOURCE)


class LinkFlapsKeys(Part):
    """Links that go down and come back within a step: the ranks behind one begin it later by that time."""

    share: Efficiency = Field(description="Probability that the link of a rank does in a step.")
    lasts: Down = Field(description="Mean time for which it is down, exponentially distributed.")
    per: Count = Field(default=1, description="Neighbours in rank behind one link.")
    source: str = Field(default="", description=_SOURCE)


class SlowNicsKeys(Part):
    """NICs that have lost part of their bandwidth."""

    share: Efficiency = Field(description="Probability that one has.")
    loses: Lost = Field(description="Share of its bandwidth, in and out, that is lost.")
    per: Count = Field(default=1, description=_PER)
    dimension: str = Field(default="", description="Of the network; if absent the outermost.")
    source: str = Field(default="", description=_SOURCE)


class BackgroundKeys(Part):
    """Traffic of others, which takes part of the bandwidth of a dimension for a whole step."""

    most: Lost = Field(description="Largest share that it takes: uniform between 0 and this.")
    per: Count | None = Field(
        default=None, description="Neighbours in rank that draw together; if absent all."
    )
    dimension: str = Field(default="", description="Of the network; if absent the outermost.")
    levels: Levels = Field(default=16, description="Values that are drawn from; 0: no levels.")
    source: str = Field(default="", description=_SOURCE)


class VariationKeys(Part):
    """Distributions that `armillary run --samples` draws from (physical)."""

    clock: ClockKeys | None = None
    stragglers: StragglersKeys | None = None
    link_flaps: LinkFlapsKeys | None = None
    slow_nics: SlowNicsKeys | None = None
    background: BackgroundKeys | None = None


_VALUES = {
    "clock": values.Clock,
    "stragglers": values.Stragglers,
    "link_flaps": values.LinkFlaps,
    "slow_nics": values.SlowNics,
    "background": values.Background,
}


def variation_of(keys: VariationKeys) -> values.Variation:
    """Return the value of the keys."""
    given = keys.model_dump(exclude_none=True)
    return values.Variation(**{name: _VALUES[name](**each) for name, each in given.items()})
