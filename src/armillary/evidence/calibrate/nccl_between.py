"""Fit collectives over several nodes: what NICs carry, and regimes of latencies over all node counts at once."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from armillary.collective.fitted.between import Spanning, Stage, nic_share, steps
from armillary.evidence.calibrate.samples import Sample

PENALTY = 0.02
"""Squared relative error that a further regime must save: chosen by leaving sizes out."""
LEAST = 3
"""Sizes that a regime must have."""
_LARGE = 0.25
"""Share of the measurements with the highest rates, whose median is the rate of the NICs."""
_ALIKE = 1.01
"""Sizes that differ by less are one: they are rounded to multiples of the members."""

Floats = NDArray[np.float64]


def fit_spanning(operation: str, samples: Sequence[Sample], penalty: float = PENALTY) -> Spanning:
    """Fit one operation over several nodes.

    Args:
        operation: Of which there is at least one sample.
        samples: Also of operations that take the same steps: they share regimes, but not what NICs carry.
        penalty: See `PENALTY`.
    """
    counts = sorted({(sample.operation, sample.per_node) for sample in samples})
    nic = {
        key: _rate([sample for sample in samples if (sample.operation, sample.per_node) == key])
        for key in counts
    }
    # Sizes within 1 % of each other are one point of the sweep.
    sizes: list[int] = []
    for size in sorted({sample.size for sample in samples}):
        if not sizes or size > sizes[-1] * _ALIKE:
            sizes.append(size)
    ordered = sorted(samples, key=lambda sample: sample.size)
    terms = np.array([_terms(sample, nic) for sample in ordered])
    several = len({sample.nodes for sample in samples}) > 1
    # log2 of one node count is a constant, which base already is.
    columns = (0, 1, 2, 3) if several else (1, 2, 3)  # of one node count: base and hop cannot be told apart
    # Where the samples of each size begin, in order of size; a sentinel at the end.
    first = np.searchsorted([sample.size for sample in ordered], [*sizes, math.inf]).tolist()
    count = len(sizes)
    # Dynamic programming over the ends of regimes: best[end] is the least cost of the sizes before `end`.
    best, back = [0.0] + [math.inf] * count, [0] * (count + 1)
    found: dict[int, Floats] = {}
    for end in range(1, count + 1):
        for begin in range(end):
            # A regime needs LEAST sizes, unless there are fewer in all before it.
            if end - begin < min(LEAST, count) and not (begin == 0 and end < LEAST):
                continue
            weights, cost = _solve(terms[first[begin] : first[end]], columns)
            # The penalty keeps further regimes out that save less.
            cost += best[begin] + penalty
            if cost < best[end]:
                best[end], back[end], found[end] = cost, begin, weights
    stages: list[Stage] = []
    end = count
    while end > 0:
        # Between two sizes the switch is at their geometric mean; the last regime has no end.
        last = math.inf if end == count else math.sqrt(sizes[end - 1] * sizes[end])
        base, hop, step, load = found[end].tolist()
        stages.insert(0, Stage(last, base, hop, step, load))
        end = back[end]
    # Other operations lent their samples for the regimes only.
    mine = {per_node: rate for (name, per_node), rate in nic.items() if name == operation}
    return Spanning(mine, tuple(stages))


def _terms(sample: Sample, nic: dict[tuple[str, int], float]) -> list[float]:
    """Return what multiplies base, hop, step and load, over the measured time."""
    sent = sample.size * nic_share(sample.operation, sample.per_node, sample.nodes)
    sent /= nic[sample.operation, sample.per_node]
    terms = (1.0, math.log2(sample.nodes), steps(sample.operation, sample.members), sent)
    # Over the measured time, so that 1 is a perfect prediction and errors are relative.
    return [term / sample.ns for term in terms]


def _rate(samples: Sequence[Sample]) -> float:
    """Return bytes per ns of a NIC at large sizes."""
    rates = sorted(
        (s.size * nic_share(s.operation, s.per_node, s.nodes) / s.ns for s in samples),
        # The highest rates are at large sizes, where latency no longer counts; their median is robust.
        reverse=True,
    )
    return float(np.median(rates[: max(1, round(len(rates) * _LARGE))]))


def _solve(terms: Floats, columns: Sequence[int]) -> tuple[Floats, float]:
    """Return weights of 0 or more for which terms @ weights is nearest to 1, and the squared error."""
    best, error = np.zeros(4), math.inf
    # Non-negative least squares by trying all subsets of at most four columns: 15 of them, exact and without
    # a library.
    for number in range(1, len(columns) + 1):
        for chosen in itertools.combinations(columns, number):
            if number > len(terms):
                continue
            part = terms[:, chosen]
            weights, *_ = np.linalg.lstsq(part, np.ones(len(part)), rcond=None)
            # A negative latency would predict less than nothing at small sizes.
            if (weights < 0).any():
                continue
            # 1e-6 per term: fewer terms win where both explain the same.
            cost = float(((part @ weights - 1) ** 2).sum()) + 1e-6 * number
            if cost < error - 1e-9:  # of terms that say the same the first, whatever the last bit of an error
                best = np.zeros(4)
                best[list(chosen)] = weights
                error = cost
    return best, error
