"""What steps take beside kernels and collectives: constants of a software, as far as measured steps decide them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import hypot, log
from typing import Any

import numpy as np

from armillary.base.errors import InputError
from armillary.compute.machine import Machine
from armillary.evidence.calibrate.observe.steps import MeasuredStep
from armillary.evidence.calibrate.priors import WEIGHT, pooled, told
from armillary.evidence.calibrate.training import RANGES, Floats, fit, mean_error, residuals, slopes_at
from armillary.evidence.calibrate.training_files import rounded
from armillary.evidence.calibrate.training_spread import LEAST
from armillary.evidence.validate.training.case import Case
from armillary.explore.training.constants import Constants
from armillary.explore.training.defaults import completed, with_sequence
from armillary.explore.training.fitted import ALL, UNKNOWN, Spread
from armillary.explore.training.interval import ELSEWHERE
from armillary.explore.training.parts import exposed, parts_of
from armillary.explore.training.software import Software, usual
from armillary.explore.training.step import Step
from armillary.explore.training.train import plan_of
from armillary.workload.models.schema import Decoder

CANDIDATES = (
    "gemm", "attention", "memory", "communication_inside", "communication_between", "launch", "step",
)  # fmt: skip
"""Constants that steps of a few plans may decide; the others stay those of the software that they begin with."""
_NEAR = 1e-3
"""Widths by which a constant is away from its bounds, else it is at one."""


@dataclass(frozen=True)
class Row:
    """A measured plan.

    Attributes:
        case: The plan, with the median of its times.
        seconds: All of its times.
        values: Keys of the whole plan.
        machine: With as many devices as the plan has ranks.
        held_out: s predicted by constants that have not seen the plan.
    """

    case: Case
    seconds: tuple[float, ...]
    values: Mapping[str, Any]
    machine: Machine
    held_out: float = float("nan")


@dataclass(frozen=True)
class Steps:
    """Measured steps, and what they decide.

    Attributes:
        rows: The plans.
        base: Software that the constants begin with; "": none.
        names: Constants that the plans decide.
        constants: These.
        spread: Of a step.
        held_out: Mean absolute error of plans that were held out; nan: too few.
    """

    rows: tuple[Row, ...]
    base: str
    names: tuple[str, ...]
    constants: Mapping[str, float]
    spread: Spread
    held_out: float

    def document(self, title: str, device: str, files: Sequence[str]) -> dict[str, Any]:
        """Return the file of the software."""
        return {
            "title": f"as observed on {title}",
            **({"base": self.base} if self.base else {}),
            "script": "armillary calibrate observe",
            "source": list(files),
            "prior": f"{WEIGHT:g} plans of the spread; a constant is drawn to where it begins by its width",
            "devices": {
                ALL: {
                    "constants": rounded(self.constants),
                    "rows": sum(len(row.seconds) for row in self.rows),
                    "held_out": "no rows" if np.isnan(self.held_out) else f"{100 * self.held_out:.2f} %",
                    "measured_on": device,
                    "spread": rounded(vars(self.spread)),
                }
            },
        }


def software_name(steps: Sequence[MeasuredStep], asked: str, usually: str) -> str:
    """Return the software of all steps: what the user says, files say, or what trains on the machine; "": none.

    Raises:
        InputError: they are of several.
    """
    if asked:
        return asked
    named = {step.software for step in steps if step.software}
    if usually:
        named = named or {usual(usually, step.plan) for step in steps}
    if len(named) > 1:
        raise InputError(
            f"steps are of several softwares ({', '.join(sorted(named))}): choose one by --software"
        )
    return named.pop() if named else ""


def rows_of(
    steps: Sequence[MeasuredStep], software: Software | None, machine_of: Callable[[int | None], Machine]
) -> list[Row]:
    """Return the measured plans, each with all of its times.

    Args:
        steps: As read.
        software: Whose plans they are; None: of none that is known.
        machine_of: From a number of devices, or None, to the machine.

    Raises:
        InputError: a plan is impossible; it names the line.
    """
    found: dict[str, Row] = {}
    for step in steps:
        try:
            machine = machine_of(step.ranks)
            given, _ = with_sequence(step.model, step.plan)
            values = completed(given, software.plan if software else {}, step.model)
            plan_of(values, machine)
            row = Row(_case(step, values, machine), step.seconds, values, machine)
            parts_of(row.case.step, Constants())  # type: ignore[arg-type]
        except InputError as error:
            raise InputError(f"{step.where}: {error}") from None
        key = json.dumps([step.model.model_dump_json(), machine.npus, values], sort_keys=True)
        if key in found:
            seconds = (*found[key].seconds, *step.seconds)
            row = Row(_case(step, values, machine, seconds), seconds, values, machine)
        found[key] = row
    return list(found.values())


def _case(
    step: MeasuredStep, values: Mapping[str, Any], machine: Machine, seconds: tuple[float, ...] = ()
) -> Case:
    middle = float(np.median(seconds or step.seconds))
    model = step.model if isinstance(step.model, Decoder) else None
    own = Step(step.model, dict(values), machine.keys, machine.npus, machine.device)
    return Case(
        step.where,
        "observed",
        middle * 1e3,
        machine.name,
        machine.npus,
        model,
        dict(values),
        "observed",
        step=own,
    )


def fit_steps(rows: Sequence[Row], software: Software | None, further: float) -> Steps:
    """Return the constants that measured plans decide: at most half as many as plans, each drawn to where it begins.

    Args:
        rows: The plans.
        software: Whose constants are where they begin; None: nothing is added to kernels and collectives.
        further: Standard deviation that what the kernels are taken from adds.
    """
    start = software.fitted.constants if software else Constants()
    known = software.fitted.spread if software else UNKNOWN
    cases = [row.case for row in rows]
    constants, held = start, residuals(cases, lambda case: start)
    slopes = slopes_at(cases, lambda case: start, CANDIDATES)
    left, names = list(range(len(CANDIDATES))), _told(slopes, range(len(CANDIDATES)), len(cases))
    while names:
        found = fit(cases, lambda case: start, names)
        outside = {name for name in names if not _is_inside(name, found.constants[name])}
        if not outside:
            constants = start.changed(found.constants)
            held = np.array([found.without(out)[1][0] for out in np.eye(len(cases), dtype=bool)])
            break
        # One that ends at a bound stands for something else: it stays where it was, and another may move.
        left = [at for at in left if CANDIDATES[at] not in outside]
        names = _told(slopes, left, len(cases))
    # Before anything was measured here: what the software was off by elsewhere. What all steps of a device are off by
    # together is in the constants that plans decide, if they decide any.
    usual = known if names else Spread(hypot(known.step, ELSEWHERE, further), known.exposed, known.experts)
    spread = _spread(rows, cases, constants, held.tolist(), usual)
    predicted = [case.seconds() * float(np.exp(off)) for case, off in zip(cases, held, strict=True)]
    return Steps(
        tuple(
            Row(row.case, row.seconds, row.values, row.machine, each)
            for row, each in zip(rows, predicted, strict=True)
        ),
        software.name if software else "",
        names,
        {name: getattr(constants, name) for name in names},
        spread,
        mean_error(held),
    )


def _told(slopes: Floats, left: Sequence[int], points: int) -> tuple[str, ...]:
    return tuple(CANDIDATES[left[at]] for at in told(slopes[:, list(left)], points).tolist())


def _is_inside(name: str, value: float) -> bool:
    known = RANGES[name]
    return known.least + _NEAR * known.width < value < known.most - _NEAR * known.width


def _spread(
    rows: Sequence[Row], cases: Sequence[Case], constants: Constants, held: Sequence[float], usual: Spread
) -> Spread:
    """Return the spread of a step: that of before, all of its parts by the factor that measured times ask for."""
    off = []
    for row, case, residual in zip(rows, cases, held, strict=True):
        assert case.step is not None
        mixture = case.model is not None and case.model.experts is not None
        share = exposed(parts_of(case.step, constants))
        wide = hypot(usual.step, usual.exposed * share, usual.experts * mixture)
        # Each time that was measured, not only the median: one step is what is predicted.
        off += [(residual + log(case.seconds() / each)) / wide for each in row.seconds]
    factor = pooled(off, len(rows), 1.0)
    return Spread(max(LEAST, usual.step * factor), usual.exposed * factor, usual.experts * factor)
