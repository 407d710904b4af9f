"""Factors for each kind of work, as random as can be while the time stays.

A step takes T(u) on a machine when kind i of its work is scaled by exp(u_i). The factors begin at random, within a
bound. Newton's method with the Jacobian of Broyden (Math. Comp. 19, 1965) then moves them, by the least that is needed,
to where the time is what it shall be on all machines; as there are more kinds of work than machines, much of the
randomness stays. The first Jacobian is the share of the time that each kind is seen to take.
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
from armillary.trace.schema import NodeType

STEPS = 7
LEAST = 0.3
"""Logarithm by which factors may differ from 1 in any case: rewriting itself must be made up for."""
SHRINK = (1.0, 0.6, 0.3, 0.0)
"""Shares of the bound that are tried, one after the other."""


@dataclass(frozen=True, eq=False)
class Balanced:
    """A draft that takes as long as it shall, and by what its kinds of work were scaled."""

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
    """Return the draft with other amounts of work that takes as long as the original; None if none is found.

    Args:
        draft: The rewritten trace.
        machines: Where it must hold.
        ticks: What the original takes on each.
        tolerance: Share by which times may differ.
        most: Factor by which amounts may differ.
        draw: Where factors begin, and which times within the tolerance are aimed at.
    """
    kinds = kinds_of_work(draft)
    if not kinds:
        return None
    start = draw.uniform(-1, 1, len(kinds))
    bound = np.log1p(tolerance)
    aim = draw.uniform(-0.6, 0.6, len(machines)) * bound * (most > 1)
    kernels = np.array([name in (OPERATIONS, TIMES) for name in kinds])
    for share in SHRINK if most > 1 else SHRINK[-1:]:
        width = share * np.log(most)
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
    """Return the draft with its work scaled until it takes as long as it shall; None if it does not get there.

    Args:
        draft: The rewritten trace.
        machines: Where it must hold.
        ticks: What it shall take on each, (machines,).
        kinds: Kinds of work that are scaled.
        at: Logarithms of the factors to begin with, (kinds,).
        limit: What they may be at most, up or down, (kinds,).
        aim: ln(T / ticks) that is aimed at, (machines,).
        bound: What it may be at most, up or down.
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
        if (np.abs(errors) < 0.9 * bound).all():
            return Balanced(tried, errors, factors)
        if jacobian is None:
            jacobian = np.array([shares(tried, line, kinds) for line in lines])
        elif moved @ moved > 0:
            jacobian = jacobian + np.outer(errors - last - jacobian @ moved, moved) / (moved @ moved)
        step = _step(jacobian, aim - errors, at, limit)
        moved, last, at = step, errors, at + step
    return None


def _step(jacobian: Floats, wanted: Floats, at: Floats, limit: Floats) -> Floats:
    """Return the smallest step towards `wanted` that leaves `at` within its limits."""
    free = np.ones(len(at), np.bool_)
    step = np.zeros(len(at))
    for _ in range(len(at)):
        part = jacobian[:, free]
        if not part.size:
            break
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
    """Return the share of the time of the slowest ranks that each kind of work takes, where it hides nothing else."""
    slowest = int(np.argmax(line.finish))
    rows = draft.rows[int(draft.rank_graph[int(line.representative[slowest])])]
    start, end = (np.asarray(ticks[: rows.n], np.float64) for ticks in line.spans(slowest))
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
    hidden = np.interp(end, edges, busy) - np.interp(start, edges, busy)
    alone = np.where(compute, 0.0, np.maximum(end - start - hidden, 0))
    total = float(line.finish[slowest])
    idle = max(total - float(busy[-1]), 0.0)
    kind_of, names = communication_kinds(rows, draft)
    weight: Floats = np.bincount(kind_of[kind_of >= 0], alone[kind_of >= 0], len(names)).astype(np.float64)
    weight = weight * min(1.0, idle / max(float(weight.sum()), 1.0)) / total
    found = dict(zip(names, weight.tolist(), strict=True))
    kernels = float(busy[-1]) / total
    usual = OPERATIONS if OPERATIONS in kinds else TIMES
    return np.array(
        [
            kernels * 0.9 if kind == usual else 0.02 if kind == BYTES else found.get(kind, 0.0)
            for kind in kinds
        ]
    )
