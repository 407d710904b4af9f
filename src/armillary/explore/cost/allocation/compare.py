"""A study with its bandwidths allocated, simulated beside the same with equal ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from armillary.base.errors import InputError, nearest, one_of
from armillary.engine import simulate
from armillary.engine.common.timeline import Timeline
from armillary.explore.cost.allocation.solve import LEAST, Allocation, allocate, in_steps, spend
from armillary.explore.cost.allocation.traffic import Floats, Traffic, traffic_of, with_bandwidths
from armillary.platform.files.native import Study
from armillary.platform.model import Platform
from armillary.workload import study_trace


@dataclass(frozen=True)
class Comparison:
    """Equal bandwidths, and those found for the same budget.

    Attributes:
        platform: The machine of the study.
        price: Of a GB/s in each dimension, in what the budget counts.
        traffic: Of the run with equal bandwidths.
        equal, best: Both allocations; the first has no bound of its own.
        equal_run, best_run: Both simulated.
    """

    platform: Platform
    price: Floats
    traffic: Traffic
    equal: Allocation
    best: Allocation
    equal_run: Timeline
    best_run: Timeline

    @property
    def speedup(self) -> float:
        """Step time with equal bandwidths / step time with those found."""
        # Nothing to communicate or compute: neither is faster.
        return self.equal_run.total_ticks / self.best_run.total_ticks if self.best_run.total_ticks else 1.0


def compare(
    study: Study,
    price: Floats,
    budget: float,
    *,
    least: Mapping[str, float] | None = None,
    most: Mapping[str, float] | None = None,
    step: float = 0.0,
) -> Comparison:
    """Allocate a budget for the traffic of a study and simulate it; bandwidths are GB/s of an NPU, one way.

    Args:
        study: One workload, profile physical, on a network of dimensions.
        price: Of a GB/s in each dimension.
        budget: Most that all cost together.
        least: Dimension -> its least bandwidth; others get `LEAST` of an equal split at least.
        most: Dimension -> its most.
        step: Only multiples of it; 0: any.

    Raises:
        InputError: the study is of another kind, a dimension is unknown, or the budget does not pay for the least.
        StuckError: a simulation cannot finish.
    """
    platform = study.platform
    if study.profile != "physical" or platform.topology is not None or study.jobs:
        raise InputError(
            f"{study.path}: expected one workload in profile physical, on a network of dimensions (no topology)"
        )
    # GB/s per dimension if all have the same.
    even = budget / price.sum()
    # A dimension without bandwidth would make any use of it take forever.
    lower = _limits(platform, least or {}, LEAST * even)
    upper = _limits(platform, most or {}, np.inf)
    for name, value in (least or {}).items():
        if value > (most or {}).get(name, np.inf):
            raise InputError(f"dimension '{name}': the least bandwidth is more than the most")
    # The usual least may be above a given most.
    lower = np.minimum(lower, upper)
    # Equal bandwidths are the baseline, as far as limits let.
    equal = spend(price, budget, np.ones(len(price)), lower, upper)
    trace = study_trace(study)
    # Simulated first: the traffic is read from its timeline.
    equal_run = simulate(trace, with_bandwidths(platform, equal))
    traffic = traffic_of(trace, platform, equal_run)
    best = allocate(traffic, price, budget, lower, upper)
    if step:
        best = in_steps(traffic, price, budget, best, step, lower, upper)
    # The model is approximate: both are simulated, and the speedup is of the simulations.
    best_run = simulate(trace, with_bandwidths(platform, best.bandwidth))
    time = traffic.time(equal)
    return Comparison(platform, price, traffic, Allocation(equal, time, 0.0), best, equal_run, best_run)


def _limits(platform: Platform, given: Mapping[str, float], usual: float) -> Floats:
    names = [dimension.name for dimension in platform.dimensions]
    for name in given:
        if name not in names:
            raise InputError(f"got dimension '{name}', expected {one_of(names)}{nearest(name, names)}")
    return np.array([given.get(name, usual) for name in names])
