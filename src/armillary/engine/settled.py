"""Run profile `astra-sim`: fast where the order within a tick is known or has no effect, else as it is registered."""

from __future__ import annotations

from functools import partial

import numpy as np

from armillary.engine import layout_kernel as lk
from armillary.engine.program import Lowered, lower
from armillary.engine.run import Run, execute
from armillary.platform.model import Platform
from armillary.trace import Trace

MOST_MESSAGES = 20_000_000
"""More messages than this are moved only if asked for: at 1.2 µs each (512 NPUs, one core) they take half a minute."""


def run_astra_sim(
    trace: Trace, platform: Platform, *, fold: bool, messages: bool, contention: bool
) -> tuple[Lowered, Run]:
    """Lower and run a trace; `platform` is one of ASTRA-sim, the trace has no rules (`expand_for`).

    The fast run evaluates phases of classes of ranks. If what happens first within a tick made a difference there, and
    only messages tell it, the run is repeated with every message of every rank (`lower`, listed).

    Args:
        trace: One graph per NPU.
        platform: The machine.
        fold: Simulate one rank of each class.
        messages: Move every message from the start.
        contention: Messages wait for links.
    """
    lower_with = partial(lower, trace, platform, contention=contention)
    lowered, run = _run(partial(lower_with, fold_ranks=fold, listed=messages))
    if run.scalar(lk.V_TIED):
        count = messages_of(lowered)
        if count <= MOST_MESSAGES:
            return _run(partial(lower_with, listed=True))
        lowered.warnings.append(
            "some chunks that come to a dimension in the same ns may be taken in another order than in ASTRA-sim: only "
            f"messages tell, and the {count:,} of this run are more than {MOST_MESSAGES:,}; messages=True moves them"
        )
    return lowered, run


def _run(lower_with: partial[Lowered]) -> tuple[Lowered, Run]:
    lowered = lower_with()
    run = execute(lowered)
    while carried := lowered.wanted(run):
        lowered = lower_with(carried=carried)
        run = execute(lowered)
    return lowered, run


def messages_of(lowered: Lowered) -> int:
    """Return how many messages the collectives of all ranks send."""
    of_plan = np.zeros(len(lowered.plans) + 1)
    for plan in lowered.plans:
        schedules = [p.schedules[0] for route in plan.job.routes for p in route if p.schedules]
        sends = sum(np.mean([len(role.send_peer) for role in s.roles]) for s in schedules)
        of_plan[plan.number] = plan.chunks * sends / len(plan.job.routes)
    collective = np.flatnonzero(lowered.is_collective)
    ranks = np.bincount(lowered.classes)[lowered.items[collective, lk.I_RANK]]
    return int((of_plan[lowered.items[collective, lk.I_PLAN]] * ranks).sum())
