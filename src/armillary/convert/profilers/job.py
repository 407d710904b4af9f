"""Make the processes of recordings the ranks of one job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from armillary.base.errors import InputError
from armillary.base.garbage import uncollected
from armillary.base.units import format_count
from armillary.convert.converted import Converted
from armillary.convert.profilers.process import Recording
from armillary.convert.profilers.ranks import number_ranks
from armillary.convert.pytorch.device_only import without_host
from armillary.convert.pytorch.job import convert_job


def job_of(inputs: Sequence[Path], read: Callable[[Path], Recording], expected: str) -> Converted:
    """Return the job whose processes were recorded in files.

    Raises:
        InputError: a file cannot be read, or files are not of one run.
    """
    for path in inputs:
        if path.is_dir():
            raise InputError(f"{path}: is a folder, expected {expected}")
    with uncollected():
        recordings = [read(path) for path in inputs]
        processes = [process for each in recordings for process in each.processes.values()]
        notes = number_ranks(processes)
        made = convert_job([without_host(process.trace) for process in processes])
    for each in recordings:
        notes += [
            f"{each.path}: left out: {what}"
            + ("" if what.startswith("table ") else f" ({format_count(count)})")
            for what, count in sorted(each.left_out.items())
        ]
    # That there is no host trace is how these formats are.
    kept = [text for text in made.warnings if "no host trace" not in text]
    return replace(made, warnings=(*notes, *kept))
