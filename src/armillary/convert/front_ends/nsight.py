"""Nsight Systems: what `nsys export --type sqlite` writes; every process that used a GPU is a rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from armillary.base.errors import InputError
from armillary.base.units import format_count
from armillary.convert.converted import Converted


def convert(inputs: Sequence[Path]) -> Converted:
    """Return kernels, copies and NVTX ranges of every process with their recorded times, and who waited for whom.

    Ranks follow the largest NCCL communicator that ranges describe; without any, the order of files and of devices.

    Args:
        inputs: one file or more, of one run.

    Raises:
        InputError: a file is none of Nsight Systems, is damaged, or has no work of a GPU.
    """
    from armillary.convert.nsight.events import read_recording
    from armillary.convert.nsight.ranks import number_ranks
    from armillary.convert.pytorch.device_only import without_host
    from armillary.convert.pytorch.job import convert_job
    from armillary.convert.pytorch.records import uncollected

    for path in inputs:
        if path.is_dir():
            raise InputError(f"{path}: is a folder, expected a file of `nsys export --type sqlite`")
        if path.suffix in (".nsys-rep", ".qdrep"):
            raise InputError(f"{path}: is a report, expected what `nsys export --type sqlite {path.name}` makes of it")
    with uncollected():
        recordings = [read_recording(path) for path in inputs]
        processes = [process for each in recordings for process in each.processes.values()]
        notes = number_ranks(processes)
        made = convert_job([without_host(process.trace) for process in processes])
    for each in recordings:
        notes += [
            f"{each.path}: left out: {what}" + ("" if what.startswith("table ") else f" ({format_count(count)})")
            for what, count in sorted(each.left_out.items())
        ]
    # That there is no host trace is how this format is.
    kept = [text for text in made.warnings if "no host trace" not in text]
    return replace(made, warnings=(*notes, *kept))
