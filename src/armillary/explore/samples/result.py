"""The result of sampling a step."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from armillary.explore.samples.quantiles import LEVELS, interval, quantile

if TYPE_CHECKING:
    from armillary.engine.common.timeline import Timeline

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Cause:
    """What one cause does.

    Attributes:
        name: Its key.
        says: Its distribution in words.
        source: Where the numbers are from, or empty.
        without: Ticks of the same samples without it, (samples,).
    """

    name: str
    says: str
    source: str
    without: Ints


@dataclass(frozen=True, eq=False)
class Samples:
    """Steps on machines that were drawn.

    Attributes:
        ticks: Of the step of each sample in ns, (samples,).
        plain: Of the step on the machine without variation.
        seed: Of the draws.
        method: ``simulated``: each sample was; ``retimed``: one run was, and its times computed anew for each sample.
        causes: What each cause does.
        distinct: NPUs that differ from one another, in the first sample.
        classes: Classes of ranks that behave alike, in the first sample.
        npus: Ranks of the machine.
        levels_error: Largest relative difference that levels made, where samples were drawn again without; None: there
            are none.
        retiming_error: Largest relative difference between retimed and simulated steps; None: all were simulated.
        checks: Machines that `retiming_error` was measured on.
        timeline: Of the step on the machine without variation.
    """

    ticks: Ints
    plain: int
    seed: int
    method: Literal["simulated", "retimed"]
    causes: tuple[Cause, ...]
    distinct: int
    classes: int
    npus: int
    levels_error: float | None = None
    retiming_error: float | None = None
    checks: int = 0
    timeline: Timeline = field(kw_only=True)

    @cached_property
    def ordered(self) -> list[int]:
        """The ticks of all samples, the least first."""
        found: list[int] = np.sort(self.ticks).tolist()
        return found

    def quantile(self, name: str) -> int:
        """Return the ticks of p50, p90 or p99."""
        return quantile(self.ordered, LEVELS[name])

    def interval(self, name: str) -> tuple[int | None, int | None]:
        """Return the 90 % interval of p50, p90 or p99; None: the samples are too few for an end."""
        return interval(self.ordered, LEVELS[name])

    def moved(self, cause: Cause, name: str) -> int:
        """Return by how many ticks a cause moves p50, p90 or p99: with all causes, less without this one."""
        return self.quantile(name) - quantile(np.sort(cause.without).tolist(), LEVELS[name])

    def describe(self) -> dict[str, Any]:
        """Return the result as plain values for JSON; times are ns."""
        return {
            "samples": len(self.ticks),
            "seed": self.seed,
            "unit": "ns",
            **{name: self.quantile(name) for name in LEVELS},
            "intervals": {name: list(self.interval(name)) for name in LEVELS},
            "without_variation": self.plain,
            "method": self.method,
            "npus": self.npus,
            "distinct_npus": self.distinct,
            "classes": self.classes,
            "levels_error_ratio": self.levels_error,
            "retiming_error_ratio": self.retiming_error,
            "retiming_checks": self.checks,
            "causes": {
                cause.name: {
                    "distribution": cause.says,
                    "source": cause.source or None,
                    "moves": {name: self.moved(cause, name) for name in LEVELS},
                }
                for cause in self.causes
            },
            "steps": self.ticks.tolist(),
        }
