"""Factors for each kind of work, as random as possible while the simulated time stays.

A step takes T(u) on a machine when kind i of its work is scaled by exp(u_i). The factors start at random, within a
bound. Broyden's quasi-Newton method (Math. Comp. 19, 1965) then moves them by the smallest steps that give the wanted
time on all machines; as there are more kinds of work than machines, much of the randomness stays. The first Jacobian
is the share of the time that each kind takes in the timeline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from armillary.base.errors import ArmillaryError
from armillary.engine import simulate
from armillary.engine.common.timeline import Timeline
from armillary.lab.obfuscation.keyed import Floats
from armillary.lab.obfuscation.relabel import Draft
from armillary.lab.obfuscation.totals import (
    BYTES,
    OPERATIONS,
    TIMES,
    communication_kinds,
    kinds_of_work,
    scaled,
)
from armillary.lab.privacy.machines import Machine
from armillary.trace.columns import NodeType

STEPS = 7
LEAST = 0.3
"""Logarithm by which some factors may always differ from 1, to make up for what rewriting does to the time."""
SHRINK = (1.0, 0.6, 0.3, 0.0)
"""Shares of the bound for the random start, tried in this order."""


@dataclass(frozen=True, eq=False)
class Balanced:
    """A draft that takes the wanted time, and the factors of its kinds of work."""

    draft: Draft
    errors: Floats
    """ln(T / T of the original) on each machine."""
    factors: Mapping[str, float]


def simulate_on(draft: Draft, machine: Machine) -> Timeline:
    """Return the timeline of a draft."""
    return simulate(draft.trace(), machine.platform, profile=machine.profile)


def balance(
    draft: Draft,
    machines: Sequence[Machine],
    ticks: Floats,
    tolerance: float,
    most: float,
    draw: np.random.Generator,
) -> Balanced | None:
    """Return the draft with its work scaled so that it takes as long as the original; None if no factors are found.

    Args:
        draft: The rewritten trace.
        machines: Machines on which the time must stay.
        ticks: Time of the original on each, (machines,).
        tolerance: Share by which times may differ.
        most: Factor by which amounts may differ.
        draw: Draws the first factors, and the times within the tolerance to aim at.
    """
    kinds = kinds_of_work(draft)
    if not kinds:
        return None
    start = draw.uniform(-1, 1, len(kinds))
    bound = np.log1p(tolerance)
    # A random time within the tolerance, so that the original's own is not known better than that.
    aim = draw.uniform(-0.6, 0.6, len(machines)) * bound * (most > 1)
    kernels = np.array([name in (OPERATIONS, TIMES) for name in kinds])
    for share in SHRINK if most > 1 else SHRINK[-1:]:
        width = share * np.log(most)
        # Kernels may always move a little, since joining and splitting them changed their time; where nothing is
        # random (width 0), every kind may.
        limit = np.where(kernels | (width == 0), max(width, LEAST), width)
        found = solve(draft, machines, ticks, kinds, start * width, limit, aim, bound)
        if found is not None:
            return found
    return None


def solve(
    draft: Draft,
    machines: Sequence[Machine],
    ticks: Floats,
    kinds: Sequence[str],
    at: Floats,
    limit: Floats,
    aim: Floats,
    bound: float,
) -> Balanced | None:
    """Return the draft with its work scaled until it takes the wanted time; None if that fails within `STEPS` steps.

    Args:
        draft: The rewritten trace.
        machines: Machines on which the time must hold.
        ticks: Wanted time on each, (machines,).
        kinds: Kinds of work to scale.
        at: Logarithms of the first factors, (kinds,).
        limit: Largest absolute value of the logarithms, (kinds,).
        aim: ln(T / ticks) to aim at, (machines,).
        bound: Largest absolute value of ln(T / ticks).
    """
    jacobian: Floats | None = None
    moved = last = np.zeros(0)
    for _ in range(STEPS):
        factors = dict(zip(kinds, np.exp(at).tolist(), strict=True))
        tried = scaled(draft, factors)
        try:
            lines = [simulate_on(tried, machine) for machine in machines]
        except ArmillaryError:
            return None
        errors = np.log([line.total_ticks for line in lines]) - np.log(ticks)
        # Any point well within the tolerance will do: to go on to `aim` would cost simulations.
        if (np.abs(errors) < 0.9 * bound).all():
            return Balanced(tried, errors, factors)
        if jacobian is None:
            # d ln T / d u_i is about the share of the time that kind i takes alone.
            jacobian = np.array([shares(tried, line, kinds) for line in lines])
        elif moved @ moved > 0:
            # Broyden's update: the smallest change of the Jacobian that explains what the last step did to the times.
            jacobian = jacobian + np.outer(errors - last - jacobian @ moved, moved) / (moved @ moved)
        step = _step(jacobian, aim - errors, at, limit)
        moved, last, at = step, errors, at + step
    return None


def _step(jacobian: Floats, wanted: Floats, at: Floats, limit: Floats) -> Floats:
    """Return the smallest step, (kinds,), that changes ln T by `wanted` and leaves `at` within its limits."""
    # Active set: factors that a step would carry beyond their limits stop there, and the rest is solved again.
    free = np.ones(len(at), np.bool_)
    step = np.zeros(len(at))
    for _ in range(len(at)):
        part = jacobian[:, free]
        if not part.size:
            break
        # Fewer equations (machines) than unknowns (kinds): Jᵀ(J Jᵀ)⁻¹ gives the solution of least norm,
        # which keeps most of the random start. Damping bounds it where two machines respond alike.
        square = part @ part.T
        damping = 1e-6 + 1e-3 * np.trace(square) / len(square)
        more = part.T @ np.linalg.solve(square + damping * np.eye(len(square)), wanted - jacobian @ step)
        trial = step.copy()
        trial[free] += more
        step = np.clip(at + trial, -limit, limit) - at
        outside = free & (np.abs(at + trial) > limit)
        if not outside.any():
            break
        free &= ~outside
    return step


def shares(draft: Draft, line: Timeline, kinds: Sequence[str]) -> Floats:
    """Return the share of the slowest rank's time that each kind of work takes alone, (kinds,)."""
    slowest = int(np.argmax(line.finish))
    rows = draft.rows[int(draft.rank_graph[int(line.representative[slowest])])]
    start, end = (np.asarray(ticks[: rows.n], np.float64) for ticks in line.spans(slowest))
    # Time in which some kernel runs, up to any tick: `busy` at `edges`, linear between them. Kernels may
    # overlap, so each adds only what lies beyond the end of all before it.
    compute = rows.types == NodeType.COMP_NODE
    order = np.argsort(start[compute], kind="stable")
    begins, ends = (
        start[compute][order],
        np.maximum.accumulate(end[compute][order]) if compute.any() else end[:0],
    )
    edges = np.concatenate([[0.0], np.stack([begins, np.maximum(ends, begins)], axis=1).ravel()])
    lengths = np.maximum(ends - np.maximum(begins, np.concatenate([[0.0], ends[:-1]])), 0)
    busy = np.concatenate(
        [[0.0], np.stack([np.cumsum(lengths) - lengths, np.cumsum(lengths)], axis=1).ravel()]
    )
    # Of a node's span, the part in which kernels run: a collective takes only the rest of it.
    hidden = np.interp(end, edges, busy) - np.interp(start, edges, busy)
    alone = np.where(compute, 0.0, np.maximum(end - start - hidden, 0))
    total = float(line.finish[slowest])
    idle = max(total - float(busy[-1]), 0.0)
    kind_of, names = communication_kinds(rows, draft)
    weight: Floats = np.bincount(kind_of[kind_of >= 0], alone[kind_of >= 0], len(names)).astype(np.float64)
    # Communication may overlap communication: together it takes no more than the time without a kernel.
    weight = weight * min(1.0, idle / max(float(weight.sum()), 1.0)) / total
    found = dict(zip(names, weight.tolist(), strict=True))
    kernels = float(busy[-1]) / total
    usual = OPERATIONS if OPERATIONS in kinds else TIMES
    return np.array(
        [
            # First guesses, which Broyden's updates correct: kernels follow mostly their operations, or,
            # where they name none, their recorded times; little of them follows the bytes alone.
            kernels * 0.9 if kind == usual else 0.02 if kind == BYTES else found.get(kind, 0.0)
            for kind in kinds
        ]
    )
