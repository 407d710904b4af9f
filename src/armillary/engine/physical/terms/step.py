"""Host time of an iteration outside of kernels; it is added after everything else."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.platform.kernels import Terms

if TYPE_CHECKING:
    from armillary.engine.common.lowered import Run

ITERATIONS = "iterations"
"""Key of `Trace.about` with the number of steps in a trace; one if it is absent."""


def add_host_time(run: Run, terms: Terms, about: dict[str, Any]) -> int:
    """Let every rank finish later by the host time of all iterations; returns that time in ticks.

    Iterations of a trace have no marked end, so the host time of all of them comes at the end.
    """
    finish = np.asarray(run.state[run.place["FINISH"]], np.int64)
    host: int = ceil(terms.step_time * about.get(ITERATIONS, 1)) + ceil(
        terms.step_share * int(finish.max(initial=0))
    )
    # An interpreted run has a list as its state.
    run.state[run.place["FINISH"]] = (
        finish + host if isinstance(run.state, np.ndarray) else (finish + host).tolist()
    )
    return host
