"""Tables of steps (.csv): columns kind, value; all ranks do the same, row by row."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from armillary.base.document import read_text
from armillary.base.errors import InputError, one_of
from armillary.base.units import parse_bytes, parse_time
from armillary.convert.converted import Converted
from armillary.trace import GraphBuilder, Trace

_KINDS = ("compute", "all-reduce")


def convert(inputs: Sequence[Path], *, ranks: int = 8) -> Converted:
    """Return a trace in which each row waits for the row before.

    Args:
        inputs: one file; a row is ``compute,20 us`` or ``all-reduce,1 MiB``.
        ranks: Number of ranks.

    Raises:
        InputError: the file cannot be read, or a row is neither; names the line.
    """
    if len(inputs) != 1:
        raise InputError(f"{len(inputs)} tables given, expected one")
    path, builder, last = inputs[0], GraphBuilder(), list[int]()
    for line, row in enumerate(csv.reader(read_text(path, "table of steps").splitlines()), start=1):
        if len(row) != 2 or row[0] not in _KINDS:
            raise InputError(f"{path}:{line}: got '{','.join(row)}', expected {one_of(_KINDS)} and a value")
        try:
            if row[0] == "compute":
                micros = round(parse_time(row[1]) / 1000)
                last = [builder.compute(f"row {line}", duration_micros=micros, after=last)]
            else:
                last = [builder.all_reduce(f"row {line}", parse_bytes(row[1]), after=last)]
        except ValueError as error:
            raise InputError(f"{path}:{line}: {error}") from None
    return Converted(Trace.replicate(builder.graph(), ranks))
