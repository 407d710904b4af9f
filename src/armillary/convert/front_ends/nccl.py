"""NCCL: records of its inspector, or traces of its example profiler, of all processes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from armillary.base.errors import InputError
from armillary.convert.converted import Converted


def convert(inputs: Sequence[Path]) -> Converted:
    """Return the collectives of every process, in their order and with their recorded times.

    Time between collectives is kept where records have starts (the profiler's, and the inspector's verbose ones).
    One file alone stands for all ranks of its communicators.

    Args:
        inputs: one file for each process or more, or folders of them.

    Raises:
        InputError: a file cannot be read or is neither, or ranks are missing; names the record.
    """
    from armillary.convert.nccl.records import Process, read_records
    from armillary.convert.nccl.trace import trace_of

    files = [file for path in inputs for file in (_files(path) if path.is_dir() else [path])]
    merged: dict[str, Process] = {}
    for file in files:
        for process in read_records(file):
            # The inspector may write several files for one process.
            known = merged.setdefault(process.name, Process(process.name))
            known.calls += process.calls
            known.other += process.other
    return trace_of(list(merged.values()), str(inputs[0]))


def _files(folder: Path) -> list[Path]:
    found = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    if not found:
        raise InputError(f"{folder}: no files, expected those of NCCL's inspector or profiler")
    return found
