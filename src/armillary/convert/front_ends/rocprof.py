"""AMD's rocprofv3: the output of `--output-format json`; every process that used a GPU is a rank."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from armillary.convert.converted import Converted


def convert(inputs: Sequence[Path]) -> Converted:
    """Return what every process ran, with ROCTx ranges, its recorded times, and who waited for whom.

    Ranks are in the order of the files, and in a file in that of the GPUs.

    Args:
        inputs: one file or more, of one run.

    Raises:
        InputError: a file is none of rocprofv3, or has no work of a GPU; names the record.
    """
    from armillary.convert.profilers.job import job_of
    from armillary.convert.profilers.rocprof import read_recording

    return job_of(inputs, read_recording, "a file of `rocprofv3 --output-format json`")
