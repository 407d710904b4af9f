"""From Chakra ET bytes to columns."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from armillary import jit
from armillary.errors import InputError
from armillary.trace import decode_kernel as k
from armillary.trace.columns import Columns
from armillary.trace.graph import Graph

COMPILED_FROM = 64 * 1024
"""Bytes from which the compiled decoder wins over the interpreted one, its import included."""

COMPILED_FROM_WARM = 4 * 1024
"""The same once Numba has been imported for something else."""

_PROBLEMS = {
    k.TRUNCATED: "expected more bytes of a value here",
    k.LONG_VARINT: "expected a varint of at most 64 bits here",
    k.LENGTH: "the length given here runs past the end of what encloses it",
    k.WIRE: "expected a protobuf field with wire type 0, 1, 2 or 5 here",
    k.FIELD: "expected a protobuf field number from 1 to 536870911 here",
    k.UTF8: "expected text in UTF-8 in the field here",
}


def decode(data: bytes, source: str = "<bytes>", mode: jit.Mode | None = None) -> Graph:
    """Decode one Chakra ET file.

    Args:
        data: the uncompressed contents.
        source: what to call the file in messages.
        mode: which twin of the decoder; by default the one that is faster for this size.

    Raises:
        InputError: the bytes are not a Chakra ET; names the byte where reading failed.
    """
    return decode_many([data], [source], mode)[0]


def decode_many(files: Sequence[bytes], sources: Sequence[str], mode: jit.Mode | None = None) -> list[Graph]:
    """Decode many files in one go; the graphs share one set of columns. See `decode`."""
    offsets = np.zeros(len(files) + 1, dtype=np.int64)
    np.cumsum([len(data) for data in files], out=offsets[1:])
    joined = files[0] if len(files) == 1 else b"".join(files)
    if mode is None:
        threshold = COMPILED_FROM_WARM if "numba" in sys.modules else COMPILED_FROM
        mode = "compiled" if len(joined) >= threshold else "interpreted"
    columns = decode_columns(joined, offsets, sources, mode)
    bounds = columns.frame_ptr.tolist()
    return [
        Graph(columns, index, first, after, source)
        for index, (first, after, source) in enumerate(zip(bounds[:-1], bounds[1:], sources, strict=True))
    ]


def decode_columns(
    joined: bytes, offsets: NDArray[np.int64], sources: Sequence[str], mode: jit.Mode
) -> Columns:
    """Decode the files that lie in `joined` between `offsets` with one twin of the kernel."""
    kernel = jit.load("armillary.trace.decode_kernel", mode)
    compiled = mode == "compiled"
    buf = np.frombuffer(joined, dtype=np.uint8) if compiled else joined
    starts = offsets if compiled else offsets.tolist()
    state = np.zeros(k.STATE_SIZE, dtype=np.int64) if compiled else [0] * k.STATE_SIZE
    n_files = len(offsets) - 1
    frame_ptr, unknown = np.zeros(n_files + 1, dtype=np.int64), np.zeros(n_files, dtype=np.int64)

    rows, out = _outputs([0] * k.STATE_SIZE)
    error = kernel.decode(buf, starts, False, state, frame_ptr, unknown, rows, out)
    if not error:
        rows, out = _outputs([int(count) for count in state])
        # A memory view takes and gives Python integers, faster than an array does.
        views = (rows, out) if compiled else (memoryview(rows), tuple(memoryview(array) for array in out))
        error = kernel.decode(buf, starts, True, state, frame_ptr, unknown, *views)
    if error:
        _fail(error, joined, offsets, sources, [int(value) for value in state], frame_ptr)
    ctrl, data, attr_name, attr_kind, attr_value, list_ptr, items, string_ptr, pool, io, docs, spans, _ = out
    found = spans[:2, 1 : int(state[k.NAME]) + 1].T.tolist()
    items, pool = items[: int(state[k.ITEM])], pool[: int(state[k.BYTE])]
    return Columns(
        frame_ptr, unknown, rows, ctrl, data, attr_name, attr_kind, attr_value, list_ptr, items,
        string_ptr[: int(state[k.STRING]) + 1], pool, io, docs,
        [bytes(joined[at : at + size]).decode() for at, size in found],
    )  # fmt: skip


def _outputs(count: list[int]) -> tuple[NDArray[np.int64], tuple[NDArray[np.generic], ...]]:
    attributes = count[k.ATTR]
    slots = 1 << (2 * attributes + 1).bit_length()
    string_ptr = np.empty(count[k.STRING_CAP] + 1, dtype=np.int64)
    string_ptr[:2] = 0
    return np.empty((k.ROW_FIELDS, count[k.ROW] + 1), dtype=np.int64), (
        np.empty(count[k.CTRL], dtype=np.int64),
        np.empty(count[k.DATA], dtype=np.int64),
        np.empty(attributes, dtype=np.int32),
        np.empty(attributes, dtype=np.uint8),
        np.empty(attributes, dtype=np.int64),
        np.zeros(count[k.LIST] + 1, dtype=np.int64),
        np.empty(count[k.ITEM_CAP], dtype=np.int64),
        string_ptr,
        np.empty(count[k.BYTE_CAP], dtype=np.uint8),
        np.empty((5, count[k.IO]), dtype=np.int64),
        np.empty((2, count[k.DOC]), dtype=np.int64),
        np.zeros((3, attributes + 2), dtype=np.int64),
        np.zeros(slots, dtype=np.int32),
    )


def _fail(
    error: int,
    joined: bytes,
    offsets: NDArray[np.int64],
    sources: Sequence[str],
    state: list[int],
    frame_ptr: NDArray[np.int64],
) -> NoReturn:
    file = state[k.FILE]
    source, start, size = sources[file], int(offsets[file]), int(offsets[file + 1] - offsets[file])
    frame = state[k.ROW] - int(frame_ptr[file])
    if error == k.EMPTY:
        raise InputError(f"{source}: the file is empty, expected a Chakra ET (a GlobalMetadata, then nodes)")
    if error == k.OLD_SCHEMA or (frame == 0 and _looks_old(joined[start : start + size])):
        raise InputError(
            f"{source}: the first message is a node, not a GlobalMetadata: a Chakra file from before schema "
            "0.0.4 (October 2023); expected schema 0.0.4 or 1.0.0, convert the file with the tool that wrote it"
        )
    at = state[k.ERROR_AT] - start
    where = "the GlobalMetadata" if frame == 0 else f"node message {frame - 1}"
    what = "not a Chakra ET file" if frame == 0 else "damaged or cut off"
    raise InputError(f"{source}: {what}: byte {at} of {size}, in {where}: {_PROBLEMS[error]}")


def _looks_old(data: bytes) -> bool:
    """Say whether the first frame reads like a node whose id, 0, was left out: a name, then a type."""
    if len(data) < 4 or data[0] > 127 or data[1] != 0x12 or data[2] > 127:
        return False
    after = 3 + data[2]
    return after < min(len(data), 1 + data[0]) and data[after] == 0x18 and data[3:after].isascii()
