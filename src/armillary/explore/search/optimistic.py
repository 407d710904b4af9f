"""Optimistic bounds of the measures of a point, before it is simulated."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from pathlib import Path

from armillary.base.errors import ArmillaryError
from armillary.explore.search.bound import StepBound
from armillary.explore.sweep.constraint import Objective
from armillary.explore.sweep.measured import before_run
from armillary.explore.sweep.point import Point
from armillary.explore.sweep.prepared import Prepared, prepare
from armillary.explore.sweep.sweep import Sweep
from armillary.platform.network import NETWORK_MODELS
from armillary.workload import models

_SLACK = 1 + 1e-9
"""Margin for rounding in measures that are computed in another order here than from a simulation."""
FROM_TIME = ("step_time", "samples_per_second", "tokens_per_second", "run_time")
"""Measures that depend on the step time alone and improve as it falls."""
KNOWN = ("npus", "memory", "headroom", "fits")
"""Measures that are known before a run."""


class Optimist:
    """Bounds the measures of the points of a sweep; caches machines, layers and kernels."""

    def __init__(self, sweep: Sweep) -> None:
        self.sweep = sweep
        self._path = sweep.base.path or Path("study")
        self._machines: dict[int, StepBound] = {}
        self._kept: list[object] = []

    def measures(self, point: Point) -> dict[str, float]:
        """Return the best possible value of each measure; measures without a bound are left out.

        An impossible point has none.
        """
        try:
            prepared = prepare(point.document, self._path)
            found = before_run(prepared, self.sweep)
            seconds = self.seconds(prepared)
        # Its row comes from the evaluation, which says why.
        except ArmillaryError:
            return {}
        plan, model = prepared.plan, prepared.model
        if not seconds or plan is None or model is None:
            return found
        found["step_time"] = found["bound"] = seconds
        # Less time means more throughput, so a lower bound of the one bounds the other from above.
        found["samples_per_second"] = plan.batch / seconds
        sequence = plan.sequence or models.default_sequence(model)
        if sequence:
            found["tokens_per_second"] = found["samples_per_second"] * sequence
            if self.sweep.tokens:
                found["run_time"] = self.sweep.tokens / (found["tokens_per_second"] * _SLACK)
        return found

    def seconds(self, prepared: Prepared) -> float:
        """Return a lower bound of the step time in s; 0 if nothing is known.

        Raises:
            InputError: the workload is impossible.
        """
        study = prepared.study
        # The bound models the physical engine; no other is known to obey it.
        if study.profile != "physical" or prepared.model is None or prepared.plan is None:
            return 0.0
        platform = study.platform
        named = platform.network_model.name
        own = named in NETWORK_MODELS.built_in and not platform.network_model.options
        if platform.remote_memory.plugged or (named and not own):
            return 0.0  # what another package's models, or rates given to loggops, say may beat every bound of ours
        if id(platform) not in self._machines:
            self._kept.append(platform)  # keeps its id from being reused
            self._machines[id(platform)] = StepBound(platform)
        ticks = self._machines[id(platform)].ticks(prepared.model, prepared.plan)
        return ticks * 1e-9 / prepared.plan.iterations


def vector(objectives: tuple[Objective, ...], measures: Mapping[str, float]) -> tuple[float, ...]:
    """Return the bound of each objective, signed so that less is better; -infinity where nothing is known.

    Measures that follow from time are bounded only in the direction that improves with less time.
    """
    found = []
    for each in objectives:
        # A bound on time says nothing about the most time, so of `maximize step_time` nothing is known.
        known = each.name in measures and (each.name in KNOWN or each.goal == _bounded(each.name))
        found.append(each.sign * measures[each.name] if known else -inf)
    return tuple(found)


def values(objectives: tuple[Objective, ...], measures: Mapping[str, float]) -> tuple[float, ...] | None:
    """Return each objective of a simulated point, signed so that less is better; None if it lacks a measure."""
    if any(each.name not in measures for each in objectives):
        return None
    return tuple(each.sign * measures[each.name] for each in objectives)


def _bounded(name: str) -> str:
    if name not in FROM_TIME:
        return ""
    return "minimize" if name.endswith("_time") else "maximize"
