"""Files of observations, told by what they hold."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from armillary.base.csv_text import check_separator, nearest_columns
from armillary.base.errors import InputError
from armillary.compute.table_file import COLUMNS as GEMM_COLUMNS
from armillary.compute.table_file import Measured, Rows, measured_of, read_rows
from armillary.evidence.calibrate.nccl_tables import read_file
from armillary.evidence.calibrate.observe.profile import Call, read_profile
from armillary.evidence.calibrate.observe.steps import COLUMNS as STEP_COLUMNS
from armillary.evidence.calibrate.observe.steps import MeasuredStep, read_steps
from armillary.evidence.calibrate.samples import Sample, measured_text

Kind = Literal["profile", "steps", "GEMMs", "collectives"]
SHORTEST, LONGEST = 1.0, 1e13
"""ns of a kernel or of a collective: from one to three hours."""
LARGEST = 2**44
"""Bytes of a collective."""
MOST_RANKS = 2**24
_TIMED = ("nccl-tests", "_perf", "out-of-place", "bytes", "size")
"""Words of which a log or a table of collectives has one."""


@dataclass(frozen=True)
class Gemms:
    """GEMMs of one precision.

    Attributes:
        measured: Shapes with their median times.
        rows: (shapes) ns of each time that it was measured.
        loaded: (shapes) whether they ran in a step, not in a loop of their own.
    """

    measured: Measured
    rows: tuple[tuple[float, ...], ...]
    loaded: NDArray[np.bool_]


@dataclass
class Observed:
    """What all files say of a machine.

    Attributes:
        alone: Rows of GEMMs by precision, each in a loop of its own.
        loaded: Those of profiles.
        samples: Times of collectives.
        calls: Collectives of profiles, whose ranks may be on several nodes.
        steps: Measured steps.
        devices: What files call the device.
        files: Kind of file -> names.
        notes: What was left out.
    """

    alone: dict[str, Rows] = field(default_factory=dict)
    loaded: dict[str, Rows] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    steps: list[MeasuredStep] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)
    files: dict[str, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def ranks(self) -> int:
        """The largest number of ranks that took part in anything; 1: nothing says."""
        return max(
            (
                *(sample.members for sample in self.samples),
                *(max((call.members, *(rank + 1 for rank in call.ranks))) for call in self.calls),
                *(step.ranks or 1 for step in self.steps),
            ),
            default=1,
        )

    def gemms(self) -> dict[str, Gemms]:
        """Return the GEMMs by precision."""
        found = {}
        for precision in sorted({*self.alone, *self.loaded}):
            parts = [self.alone.get(precision, {}), self.loaded.get(precision, {})]
            both = [measured_of(part) for part in parts]
            found[precision] = Gemms(
                Measured(
                    np.concatenate([each.sizes for each in both]), np.concatenate([each.ns for each in both])
                ),
                tuple(tuple(times) for part in parts for times in part.values()),
                np.repeat([False, True], [len(part) for part in parts]),
            )
        return found

    def collectives(self, per_node: int) -> list[Sample]:
        """Return the times of collectives, those of profiles with ranks of a job on nodes of `per_node`."""
        return [*self.samples, *(_placed(call, per_node) for call in self.calls)]


def observe(
    paths: Iterable[Path], *, operation: str = "", per_node: int | None = None, unit_ns: float = 1e3,
    precision: str = "bf16",
) -> Observed:  # fmt: skip
    """Read files of observations.

    Args:
        paths: The files.
        operation: Of logs that do not name their program.
        per_node: GPUs of a node, where a log does not list its ranks.
        unit_ns: ns of the unit of GEMMs' times.
        precision: Of GEMMs of tables without such a column.

    Raises:
        InputError: a file cannot be read, is malformed, or nobody knows what it is.
    """
    found = Observed()
    for path in paths:
        kind = kind_of(path)
        found.files.setdefault(kind, []).append(path.name)
        if kind == "profile":
            _add_profile(found, path)
        elif kind == "steps":
            found.steps += read_steps(path)
        elif kind == "GEMMs":
            rows, notes = read_rows(path, {}, unit_ns, precision)
            _check_gemms(path, rows)
            _add(found.alone, rows)
            found.notes += notes
        else:
            samples = read_file(path, operation, per_node)
            _check_collectives(path, samples)
            found.samples += samples
            found.devices += [sample.device for sample in samples if sample.device]
    found.devices = list(dict.fromkeys(found.devices))
    return found


def kind_of(path: Path) -> Kind:
    """Return what a file holds.

    Raises:
        InputError: it cannot be read, or holds nothing that is known.
    """
    # Steps may be written by hand, in YAML; nothing else is.
    if path.suffix in (".yaml", ".yml"):
        return "steps"
    text = measured_text(path)
    if text.lstrip("\ufeff \t\r\n")[:1] in ("{", "["):
        return "profile"
    lines = enumerate(text.lstrip("\ufeff").splitlines(), 1)
    place, head = next(
        ((at, line) for at, line in lines if line.strip() and not line.startswith("#")), (0, "")
    )
    try:
        header = [cell.strip() for cell in next(csv.reader([head]), [])]
    except csv.Error:
        header = []
    # Precision may be left out.
    if {*header} >= {*GEMM_COLUMNS[:4]}:
        return "GEMMs"
    if {*header} >= {*STEP_COLUMNS}:
        return "steps"
    if any(word in text[:200_000] for word in _TIMED):
        return "collectives"
    if ".csv" in path.suffixes:
        check_separator(path, place, head)
    known = {"a table of GEMMs": GEMM_COLUMNS[:4], "one of steps": STEP_COLUMNS}
    what = "no measurements that are known"
    if len(header) > 1:
        what = f"columns {', '.join(header[:16])} of no known format: {nearest_columns(header, known)}"
    raise InputError(
        f"{path}: holds {what}; expected a log of nccl-tests or a table of such times, a "
        f"PyTorch profile (JSON), a table of GEMMs ({', '.join(GEMM_COLUMNS[:4])}), or steps (YAML, or a table with "
        f"{', '.join(STEP_COLUMNS)})"
    )


def _check_gemms(path: Path, found: dict[str, Rows]) -> None:
    for rows in found.values():
        for (m, n, k), times in rows.items():
            for ns in times:
                if not SHORTEST <= ns <= LONGEST:
                    raise InputError(
                        f"{path}: time of {m}x{n}x{k}: got {ns:g} ns, expected {SHORTEST:g} to {LONGEST:g} ns; see "
                        "--unit"
                    )


def _check_collectives(path: Path, samples: list[Sample]) -> None:
    for each in samples:
        if not (SHORTEST <= each.ns <= LONGEST and each.size <= LARGEST and each.members <= MOST_RANKS):
            raise InputError(
                f"{path}: {each.operation} of {each.size:,} bytes on {each.members:,} ranks in {each.ns:g} ns: "
                f"expected at most {LARGEST:,} bytes, {MOST_RANKS:,} ranks, and {SHORTEST:g} to {LONGEST:g} ns"
            )


def _add_profile(found: Observed, path: Path) -> None:
    profile = read_profile(path)
    _add(found.loaded, profile.gemms)
    found.calls = list(_merged([*found.calls, *profile.calls]))
    if profile.device:
        found.devices.append(profile.device)
    if not profile.gemms and not profile.calls:
        found.notes.append(
            f"{path.name}: has neither GEMMs nor collectives with their shapes; profile with record_shapes=True"
        )


def _add(rows: dict[str, Rows], more: dict[str, Rows]) -> None:
    for precision, shapes in more.items():
        own = rows.setdefault(precision, {})
        for shape, times in shapes.items():
            own.setdefault(shape, []).extend(times)


def _merged(calls: list[Call]) -> Iterator[Call]:
    """Yield the shortest of the calls that are alike: profiles of several ranks show one call, and who waited."""
    best: dict[Call, float] = {}
    for call in calls:
        key = replace(call, ns=0.0)
        best[key] = min(call.ns, best.get(key, call.ns))
    yield from (replace(key, ns=ns) for key, ns in best.items())


def _placed(call: Call, per_node: int) -> Sample:
    nodes = len({rank // per_node for rank in call.ranks}) if call.ranks else -(-call.members // per_node)
    # Ranks that are not spread evenly are taken as if they were.
    return Sample("", call.operation, max(1, call.members // nodes), nodes, call.size, call.ns)
