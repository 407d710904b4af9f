"""Peaks of memory of measured runs, beside those of the plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from armillary.base.errors import InputError
from armillary.evidence.validate.table import Bar, Progress, Row, Table
from armillary.evidence.validate.training.case import Case, plan_of
from armillary.workload.layers.of_model import layers_of
from armillary.workload.memory.footprint import Footprint, worst
from armillary.workload.pipeline.partition import partition


def footprint_of(case: Case) -> Footprint:
    """Return the footprint of the rank of a case that needs most.

    Raises:
        InputError: the plan is impossible.
    """
    assert case.model is not None
    plan = plan_of(case)
    return worst(partition(layers_of(case.model, plan), plan), plan)


def from_files(
    name: str,
    title: str,
    source: str,
    read: Callable[[Path], Iterator[Case]],
    bytes_of: Callable[[Footprint], int],
    bar: Bar | None,
    notes: tuple[str, ...],
) -> Callable[[Sequence[Path], Progress], Table]:
    """Return what predicts a peak of the rows of files."""

    def run(files: Sequence[Path], progress: Progress) -> Table:
        cases = [case for path in files for case in read(path)]
        rows = []
        for done, case in enumerate(cases):
            rows.append(row_of(case, bytes_of))
            progress(done + 1, len(cases))
        return Table(name, title, "bytes", source, tuple(rows), "given", bar, notes)

    return run


def row_of(case: Case, bytes_of: Callable[[Footprint], int]) -> Row:
    """Return a measured peak beside that of the plan."""
    if case.model is None:
        return Row(case.label, case.measured, float("nan"), case.group, reason=case.reason)
    try:
        # An impossible plan is a refused row, not an error of the table.
        found = bytes_of(footprint_of(case))
    except InputError as error:
        return Row(case.label, case.measured, float("nan"), case.group, reason=str(error))
    return Row(case.label, case.measured, float(found), case.group)
