"""The fastest of plans whose times are known, predicted with what their steps consist of; and why the others lose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from armillary.base.units import format_time
from armillary.compute.machine import Machine
from armillary.explore.training.levels import cut_for
from armillary.explore.training.mean_step import seconds
from armillary.explore.training.prediction import Prediction
from armillary.explore.training.software import Software
from armillary.explore.training.train import of_step, plan_of, step_of
from armillary.workload.models import Model

RANKED = 4
"""Plans of a graph by levels that are simulated again with levels that are cut for each; whole levels rank them."""

Kind = Literal["does not fit into memory", "impossible", "cannot be faster, by its lower bound", "slower"]


@dataclass(frozen=True)
class Rejected:
    """A plan that is not among the best, and why."""

    plan: Mapping[str, Any]
    kind: Kind
    why: str


@dataclass(frozen=True)
class Timed:
    """A plan whose time was simulated."""

    plan: dict[str, Any]
    seconds: float


def timed(model: Model, machine: Machine, software: Software, values: dict[str, Any]) -> Timed:
    """Return a plan with its time.

    Raises:
        InputError: it is impossible on the machine.
    """
    plan_of(values, machine)
    return Timed(values, seconds(step_of(model, machine, values), software.fitted.constants))


def looked_at(machine: Machine, top: int) -> int:
    """Return how many of the fastest plans are predicted."""
    return top if machine.cut is None else max(top, RANKED)


def shortest(
    model: Model,
    machine: Machine,
    software: Software,
    known: Sequence[Timed],
    top: int,
    assumed: tuple[str, ...],
) -> tuple[tuple[Prediction, ...], list[Rejected]]:
    """Return the `top` best plans with what their steps consist of, and the others; `known` has the fastest first."""
    count, predicted = looked_at(machine, top), []
    for each in known[:count]:
        on = cut_for(machine, plan_of(each.plan, machine))
        predicted.append((of_step(step_of(model, on, each.plan), on, software, assumed), each.plan))
    if machine.cut is not None:
        predicted.sort(key=lambda each: each[0].step_time_s)
    by = "" if machine.cut is None else " by whole levels"
    lost = [(plan, one.step_time_s, "") for one, plan in predicted[top:]]
    lost += [(each.plan, each.seconds, by) for each in known[count:]]
    best = format_time(predicted[0][0].step_time_s * 1e9)
    slower = [
        Rejected(plan, "slower", f"takes {format_time(time * 1e9)}{how}, the best {best}")
        for plan, time, how in lost
    ]
    return tuple(one for one, _ in predicted[:top]), slower
