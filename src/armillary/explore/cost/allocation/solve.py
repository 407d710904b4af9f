"""The bandwidths under a budget with which communication takes the least time, and a proof that it does.

With u = 1 / bandwidth the time of communication (`Traffic`) is a maximum of sums of maxima of linear functions, so
convex, and the budget ``sum(price / u) <= budget`` is a convex set. Kelley's cutting planes ("The Cutting-Plane Method
for Solving Convex Programs", 1960): the budget is replaced by its tangents at the points met so far, which leaves a
linear program. Its value is a lower bound, as tangents only relax the budget; its point, scaled into the budget, is
an upper bound; the tangent there is the next cut. LIBRA (arXiv 2109.11762) states the problem and leaves it to a
commercial solver.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.explore.cost.allocation.traffic import Floats, Traffic

LEAST = 0.01
"""Least share of an equal split that a dimension gets where no least bandwidth is given."""
# Relative gap at which the search ends, and most cuts.
_GAP, _CUTS = 1e-7, 300


@dataclass(frozen=True)
class Allocation:
    """Bandwidths that were found.

    Attributes:
        bandwidth: Bytes per ns of an NPU in each dimension, (d,).
        time: ns of communication with them, by the model of `Traffic`.
        bound: ns that no bandwidths within the budget and the limits can beat, by the same model.
        cuts: Linear programs that were solved.
    """

    bandwidth: Floats
    time: float
    bound: float
    cuts: int = 0

    @property
    def gap(self) -> float:
        """How much longer than the bound it takes at most, as a share."""
        return self.time / self.bound - 1 if self.bound else 0.0


def spend(price: Floats, budget: float, shape: Floats, lower: Floats, upper: Floats) -> Floats:
    """Return bandwidths in proportion to `shape`, within limits, that cost the budget or as much as limits let.

    Raises:
        InputError: the lower limits alone cost more.
    """
    # 1e-12: rounding.
    if price @ lower > budget * (1 + 1e-12):
        raise InputError(
            f"the least bandwidths cost {price @ lower:,.6g}, expected at most the budget of {budget:,.6g}"
        )
    # At `high` the cheapest dimension alone costs the budget, whatever the limits.
    low, high = 0.0, budget / float((price * shape).min())
    # Bisection: the cost is monotone in the scale. 200 halvings reach the last bit of a double.
    for _ in range(200):
        middle = (low + high) / 2
        if price @ np.clip(middle * shape, lower, upper) > budget:
            high = middle
        else:
            low = middle
    # `low` never costs more than the budget.
    found: Floats = np.clip(low * shape, lower, upper)
    return found


def allocate(
    traffic: Traffic, price: Floats, budget: float, lower: Floats | None = None, upper: Floats | None = None
) -> Allocation:
    """Return the bandwidths that minimise the time of communication.

    Args:
        traffic: What is moved.
        price: Of a byte per ns in each dimension, (d,).
        budget: Most that all may cost together.
        lower: Least bandwidth of each dimension; None: `LEAST` of an equal split.
        upper: Most; None: no limit. A dimension with both equal is fixed.

    Raises:
        InputError: the least bandwidths cost more than the budget, or scipy is missing.
    """
    unit = budget / (len(price) * price)  # a dimension's share of the budget: all numbers are near 1 in it
    lower = (LEAST * budget / price.sum() if lower is None else lower) / unit * np.ones(len(price))
    # In units of shares of the budget no dimension can have more than all of them, which is their number.
    upper = np.minimum(np.full(len(price), np.inf) if upper is None else upper / unit, float(len(price)))
    if (lower > upper).any():
        raise InputError("the budget does not pay for the least bandwidths")
    ones, total = np.ones(len(price)), float(len(price))
    found = spend(ones, total, ones, lower, upper)
    scaled = Traffic(traffic.volume / unit, traffic.chunks, traffic.fixed, traffic.count)
    time = scaled.time(found)
    # Nothing that bandwidth shortens.
    if not time or not traffic.volume.any():
        return Allocation(found * unit, time, time)
    program = _Program(scaled, time, lower, upper)
    program.cut(1 / found)
    # Times are not negative: 0 is a bound to begin with.
    bound = 0.0
    for _ in range(_CUTS):
        value, u = program.solve()
        # Bounds of the programs only grow, but for rounding.
        bound = max(bound, value)
        # The point of the program costs more than the budget, as tangents cut off too little: scaled down, it
        # is a real one.
        tried = spend(ones, total, 1 / u, lower, upper)
        if scaled.time(tried) < time:
            found, time = tried, scaled.time(tried)
        if time - bound <= _GAP * time:
            break
        program.cut(u)
        # Also at the point within the budget: cuts near the optimum are the ones that matter.
        program.cut(1 / tried)
    # Rounding may leave the bound above the time.
    return Allocation(found * unit, time, min(bound, time), len(program.cuts))


def in_steps(
    traffic: Traffic,
    price: Floats,
    budget: float,
    best: Allocation,
    step: float,
    lower: Floats,
    upper: Floats,
) -> Allocation:
    """Return an allocation in multiples of `step`: rounded down, then step by step where it helps the most.

    Its `bound` is that of `best`: near, but not proved to be the best of all multiples.

    Raises:
        InputError: no multiples are within the limits and the budget.
    """
    # 1e-9: a limit that is a multiple must count as one after division; at least one step, as 0 would be no
    # link.
    least = np.maximum(np.ceil(lower / step - 1e-9), 1)
    most = np.floor(upper / step + 1e-9)
    steps = np.maximum(np.floor(best.bandwidth / step + 1e-9), least)
    # As above, rounding must not refuse a budget that is met exactly.
    budget *= 1 + 1e-9
    if step * price @ steps > budget or (least > most).any():
        raise InputError(f"no multiples of {step:,.4g} GB/s are within the limits and the budget")
    while True:
        fits = step * (price @ steps + price) <= budget
        # Dimensions that one more step still pays for.
        open_ = np.flatnonzero(fits & (steps < most)).tolist()
        if not open_:
            break
        gains = {d: traffic.time(step * (steps + np.eye(len(price))[d])) for d in open_}
        # Greedy: the step that leaves the least time; the first of equals.
        steps[min(open_, key=gains.__getitem__)] += 1
    return Allocation(step * steps, traffic.time(step * steps), best.bound, best.cuts)


class _Program:
    """Minimise T over u, t, T: times of kinds and of classes are epigraphs, and the budget its tangents."""

    def __init__(self, traffic: Traffic, scale: float, lower: Floats, upper: Floats) -> None:
        p, d = traffic.volume.shape
        # In units of the first time found: all values of the program are near 1.
        volume = traffic.volume / scale
        # Only where something is moved: zeros need no rows.
        kind, dim = np.nonzero(volume)
        rows: list[Floats] = []
        # t_p >= v_pd u_d
        block = np.zeros((len(kind), d + p + 1))
        block[np.arange(len(kind)), dim] = volume[kind, dim]
        block[np.arange(len(kind)), d + kind] = -1
        rows.append(block)
        # T >= count @ (fixed + (v u) / k + (1 - 1/k) t)
        alone = 1 / traffic.chunks
        block = np.zeros((len(traffic.count), d + p + 1))
        block[:, :d] = traffic.count @ (volume * alone[:, None])
        block[:, d : d + p] = traffic.count * (1 - alone)
        block[:, -1] = -1
        rows.append(block)
        self.left = np.vstack(rows)
        self.right = np.concatenate([np.zeros(len(kind)), -traffic.count @ traffic.fixed / scale])
        # u is between 1 / upper and 1 / lower; t and T only above 0.
        self.bounds = [*zip(1 / upper, 1 / lower, strict=True), *[(0.0, None)] * (p + 1)]
        self.d, self.scale = d, scale
        self.cuts: list[tuple[Floats, float]] = []

    def cut(self, u: Floats) -> None:
        """Add the tangent of the budget at `u`: sum(2/u0 - u/u0^2) <= d."""
        # 1/u is convex: its tangent at u0 is 2/u0 - u/u0**2, below the curve everywhere.
        row = np.zeros(self.left.shape[1])
        row[: self.d] = -1 / u**2
        self.cuts.append((row, self.d - float((2 / u).sum())))

    def solve(self) -> tuple[float, Floats]:
        """Return the least T in ns, and u."""
        goal = np.zeros(self.left.shape[1])
        goal[-1] = 1
        left = np.vstack([self.left, *(row for row, _ in self.cuts)])
        right = np.concatenate([self.right, [value for _, value in self.cuts]])
        found = _linprog()(goal, A_ub=left, b_ub=right, bounds=self.bounds, method="highs")
        if found.x is None:
            raise ArithmeticError(f"linear program of the allocation: {found.message}")
        u: NDArray[np.float64] = found.x[: self.d]
        return float(found.fun) * self.scale, u


def _linprog() -> Any:
    try:
        from scipy.optimize import linprog
    except ImportError as error:
        raise InputError("allocations need scipy: pip install armillary[cost]") from error
    return linprog
