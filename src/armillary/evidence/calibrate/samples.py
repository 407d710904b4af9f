"""Measured points, and the text of files of measurements."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from armillary.base.errors import InputError
from armillary.base.packing import read_unpacked
from armillary.base.reading import MOST_TEXT, decoded


@dataclass(frozen=True)
class Sample:
    """One measured time.

    Attributes:
        device: As the file calls it; empty: it does not say.
        operation: all-reduce, all-gather, reduce-scatter, all-to-all, broadcast, send.
        per_node: Members in a node.
        nodes: How many nodes.
        size: Bytes, as nccl-tests count them.
        ns: Of one call.
    """

    device: str
    operation: str
    per_node: int
    nodes: int
    size: int
    ns: float

    @property
    def members(self) -> int:
        """How many GPUs."""
        return self.per_node * self.nodes

    @property
    def key(self) -> tuple[str, str, int, int, int]:
        """What was measured: all but the time."""
        return self.device, self.operation, self.per_node, self.nodes, self.size


def merged(samples: Iterable[Sample]) -> list[Sample]:
    """Return one sample for each thing measured, with the median time, sorted."""
    times: dict[tuple[str, str, int, int, int], list[float]] = {}
    for sample in samples:
        # Several runs of a case: their median is robust against a cold one.
        times.setdefault(sample.key, []).append(sample.ns)
    return [Sample(*key, median(values)) for key, values in sorted(times.items())]


def measured_text(path: Path) -> str:
    """Return the text of a file, unpacked if gzip or zstd packed it.

    Raises:
        InputError: it cannot be read, is not text, or is too large, see `armillary.base.reading`.
    """
    try:
        return decoded(read_unpacked(path, MOST_TEXT), path)
    except UnicodeDecodeError as error:
        # `read_unpacked` has no lines: the byte says where a spreadsheet wrote another encoding.
        raise InputError(
            f"{path}: byte {error.start + 1} is not UTF-8, expected a CSV file or a log in UTF-8 (save it anew as that)"
        ) from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
