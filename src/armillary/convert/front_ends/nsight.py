"""Nsight Systems: the output of `nsys export --type sqlite`; every process that used a GPU is a rank."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from armillary.base.errors import InputError
from armillary.convert.converted import Converted


def convert(inputs: Sequence[Path]) -> Converted:
    """Return kernels, copies and NVTX ranges of every process with their recorded times, and who waited for whom.

    Ranks follow the largest NCCL communicator that ranges describe; without any, the order of files and of devices.

    Args:
        inputs: one file or more, of one run.

    Raises:
        InputError: a file is none of Nsight Systems, is damaged, or has no work of a GPU.
    """
    from armillary.convert.profilers.job import job_of
    from armillary.convert.profilers.nsight import read_recording

    for path in inputs:
        if path.suffix in (".nsys-rep", ".qdrep"):
            raise InputError(
                f"{path}: is a report, expected what `nsys export --type sqlite {path.name}` makes of it"
            )
    return job_of(inputs, read_recording, "a file of `nsys export --type sqlite`")
