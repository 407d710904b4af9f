"""The formats of files of measured training steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from armillary.base.errors import InputError
from armillary.evidence.validate.sniff import headers
from armillary.evidence.validate.training import bridge, maxtext, mlperf, mpt, simumax, torchtitan, vtrain
from armillary.evidence.validate.training.case import Case


@dataclass(frozen=True)
class Format:
    """A format: its name, the columns that tell it from others, and its reader."""

    name: str
    columns: Sequence[str]
    cases: Callable[[Path], Iterator[Case]]


FORMATS = (
    Format("vTrain", vtrain.COLUMNS, vtrain.cases),
    Format("MPT", mpt.COLUMNS, mpt.cases),
    Format("Megatron-Bridge", bridge.COLUMNS, bridge.cases),
    Format("MLPerf", mlperf.COLUMNS, mlperf.cases),
    *(Format("torchtitan", names, torchtitan.cases) for names in torchtitan.COLUMNS),
    *(Format("MaxText", names, maxtext.cases) for names in (maxtext.COLUMNS, maxtext.LOG)),
    Format("SimuMax", simumax.COLUMNS, simumax.cases),
)


def read_cases(path: Path) -> tuple[Format, list[Case]]:
    """Return the format of a file, and its rows.

    Raises:
        InputError: it has none of the formats, or is malformed.
    """
    found = headers(path)
    for header in found:
        # Supersets: a file may have more columns than a format needs.
        for each in FORMATS:
            if set(each.columns) <= set(header):
                return each, list(each.cases(path))
    names = ", ".join(f"{each.name} ({', '.join(each.columns[:3])}, …)" for each in FORMATS)
    raise InputError(f"{path}: no header that is known, expected the columns of {names}")
