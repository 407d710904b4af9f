"""The columns in which the graphs of one or many files are stored together."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from armillary.trace.decode_kernel import (
    ATTR_AT,
    CTRL_AT,
    DATA_AT,
    DURATION,
    ID,
    NAME_AT,
    ROW_FIELDS,
    START,
    TYPE,
)

__all__ = [
    "ATTR_AT",
    "CTRL_AT",
    "DATA_AT",
    "DURATION",
    "ID",
    "NAME_AT",
    "ROW_FIELDS",
    "START",
    "TYPE",
    "Columns",
]

I64 = NDArray[np.int64]
_FEW = 1000


@dataclass(frozen=True, eq=False)
class Columns:
    """All frames of a batch of files, in file order; a frame is a GlobalMetadata or a node.

    Unsigned 64-bit values keep their bits in int64. Strings are numbered; string 0 is empty.
    """

    frame_ptr: I64
    """(graphs + 1): the frames of each graph; the first of them is its GlobalMetadata."""
    unknown: I64
    """(graphs): number of unknown protobuf fields that were skipped."""
    rows: I64
    """(ROW_FIELDS, frames + 1): id, type, start, duration, name (a string; the version in a
    GlobalMetadata) and the CSR offsets of control dependencies, data dependencies, attributes."""
    ctrl: I64
    """Ids of control dependencies as written."""
    data: I64
    """Ids of data dependencies as written."""
    attr_name: NDArray[np.int32]
    """(attributes): index into `names`."""
    attr_kind: NDArray[np.uint8]
    """(attributes): field number of the oneof member, see `schema.KIND_NAMES`."""
    attr_value: I64
    """(attributes): the scalar's value (bits of a double, float or unsigned), a string or a list."""
    list_ptr: I64
    """(lists + 1): offsets into `items`."""
    items: I64
    """Scalars of the lists, encoded as in `attr_value`."""
    string_ptr: I64
    """(strings + 1): offsets into `pool`."""
    pool: NDArray[np.uint8]
    io: I64
    """(5, IOInfos): frame, side (0 inputs, 1 outputs), and the strings values, shapes, types."""
    docs: I64
    """(2, documented attributes): attribute, string."""
    names: list[str]
    """Distinct attribute names."""

    @cached_property
    def bounds(self) -> list[int]:
        """`frame_ptr` as a list."""
        bounds: list[int] = self.frame_ptr.tolist()
        return bounds

    @cached_property
    def name_code(self) -> dict[str, int]:
        """Index into `names` by attribute name."""
        return {name: code for code, name in enumerate(self.names)}

    @cached_property
    def pool_bytes(self) -> bytes:
        """The string pool as one bytes object."""
        return self.pool.tobytes()

    def raw(self, string: int) -> bytes:
        """Return the bytes of one string."""
        return self.pool[self.string_ptr[string] : self.string_ptr[string + 1]].tobytes()

    def text(self, string: int) -> str:
        """Return one string as text."""
        return self.raw(string).decode()

    def raws(self, strings: I64) -> list[bytes]:
        """Return the bytes of many strings."""
        if len(strings) < _FEW:  # not worth a copy of the whole pool
            return [self.raw(string) for string in strings.tolist()]
        first, after = self.string_ptr[strings].tolist(), self.string_ptr[strings + 1].tolist()
        # Slicing one bytes object creates no array object per string.
        pool = self.pool_bytes
        return [pool[a:b] for a, b in zip(first, after, strict=True)]
