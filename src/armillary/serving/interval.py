"""How far means of measured runs were from ours: 90 % intervals of TTFT and TPOT.

Kernels, the rule of an engine, its host and its client all err, so the interval is that of whole runs: what lay between
the 5th and the 95th percentile of measured over predicted. It holds for loads such as those, on devices of which
kernels were measured. How many rows of half of the models the ratios of the others cover: docs/validation/serving.md.
"""

from __future__ import annotations

import math

RATIOS = {"ttft": (0.84, 2.0), "tpot": (0.85, 1.28)}
"""Metric -> 5th and 95th percentile of measured over predicted (``serving-ttft`` and ``serving-tpot`` of
`armillary.evidence.validate`, silicon_sample.csv)."""
ROWS = 1684
"""Runs of these percentiles."""


def interval(name: str, value: float) -> tuple[float, float]:
    """Return the ends within which 90 % of measured means lie if `value` is predicted; nan of a metric of no ratios."""
    low, high = RATIOS.get(name, (math.nan, math.nan))
    return low * value, high * value
