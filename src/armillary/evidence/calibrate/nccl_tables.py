"""Read tables of times of collectives: the CSV formats in which clusters were published, and logs beside them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from armillary.base.csv_text import (
    CsvRows,
    check_columns,
    check_separator,
    check_width,
    nearest_columns,
    number_in,
)
from armillary.base.errors import InputError
from armillary.collective.fitted.regimes import share
from armillary.evidence.calibrate.nccl_logs import PROGRAMS, contradicts, read_log
from armillary.evidence.calibrate.samples import Sample, measured_text

SINGLE_NODE = ("device", "nccl", "op", "dtype", "gpus", "bytes", "us", "busbw_GBps")
ECHO = ("ngpus", "size_bytes", "oop_us", "oop_busbw_GBps", "ip_us", "ip_busbw_GBps")
NODES = ("test", "nodes", "gpus_per_node", "node", *ECHO[1:])
LOOKUP = ("size(B)", "count", "type", "time(ns)", "busbw(GB/s)")
"""Headers; the last one of vTrain, whose operation is all-reduce, with GPUs and device in the name of the file."""


def read_file(path: Path, operation: str = "", per_node: int | None = None) -> list[Sample]:
    """Read a file of times: a CSV file with one of the headers above, also packed by gzip, or a log of nccl-tests.

    Raises:
        InputError: It cannot be read, is neither, or has times of one GPU alone.
    """
    samples = _read(path, operation, per_node)
    # A collective of one GPU moves nothing.
    if any(sample.members < 2 for sample in samples):
        raise InputError(f"{path}: got times of 1 GPU, expected at least 2, of which one sends to another")
    return samples


def _read(path: Path, operation: str, per_node: int | None) -> list[Sample]:
    text = measured_text(path)
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    # Notes of # may stand above the header.
    place, head = next(((number, line) for number, line in lines if not line.startswith("#")), (0, ""))
    header = [word.strip() for word in head.split(",")]
    # Fewer columns: no CSV file, so a log.
    if len(header) < 4:
        if ".csv" in path.suffixes:
            check_separator(path, place, head)
        return read_log(path, text, operation, per_node)
    columns = set(header)
    # vTrain's tables call times out of place and in place alike; its fits were made to the latter.
    if header == [*LOOKUP, *LOOKUP[3:]]:
        header[3:5] = [f"{name} out of place" for name in LOOKUP[3:]]
    check_columns(path, place, header)
    rows = [(number, line) for number, line in lines if not line.startswith("#") and line != head]
    # Supersets: files may have more columns, such as the version of NCCL.
    if columns >= set(SINGLE_NODE[:1] + SINGLE_NODE[2:7]):
        samples = [_single_node(row) for row in _rows(path, header, rows)]
    elif columns >= set(NODES[:3] + NODES[4:6]):
        samples = [_nodes(row) for row in _rows(path, header, rows)]
    elif columns >= set(ECHO[:3]):
        # Azure NDv4 has 8 GPUs per node.
        samples = [_echo(row, per_node or 8) for row in _rows(path, header, rows)]
    elif columns >= set(LOOKUP):
        device, gpus = _in_name(path)
        samples = [_lookup(row, device, gpus) for row in _rows(path, header, rows)]
    else:
        known = {"of a node": SINGLE_NODE[:1] + SINGLE_NODE[2:7], "of nodes": NODES[:3] + NODES[4:6],
                 "of GPUs": ECHO[:3], "of vTrain": LOOKUP}  # fmt: skip
        raise InputError(
            f"{path}: unknown columns {', '.join(header[:8])}: {nearest_columns(header, known)}; "
            "expected a log of nccl-tests, or a CSV file with the columns "
            + ", or ".join(", ".join(each) for each in (SINGLE_NODE, NODES, ECHO))
        )
    if not samples:
        raise InputError(f"{path}: no rows below the header, expected at least one")
    return samples


class _Row:
    """One row; errors name its file and line."""

    def __init__(self, where: str, values: dict[str, str]) -> None:
        self.where, self.values = where, values

    def text(self, column: str) -> str:
        return self.values[column]

    def whole(self, column: str) -> int:
        """Return a whole number above 0; a table may write it as 8.0."""
        value = self.number(column)
        if not value.is_integer():
            raise InputError(
                f"{self.where}: {column}: got '{self.values[column]}', expected a whole number above 0"
            )
        return int(value)

    def number(self, column: str) -> float:
        try:
            value = float(self.values[column])
        except ValueError:
            # -1 fails the test below, with the same message.
            value = -1.0
        if not 0 < value < 2**63:
            raise InputError(
                f"{self.where}: {column}: got '{self.values[column]}', expected a number above 0"
            )
        return value

    def sample(self, found: Sample, busbw: str) -> Sample:
        """Return what the row says, after its bus bandwidth was compared, where it has one."""
        stated, rate = number_in(self.values.get(busbw)), found.size / found.ns
        bus = rate * share(found.operation, found.members)
        if stated is not None and contradicts(stated, bus):
            raise InputError(
                f"{self.where}: {found.operation} of {found.size:,} bytes on {found.members:,} GPUs in "
                f"{found.ns / 1e3:g} us is {bus:.4g} GB/s, but {busbw} says {stated:g}; expected bytes and times as "
                "nccl-tests prints them, or no such column"
            )
        return found

    def operation(self, column: str) -> str:
        name = self.values[column].removesuffix("_perf")
        if name not in PROGRAMS:
            raise InputError(f"{self.where}: {column}: got '{name}', expected one of {', '.join(PROGRAMS)}")
        return PROGRAMS[name]


def _rows(path: Path, header: Sequence[str], lines: Sequence[tuple[int, str]]) -> Iterator[_Row]:
    for number, line in lines:
        # A line at a time: a quote that stays open ends with it.
        values = next(CsvRows(path, [line], number), [])
        if not any(values):
            continue
        check_width(path, number, values, header)
        yield _Row(f"{path}:{number}", dict(zip(header, values, strict=False)))


def _single_node(row: _Row) -> Sample:
    gpus, size = row.whole("gpus"), row.whole("bytes")
    found = Sample(row.text("device"), row.operation("op"), gpus, 1, size, row.number("us") * 1e3)
    return row.sample(found, SINGLE_NODE[-1])


def _nodes(row: _Row) -> Sample:
    nodes, gpus = row.whole("nodes"), row.whole("gpus_per_node")
    size = row.whole("size_bytes")
    found = Sample("", row.operation("test"), gpus, nodes, size, row.number("oop_us") * 1e3)
    return row.sample(found, ECHO[3])


def _echo(row: _Row, per_node: int) -> Sample:
    gpus, size, ns = row.whole("ngpus"), row.whole("size_bytes"), row.number("oop_us") * 1e3
    # Rounded up; then the members are spread evenly.
    nodes = -(-gpus // per_node)
    return row.sample(Sample("", "all-reduce", gpus // nodes, nodes, size, ns), ECHO[3])


def _lookup(row: _Row, device: str, gpus: int) -> Sample:
    found = Sample(device, "all-reduce", gpus, 1, row.whole("size(B)"), row.number("time(ns)"))
    return row.sample(found, LOOKUP[-1])


def _in_name(path: Path) -> tuple[str, int]:
    gpus = re.search(r"GPU(\d+)", path.name)
    device = re.search(r"(a100|v100|h100)", path.name.lower())
    if gpus is None:
        raise InputError(f"{path}: its name does not say how many GPUs, expected e.g. trace_a100_AR_GPU8_…")
    return (device[1] if device else ""), int(gpus[1])
