"""How far measured steps lie from predicted ones, as a law of what a step consists of.

The variance of ln(measured / predicted) is a sum: of all steps, of mixtures of experts, and of what a step exposes of
communication and waiting, by the square of its share. Its parts are those under which the residuals of rows that were
held out are likeliest; then all are scaled so that 9 of 10 rows lie within the 90 % interval, those of one plan one by
one: plans that many measured are those that the next row will be of, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from armillary.evidence.calibrate.training import Floats
from armillary.evidence.validate.training.case import Case
from armillary.evidence.validate.training.predict import step_of
from armillary.explore.training.constants import Constants
from armillary.explore.training.fitted import NORMAL, Spread
from armillary.explore.training.parts import exposed, parts_of

LEAST = 0.01
"""Standard deviation that no part goes below: two runs of one plan differ as much."""
MOST = 0.5
"""Residuals beyond count as this: a row that is half off says that something is wrong, not how wide an interval is."""


def spread_of(
    cases: Sequence[Case],
    residuals: Floats,
    rows: Sequence[Sequence[Case]],
    constants: Callable[[Case], Constants],
) -> dict[str, float]:
    """Return the spread of a software, as its file has it.

    Args:
        cases: Rows of different plans.
        residuals: (cases) ln of predicted over measured, each by constants that have not seen it.
        rows: (cases) all rows of each plan.
        constants: Of a case.
    """
    from scipy.optimize import minimize

    shares = np.array([exposed(parts_of(step_of(case), constants(case))) for case in cases])
    experts = np.array([float(case.model is not None and case.model.experts is not None) for case in cases])
    known = np.clip(residuals, -MOST, MOST)

    def deviation(logs: Floats) -> Floats:
        step, exposes, mixture = np.exp(logs)
        found: Floats = np.sqrt(step**2 + (exposes * shares) ** 2 + (mixture * experts) ** 2)
        return found

    def unlikely(logs: Floats) -> float:
        sigma = deviation(logs)
        # Weak priors keep parts of which the rows say nothing near usual ones.
        usual = np.log([0.06, 0.2, 0.1])
        return float(np.sum(np.log(sigma) + 0.5 * (known / sigma) ** 2) + 0.5 * np.sum((logs - usual) ** 2))

    best = minimize(unlikely, np.log([0.06, 0.2, 0.1]), method="Nelder-Mead").x
    wide = [
        abs(off + np.log(case.seconds() / row.seconds())) / sigma
        for case, off, sigma, own in zip(cases, residuals, deviation(best), rows, strict=True)
        for row in own
    ]
    scale = float(np.quantile(wide, 0.9) / NORMAL)
    step, exposes, mixture = (max(LEAST, scale * float(each)) for each in np.exp(best))
    return vars(Spread(step, exposes, mixture if experts.any() else 0.0))
