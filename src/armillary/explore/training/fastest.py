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
    on = cut_for(machine, plan_of(values, machine))
    return Timed(values, seconds(step_of(model, on, values), software.fitted.constants))


def shortest(
    model: Model,
    machine: Machine,
    software: Software,
    known: Sequence[Timed],
    top: int,
    assumed: tuple[str, ...],
) -> tuple[tuple[Prediction, ...], list[Rejected]]:
    """Return the `top` best plans with what their steps consist of, and the others; `known` has the fastest first."""
    found = []
    for each in known[:top]:
        on = cut_for(machine, plan_of(each.plan, machine))
        found.append(of_step(step_of(model, on, each.plan), on, software, assumed))
    # What they consist of is that of longer runs, in which waits may have built up (docs/validation/training.md).
    found.sort(key=lambda each: each.step_time_s)
    best = format_time(known[0].seconds * 1e9)
    slower = [
        Rejected(each.plan, "slower", f"takes {format_time(each.seconds * 1e9)}, the best {best}")
        for each in known[top:]
    ]
    return tuple(found), slower
