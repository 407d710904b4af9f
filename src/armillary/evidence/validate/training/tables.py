"""Cases in, rows of a table out: predicted with the constants of each case's software, or without parts of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pydantic import ValidationError

from armillary.base.errors import InputError
from armillary.evidence.validate.table import Progress, Row, Table
from armillary.evidence.validate.training.case import Case
from armillary.evidence.validate.training.machines import MACHINES
from armillary.evidence.validate.training.predict import step_of
from armillary.explore.training.constants import Constants
from armillary.explore.training.fitted import Fitted, constants_of
from armillary.explore.training.interval import interval_of
from armillary.explore.training.parts import parts_of
from armillary.explore.training.software import software_of


def fitted_of(case: Case) -> Fitted:
    """Return the constants of the software and device of a case."""
    return constants_of(case.stack, MACHINES[case.machine].device)


def row_of(case: Case, constants: Constants | None = None) -> Row:
    """Return the measurement beside its prediction, with the interval of the fit's held-out rows.

    Args:
        case: What was measured.
        constants: Others than those of its software.
    """
    if case.model is None:
        return Row(case.label, case.measured, float("nan"), case.group, reason=case.reason)
    step = step_of(case)
    software = software_of(case.stack, step.device)
    try:
        # An impossible plan is a refused row, not an error of the table.
        parts = parts_of(step, constants or software.fitted.constants)
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


def rows_of(
    cases: Sequence[Case], progress: Progress, constants: Callable[[Case], Constants] | None = None
) -> tuple[Row, ...]:
    """Return the rows of cases, in their order."""
    rows = []
    for done, case in enumerate(cases):
        rows.append(row_of(case, constants(case) if constants and case.model else None))
        progress(done + 1, len(cases))
    return tuple(rows)


def fold(case: Case, name: str) -> Constants:
    """Return the constants of a case that were fitted without a part of the rows; the usual ones if there are none."""
    fitted = fitted_of(case)
    # A fold that was not fitted has the constants of all rows.
    return fitted.folds.get(name, fitted.constants)


def part(name: str, title: str, whole: Table, rows: Sequence[Row]) -> Table:
    """Return a table of rows that were predicted in another way."""
    return Table(name, title, whole.unit, whole.source, tuple(rows), "held out")
