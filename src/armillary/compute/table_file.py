"""Tables of measured GEMMs: CSV files with a header, also compressed with gzip."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from armillary.base.csv_text import CsvRows, check_columns, check_width
from armillary.base.errors import InputError, nearest
from armillary.base.packing import read_unpacked
from armillary.base.reading import MOST_TEXT
from armillary.base.units import whole
from armillary.compute.model import Floats, Ints

COLUMNS = ("m", "n", "k", "time", "precision")
"""What is read; all but the last must be there."""
PRECISIONS = {
    "fp32": "fp32", "float32": "fp32", "float": "fp32", "tf32": "fp32",
    "bf16": "bf16", "bfloat16": "bf16", "fp16": "bf16", "float16": "bf16", "half": "bf16",
    "fp8": "fp8", "float8": "fp8", "e4m3": "fp8", "float8_e4m3fn": "fp8", "fp8_e4m3": "fp8",
}  # fmt: skip
"""Names in files; fp16 runs at the speed of bf16."""


@dataclass(frozen=True)
class Measured:
    """GEMMs of one precision.

    Attributes:
        sizes: (GEMMs, 3) m, n and k; no shape twice.
        ns: (GEMMs) Time of one, the median of its rows.
    """

    sizes: Ints
    ns: Floats


Rows = dict[tuple[int, int, int], list[float]]
"""(m, n, k) -> ns of each of its rows."""


def read_table(
    path: Path, columns: Mapping[str, str], unit_ns: float, precision: str
) -> tuple[dict[str, Measured], list[str]]:
    """Return the GEMMs of a table by precision, and notes; see `read_rows`."""
    rows, notes = read_rows(path, columns, unit_ns, precision)
    return {name: measured_of(found) for name, found in rows.items()}, notes


def read_rows(
    path: Path, columns: Mapping[str, str], unit_ns: float, precision: str
) -> tuple[dict[str, Rows], list[str]]:
    """Read a table.

    Args:
        path: The file.
        columns: Its names of `COLUMNS`, where they are others.
        unit_ns: ns of the unit of times.
        precision: Precision of all rows, if there is no such column.

    Returns:
        Rows by precision, and notes.

    Raises:
        InputError: the file is missing or malformed, or a number in it makes no sense.
    """
    rows: dict[str, Rows] = {}
    left_out: dict[str, int] = {}
    for line, row in _rows(path, columns):
        word = row.get("precision") or precision
        known = PRECISIONS.get(word.lower())
        # Other precisions are skipped with a note: tables often have rows for int8.
        if known is None:
            left_out[word] = left_out.get(word, 0) + 1
            continue
        m, n, k = (_whole(path, line, name, row[name]) for name in ("m", "n", "k"))
        # A shape may be measured several times: `measured_of` takes the median.
        rows.setdefault(known, {}).setdefault((m, n, k), []).append(_time(path, line, row["time"]) * unit_ns)
    if not rows:
        if not left_out:
            raise InputError(f"{path}: no rows below the header, expected a GEMM in each")
        raise InputError(
            f"{path}: precision: got {next(iter(left_out))!r}, expected rows of some of {', '.join(PRECISIONS)}"
        )
    notes = [
        f"{path.name}: {n} row{'s' * (n > 1)} of precision '{word}' {'are' if n > 1 else 'is'} not used"
        for word, n in left_out.items()
    ]
    return rows, notes


def measured_of(rows: Mapping[tuple[int, int, int], Sequence[float]]) -> Measured:
    """Return the GEMMs whose (m, n, k) took these ns, each as often as it was measured."""
    return Measured(
        np.array(list(rows), np.int64).reshape(-1, 3),
        np.array([float(np.median(times)) for times in rows.values()]),
    )


def _rows(path: Path, columns: Mapping[str, str]) -> Iterator[tuple[int, dict[str, str]]]:
    reader = CsvRows(path, io.StringIO(_text(path)))
    header = next(reader, [])
    check_columns(path, reader.line, header)
    place = {}
    for name in COLUMNS:
        called = columns.get(name, name)
        if called in header:
            place[name] = header.index(called)
        # Precision may be absent, unless the study names the column.
        elif name != "precision" or "precision" in columns:
            raise InputError(
                f"{path}: no column '{called}'{nearest(called, header)}; it has {', '.join(header) or 'none'}"
            )
    for row in reader:
        if row:
            check_width(path, reader.line, row, header)
            yield reader.line, {name: row[at].strip() for name, at in place.items()}


def _text(path: Path) -> str:
    from armillary.base.document import read_text

    try:
        if path.suffix != ".gz":
            return read_text(path, "table of GEMMs")
        return bytes(read_unpacked(path, MOST_TEXT)).decode()
    except FileNotFoundError:
        # The same error as for a plain file that is missing.
        return read_text(path, "table of GEMMs")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot read the table of GEMMs: {error}") from error


def _whole(path: Path, line: int, name: str, text: str) -> int:
    number = whole(text)
    if number is None or not 1 <= number < 2**31:
        raise InputError(f"{path}:{line}: {name} is '{text[:40]}', expected a whole number of 1 or more")
    return number


def _time(path: Path, line: int, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise InputError(f"{path}:{line}: time is '{text}', expected a number above 0")
    return value
