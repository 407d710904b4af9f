"""Run profile `astra-sim`: fast where the order within a tick is known or has no effect, else as it is registered."""

from __future__ import annotations

from functools import partial

import numpy as np

from armillary.engine.astra_sim import layout as lk
from armillary.engine.astra_sim.program import Lowered, lower
from armillary.engine.astra_sim.run import execute
from armillary.engine.common.lowered import Run
from armillary.platform.model import Platform
from armillary.trace import Trace

MOST_EVENTS = 50_000_000
"""More messages and nodes than this are moved one by one only on request: at 1.2 µs each (an all-reduce of 512 NPUs,
one core) they take a minute."""
MOST_ORDERED = 200_000
"""The same where only the order of ranks that finish together is asked for: a quarter of a second."""


def run_astra_sim(
    trace: Trace,
    platform: Platform,
    *,
    fold: bool,
    messages: bool,
    contention: bool,
    finish_order: bool = False,
) -> tuple[Lowered, Run]:
    """Lower and run a trace; `platform` is one of ASTRA-sim, the trace has no rules (`expand_for`).

    The fast run evaluates phases of classes of ranks. If what happens first within a tick makes a difference there, and
    only messages tell it, every message of every rank is moved (`lower`, listed).

    Args:
        trace: One graph per NPU.
        platform: The machine.
        fold: Simulate one rank of each class.
        messages: Move every message from the start.
        contention: Messages wait for links.
        finish_order: Move every message, if there are not more than `MOST_ORDERED`, where ranks finish together.
    """
    lower_with = partial(lower, trace, platform, contention=contention)
    if messages or contention:
        return _listed(lower_with)
    lowered = lower_with(fold_ranks=fold)
    # The fast run is worth nothing where greedy collectives carry load over: who begins first then depends on ranks
    # that were folded away.
    run = None if lowered.carries else execute(lowered)
    # Without a tie that could have an effect, the order within a tick is that of ASTRA-sim, or it changes nothing.
    if run and is_known(lowered, run):
        if not finish_order or _all_apart(lowered, run) or events_of(lowered) > MOST_ORDERED:
            return lowered, run
        return _listed(lower_with)
    # Beyond the limit the fast answer stands, with a warning.
    if (events := events_of(lowered)) <= MOST_EVENTS:
        return _listed(lower_with)
    lowered.warnings.append(
        "some ticks may differ from ASTRA-sim's: they depend on what comes first within a ns, which only the messages "
        f"of all ranks tell, and this run has {events:,} events, more than {MOST_EVENTS:,}; "
        "simulate(messages=True) does them all"
    )
    return lowered, run or execute(lowered)


def is_known(lowered: Lowered, run: Run) -> bool:
    """Whether the order within each tick was that of ASTRA-sim, or had no effect."""
    # A tie is seen when what it decided is used. Ranks that are stuck, or meet in calls that do not match, may not
    # come so far.
    return not run.scalar(lk.V_TIED) and lowered.finished(run)


def _all_apart(lowered: Lowered, run: Run) -> bool:
    """Whether no two ranks finish at one tick."""
    finish = run.table("FINISH")[lowered.classes]
    return len(np.unique(finish)) == len(finish)


def _listed(lower_with: partial[Lowered]) -> tuple[Lowered, Run]:
    lowered = lower_with(listed=True)
    run = execute(lowered)
    # A greedy collective that leaves load over changes the next one. Which pairs meet is known only when they have run,
    # so each pair that a run asked for is lowered, and the run repeated, until no run asks for more.
    while carried := lowered.wanted(run):
        lowered = lower_with(listed=True, carried=carried)
        run = execute(lowered)
    return lowered, run


def events_of(lowered: Lowered) -> int:
    """Return an estimate of the nodes of all ranks plus the messages of their collectives."""
    ranks = np.bincount(lowered.classes)
    spans = lowered.tables["RANKS"].reshape(-1, lk.R_COLUMNS)
    nodes = int((spans[:, lk.R_COUNT] * ranks).sum())
    # Plus one, so that the array of a program without plans can be indexed.
    of_plan = np.zeros(len(lowered.plans) + 1)
    for plan in lowered.plans:
        schedules = [p.schedules[0] for route in plan.call.routes for p in route if p.schedules]
        sends = sum(np.mean([len(role.send_peer) for role in s.roles]) for s in schedules)
        # Chunks are spread over the routes about evenly.
        of_plan[plan.number] = plan.chunks * sends / len(plan.call.routes)
    item = np.flatnonzero(lowered.is_collective)
    of_item = of_plan[lowered.items[item, lk.I_PLAN]] * ranks[lowered.items[item, lk.I_RANK]]
    return nodes + int(of_item.sum())
