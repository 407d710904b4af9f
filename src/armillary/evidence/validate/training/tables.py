"""Cases in, rows of a table out: predicted with the constants of each case's software, or without parts of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pydantic import ValidationError

from armillary.base.errors import InputError
from armillary.evidence.calibrate.training import half
from armillary.evidence.validate.table import Progress, Row, Table
from armillary.evidence.validate.training.case import Case
from armillary.evidence.validate.training.machines import MACHINES
from armillary.evidence.validate.training.predict import seconds, step_of
from armillary.explore.training.constants import Constants
from armillary.explore.training.fitted import Fitted, constants_of
from armillary.explore.training.interval import interval_of
from armillary.explore.training.parts import parts_of
from armillary.explore.training.software import software_of
from armillary.explore.training.step import texts


def fitted_of(case: Case) -> Fitted:
    """Return the constants of the software and device of a case."""
    return constants_of(case.stack, MACHINES[case.machine].device)


def row_of(case: Case) -> Row:
    """Return the measurement beside its prediction, with the interval of the fit's held-out rows."""
    if case.model is None:
        return Row(case.label, case.measured, float("nan"), case.group, reason=case.reason)
    step = step_of(case)
    software = software_of(case.stack, step.device)
    try:
        # An impossible plan is a refused row, not an error of the table.
        parts = parts_of(step, software.fitted.constants)
    except InputError as error:
        return Row(case.label, case.measured, float("nan"), case.group, reason=str(error))
    except ValidationError as error:
        # A number that no plan may have.
        found = error.errors()[0]
        where = ".".join(map(str, found["loc"]))
        reason = f"{where}: got {str(found['input'])[:40]}, {found['msg'].removeprefix('Value error, ')}"
        return Row(case.label, case.measured, float("nan"), case.group, reason=reason)
    # Two ends: low and high swap where the unit is a rate.
    low, high = sorted(case.in_unit(end) for end in interval_of(step, software, parts))
    return Row(case.label, case.measured, case.in_unit(sum(parts.values())), case.group, low, high)


def rows_of(cases: Sequence[Case], progress: Progress) -> tuple[Row, ...]:
    """Return the rows of cases, in their order; runs of one configuration are predicted once."""
    return rows_and_halves(cases, [False] * len(cases), progress)[0]


def rows_and_halves(
    cases: Sequence[Case], fitted: Sequence[bool], progress: Progress
) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
    """Return the rows of cases, and those of `fitted` ones again by constants of the other half of them.

    Both of a case are predicted one after the other, as its trace is kept for a while only.
    """
    rows, halves, known = [], [], dict[tuple[object, ...], Row]()
    for done, (case, with_half) in enumerate(zip(cases, fitted, strict=True)):
        key = _plan(case)
        found = known.get(key)
        # Of impossible plans, too, what is said does not depend on the run.
        rows.append(replace(found, label=case.label, measured=case.measured) if found else row_of(case))
        known.setdefault(key, rows[-1])
        if with_half:
            halves.append(held_out(case, rows[-1]))
        progress(done + 1, len(cases))
    return tuple(rows), tuple(halves)


def _plan(case: Case) -> tuple[object, ...]:
    """Return all that the prediction of a case follows from."""
    if case.model is None:
        return (case.label, case.reason, case.group)
    # A rate follows from what a step handles, too.
    return (case.stack, case.group, case.amount, *texts(step_of(case), Constants()))


def held_out(case: Case, row: Row) -> Row:
    """Return the row of a case by constants of the other half, with the relative width that it has by those of all.

    Halves are by a hash of the label, as the fit made them.
    """
    if row.reason:
        return row
    time = case.in_unit(seconds(case, fold(case, f"half {half(case.label)}")))
    scale = time / row.predicted
    return replace(row, predicted=time, low=row.low * scale, high=row.high * scale)


def fold(case: Case, name: str) -> Constants:
    """Return the constants of a case that were fitted without a part of the rows; the usual ones if there are none."""
    fitted = fitted_of(case)
    # A fold that was not fitted has the constants of all rows.
    return fitted.folds.get(name, fitted.constants)


def part(name: str, title: str, whole: Table, rows: Sequence[Row]) -> Table:
    """Return a table of rows that were predicted in another way."""
    return Table(name, title, whole.unit, whole.source, tuple(rows), "held out")
