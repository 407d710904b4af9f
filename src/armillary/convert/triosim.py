"""Read TrioSim's traces: ``trace.csv`` has the operators of a step in program order, ``tensor.csv`` their tensors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from armillary.base.counts import MOST_RECORDED, check_count
from armillary.base.csv_text import CsvRows
from armillary.base.document import read_text
from armillary.base.errors import InputError, nearest
from armillary.base.units import whole
from armillary.trace.graph import LIMIT

OPERATORS = (
    "OperatorID", "OperatorName", "Operator_input", "Operator_output", "Operator_cudatime",
    "Operator_cudatimenooverlap", "InputSize", "OutputSize", "gpuid", "stage", "tpflag",
)  # fmt: skip
TENSORS = ("TensorID", "TensorNumElement", "TensorEachByte", "TensorType")
STAGES = ("forward", "backward", "optimizer")
_IDS = re.compile(r"-?\d{1,18}")
_MOST_GPUS = 1 << 16


@dataclass(frozen=True)
class Operator:
    """A row of ``trace.csv``.

    Attributes:
        name: Of the operator.
        inputs: Ids of its tensors.
        outputs: Ids of what it makes.
        ns: Time on the GPU without what overlaps with others.
        elements: Of inputs and outputs together.
        gpu: Where it runs.
        stage: One of `STAGES`.
        heavy: Whether it multiplies matrices or looks up embeddings, so that its bytes say little about its time.
    """

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    ns: int
    elements: int
    gpu: int
    stage: str
    heavy: bool


@dataclass(frozen=True)
class Tensor:
    """A row of ``tensor.csv``: its bytes, and what it is (input, weight, output, gradient …)."""

    size: int
    kind: str


@dataclass(frozen=True)
class Step:
    """A traced step; without ``tensor.csv`` there are no tensors. `whole_ns` is the sum of times with overlaps."""

    path: Path
    operators: tuple[Operator, ...]
    tensors: Mapping[int, Tensor]
    whole_ns: int


def read_step(paths: list[Path]) -> Step:
    """Return the step of a trace, and of the tensors if their file is given; files are told apart by their columns.

    Raises:
        InputError: A file is missing, there twice or is neither, or a value is wrong; names the line.
    """
    operators: list[Operator] | None = None
    tensors: dict[int, Tensor] | None = None
    at, total = paths[0], 0
    for path in paths:
        rows = CsvRows(
            path, read_text(path, "TrioSim trace").splitlines(keepends=True), skipinitialspace=True
        )
        header = [name.strip() for name in next(rows, [])]
        if "OperatorName" in header and operators is None:
            at = path
            operators, total = _operators(path, rows, header)
        elif "TensorID" in header and tensors is None:
            tensors = dict(_tensors(path, rows, header))
        else:
            raise InputError(
                f"{path}:1: got columns {', '.join(header)[:80]}, expected one trace.csv "
                f"({', '.join(OPERATORS[:4])}, …) and at most one tensor.csv ({', '.join(TENSORS)})"
            )
    if not operators:
        raise InputError(f"{paths[0]}: no operators, expected TrioSim's trace.csv")
    return Step(at, tuple(operators), tensors or {}, total)


def _rows(
    path: Path, rows: CsvRows, header: list[str], needed: tuple[str, ...]
) -> Iterator[tuple[str, dict[str, str]]]:
    for name in needed:
        if name not in header:
            raise InputError(f"{path}:1: missing column '{name}'{nearest(name, header)}")
    for number, row in enumerate(rows.named(header), 1):
        check_count(number, MOST_RECORDED, f"{path}: rows", "a shorter trace")
        yield f"{path}:{rows.line}", {key: value.strip() for key, value in row.items()}


def _operators(path: Path, rows: CsvRows, header: list[str]) -> tuple[list[Operator], int]:
    found, total, ids = [], 0, 0
    own = "Operator_cudatimenooverlap" if "Operator_cudatimenooverlap" in header else "Operator_cudatime"
    needed = tuple(name for name in OPERATORS if name not in ("OperatorID", "Operator_cudatimenooverlap"))
    for where, row in _rows(path, rows, header, needed):
        stage = row["stage"].lower()
        if stage not in STAGES:
            raise InputError(
                f"{where}: stage: got '{row['stage'][:40]}', expected one of {', '.join(STAGES)}"
            )
        gpu = _whole(where, row, "gpuid", _MOST_GPUS)
        inputs, outputs = (
            tuple(map(int, _IDS.findall(row[key]))) for key in ("Operator_input", "Operator_output")
        )
        ids += len(inputs) + len(outputs)
        check_count(ids, 8 * MOST_RECORDED, f"{path}: tensors of operators", "a shorter trace")
        elements = sum(_size(where, row, key) for key in ("InputSize", "OutputSize"))
        total += _ns(where, row, "Operator_cudatime")
        found.append(
            Operator(row["OperatorName"], inputs, outputs, _ns(where, row, own), elements, gpu, stage,
                     _whole(where, row, "tpflag", 1) == 1)
        )  # fmt: skip
    return found, total


def _tensors(path: Path, rows: CsvRows, header: list[str]) -> Iterator[tuple[int, Tensor]]:
    for where, row in _rows(path, rows, header, TENSORS):
        elements = _whole(where, row, "TensorNumElement", LIMIT - 1)
        each = _whole(where, row, "TensorEachByte", 64)
        if elements * each >= LIMIT:
            raise InputError(f"{where}: got {elements * each} bytes, expected less than {LIMIT}")
        match = _IDS.fullmatch(row["TensorID"])
        if not match:
            raise InputError(f"{where}: TensorID: got '{row['TensorID'][:40]}', expected a whole number")
        yield int(match[0]), Tensor(elements * each, row["TensorType"].lower())


def _whole(where: str, row: Mapping[str, str], key: str, most: int) -> int:
    # An empty cell is 0, as in tpflag of operators without one.
    value = whole(row[key] or "0")
    if value is None or not 0 <= value <= most:
        raise InputError(f"{where}: {key}: got '{row[key][:40]}', expected a whole number from 0 to {most}")
    return value


def _size(where: str, row: Mapping[str, str], key: str) -> int:
    """Return elements; a cell may list those of several tensors."""
    found = sum(max(int(text), 0) for text in _IDS.findall(row[key]))
    if found >= LIMIT // 8:
        raise InputError(f"{where}: {key}: got '{row[key][:40]}', expected less than {LIMIT // 8} elements")
    return found


def _ns(where: str, row: Mapping[str, str], key: str) -> int:
    try:
        value = float(row[key] or "0")
    except ValueError:
        value = -1.0
    if not 0 <= value < LIMIT / 1000:
        raise InputError(f"{where}: {key}: got '{row[key][:40]}', expected a time in µs, 0 or more")
    return round(value * 1000)
