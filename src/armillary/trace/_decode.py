"""Decoding of Chakra ET bytes to columns."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from armillary.base import jit
from armillary.base.allowed import require
from armillary.base.errors import InputError
from armillary.base.tables import before_table
from armillary.trace import decode_kernel as k
from armillary.trace import wire_kernel
from armillary.trace.columns import I64, ROW_FIELDS, Columns
from armillary.trace.frames_kernel import PARTS
from armillary.trace.graph import Graph

KERNEL = "armillary.trace.decode_kernel"

Data = bytes | memoryview
"""Contents of a file."""

COMPILED_FROM = 1024 * 1024
"""Bytes from which the compiled decoder wins over the interpreted one, loading Numba included."""

ONCE_FROM = 4 * 1024 * 1024
"""Bytes from which one pass into columns of estimated sizes is tried; below, the estimate costs more than a pass."""

_SHARE = 16
"""The estimate is from a part of 1 / `_SHARE` of all frames."""

_SPARE = 1 << 16
"""Entries that every estimated column has to spare, besides a tenth: room for a usual frame. Unused memory is free."""

_NAMES = 1 << 16
"""Names of attributes for which one pass has room. Of real traces the most have a few dozen."""

COMPILED_FROM_WARM = 4 * 1024
"""The same once the compiled decoder is loaded."""

_PROBLEMS = {
    wire_kernel.TRUNCATED: "expected more bytes of a value here",
    wire_kernel.LONG_VARINT: "expected a varint of at most 64 bits here",
    k.LENGTH: "the length given here runs past the end of what encloses it",
    wire_kernel.WIRE: "expected a protobuf field with wire type 0, 1, 2 or 5 here",
    wire_kernel.FIELD: "expected a protobuf field number from 1 to 536870911 here",
    k.UTF8: "expected text in UTF-8 in the field here",
    k.NAMES: "expected fewer than 33554432 different attribute names",
}


def decode(data: Data, source: str = "<bytes>", mode: jit.Mode | None = None) -> Graph:
    """Decode one Chakra ET file.

    Args:
        data: the uncompressed contents.
        source: what to call the file in messages.
        mode: which form of the decoder; by default the one that is faster for this size.

    Raises:
        InputError: the bytes are not a Chakra ET; names the byte where reading failed.
    """
    return decode_many([data], [source], mode)[0]


def decode_many(
    files: Sequence[Data], sources: Sequence[str], mode: jit.Mode | None = None, *, bytes_per_node: float = 0
) -> list[Graph]:
    """Decode many files in one go; the graphs share one set of columns. See `decode`.

    `bytes_per_node` is what is done with them later: files for which there is not enough memory are refused.
    """
    offsets = np.zeros(len(files) + 1, dtype=np.int64)
    np.cumsum([len(data) for data in files], out=offsets[1:])
    joined: Data = files[0] if len(files) == 1 else b"".join(files)
    if mode is None:
        # Loading Numba and the kernel takes longer than interpreting a small file.
        warm = f"{KERNEL}:compiled" in sys.modules
        threshold = COMPILED_FROM_WARM if warm else COMPILED_FROM
        mode = "compiled" if len(joined) >= threshold else "interpreted"
    columns = decode_columns(joined, offsets, sources, mode, bytes_per_node)
    return [Graph(columns, index, source) for index, source in enumerate(sources)]


def decode_columns(
    data: Data, offsets: I64, sources: Sequence[str], mode: jit.Mode, bytes_per_node: float = 0
) -> Columns:
    """Decode the files that lie in `data` between `offsets` with one form of the kernel."""
    kernel = jit.load(KERNEL, mode)
    memory, heads, pool = _run(kernel, mode, data, offsets, sources, bytes_per_node)
    count = memory[: k.FILES].tolist()

    def column(at: int, size: int) -> I64:
        return memory[count[at] : count[at] + size]

    # Names are spans of the input; number 0 stands for none, hence [1:].
    firsts = column(k.AT_NAME_FIRST, count[k.NAME] + 1)[1:].tolist()
    sizes = column(k.AT_NAME_SIZE, count[k.NAME] + 1)[1:].tolist()
    # In place: a copy of the heads takes as long as reading them.
    heads = heads[: count[k.ATTR]]
    kinds = heads.astype(np.uint8)
    kinds &= np.uint8(63)
    heads >>= 6
    return Columns(
        frame_ptr=column(k.AT_FRAME_PTR, len(offsets)),
        unknown=column(k.AT_UNKNOWN, len(offsets) - 1),
        rows=column(k.AT_ROWS, ROW_FIELDS * count[k.ROW_STRIDE]).reshape(ROW_FIELDS, -1),
        ctrl=column(k.AT_CTRL, count[k.CTRL]),
        data=column(k.AT_DATA, count[k.DATA]),
        attr_name=heads,
        attr_kind=kinds,
        attr_value=column(k.AT_VALUE, count[k.ATTR]),
        list_ptr=column(k.AT_LIST, count[k.LIST] + 1),
        items=column(k.AT_ITEM, count[k.ITEM]),
        string_ptr=column(k.AT_STRING, count[k.STRING] + 1),
        pool=pool[: count[k.BYTE]],
        io=np.ascontiguousarray(
            column(k.AT_IO, 5 * count[k.IO_STRIDE]).reshape(5, count[k.IO_STRIDE])[:, : count[k.IO]]
        ),
        docs=np.ascontiguousarray(
            column(k.AT_DOC, 2 * count[k.DOC_STRIDE]).reshape(2, count[k.DOC_STRIDE])[:, : count[k.DOC]]
        ),
        names=[bytes(data[at : at + size]).decode() for at, size in zip(firsts, sizes, strict=True)],
    )


def _run(
    kernel: ModuleType,
    mode: jit.Mode,
    data: Data,
    offsets: I64,
    sources: Sequence[str],
    bytes_per_node: float,
) -> tuple[I64, NDArray[np.int32], NDArray[np.uint8]]:
    """Run both passes; return the kernel's memory, heads of attributes and text."""
    if len(data) >= ONCE_FROM and (room := _estimate(kernel, mode, data, offsets)):
        _check_memory(room, bytes_per_node, sources)
        error, memory, heads, pool = _pass(kernel, mode, data, offsets, room, k.BOTH)
        if not error:
            return memory, heads, pool
        # Two passes find the same error first that they would have found anyway, or the room that one pass lacked.
        del memory, heads, pool
    # The first pass runs on an empty layout and only counts; its counts size the second.
    count = [0] * k.BASES
    for fill in (k.COUNT, k.WRITE):
        if fill == k.WRITE:
            _check_memory(count, bytes_per_node, sources)
        error, memory, heads, pool = _pass(kernel, mode, data, offsets, count, fill)
        count = memory[: k.BASES].tolist()
        if error:
            _fail(error, data, offsets, sources, memory)
    return memory, heads, pool


def _pass(
    kernel: ModuleType, mode: jit.Mode, data: Data, offsets: I64, count: list[int], fill: int
) -> tuple[int, I64, NDArray[np.int32], NDArray[np.uint8]]:
    """Run one pass on a layout of `count`; return its error or 0, its memory, heads of attributes and text."""
    memory = _layout(count, offsets)
    heads, pool = np.empty(count[k.ATTR], dtype=np.int32), np.empty(count[k.BYTE_CAP], dtype=np.uint8)
    if mode == "compiled":
        # Both forms run the same source; they differ in what indexing costs.
        error = kernel.decode(np.frombuffer(data, dtype=np.uint8), fill, memory, heads, pool)
    else:  # plain objects are quicker than arrays there
        plain = memory.tolist()
        error = kernel.decode(memoryview(data), fill, plain, memoryview(heads.data), memoryview(pool.data))
        memory = np.array(plain, dtype=np.int64)
    return int(error), memory, heads, pool


def _estimate(kernel: ModuleType, mode: jit.Mode, data: Data, offsets: I64) -> list[int] | None:
    """Return the exact number of frames and sizes of all else that are likely enough; None if parts do not tell."""
    memory = _layout([0] * k.BASES, offsets)
    n_files, width = len(offsets) - 1, 2 * PARTS + 1
    counter = jit.load("armillary.trace.frames_kernel", mode)
    if mode == "compiled":
        parts = np.zeros(n_files * width, np.int64)
        rows = counter.frames(np.frombuffer(data, dtype=np.uint8), _SHARE, memory, parts)
    else:
        plain = [0] * (n_files * width)
        rows = counter.frames(memoryview(data), _SHARE, memory.tolist(), plain)
        parts = np.array(plain, np.int64)
    if rows < 0:
        return None
    view, picked, frames = memoryview(data), [], 0
    for first, (head, *ends) in zip(
        offsets[:-1].tolist(), parts.reshape(n_files, width).tolist(), strict=True
    ):
        # Each part becomes a file of its own, which begins as the one that it is of.
        for begin, end in zip(ends[::2], ends[1::2], strict=True):
            if end:
                picked.append(b"".join((view[first:head], view[begin:end])))
                frames += end - begin
    if not frames or frames > len(data) // 4:
        return None
    bounds = np.zeros(len(picked) + 1, dtype=np.int64)
    np.cumsum([len(part) for part in picked], out=bounds[1:])
    error, memory, _, _ = _pass(kernel, mode, b"".join(picked), bounds, [0] * k.BASES, k.COUNT)
    if error:
        return None
    room = [int(count * 1.1 * len(data) / frames) + _SPARE for count in memory[: k.BASES].tolist()]
    room[k.ROW], room[k.NAME] = int(rows), _NAMES
    for cursor, most in ((k.ITEM, k.ITEM_CAP), (k.STRING, k.STRING_CAP), (k.BYTE, k.BYTE_CAP)):
        room[cursor] = room[most] = max(room[cursor], room[most])
    return room


def _check_memory(count: list[int], bytes_per_node: float, sources: Sequence[str]) -> None:
    """Refuse files whose columns, or what is to be done with them, take more memory than there is."""
    # The largest columns: those of nodes, and for each attribute a value, a name and up to four slots of its table.
    own = 8 * (ROW_FIELDS * count[k.ROW] + 9 * count[k.ATTR] + count[k.ITEM_CAP] + count[k.STRING_CAP])
    size = own + count[k.BYTE_CAP] + bytes_per_node * count[k.ROW]
    what = "whose simulation" if bytes_per_node else "which"
    more = "" if len(sources) == 1 else f" and {len(sources) - 1} more"
    require(size, f"{sources[0]}{more}: has {count[k.ROW]:,} nodes, {what}", "fewer nodes")


def _layout(count: list[int], offsets: I64) -> I64:
    """Return the kernel's memory, with room for `count` of everything."""
    n_files, attributes = len(offsets) - 1, count[k.ATTR]
    # One pass goes by an estimate of names, too: a table for as many as attributes is scattered over all its pages.
    names = min(attributes, _NAMES) if count[k.NAME] else attributes
    # At least twice as many slots as names can occur: probing stays short and always ends.
    slots = 1 << (2 * names + 1).bit_length()
    sizes = {
        k.AT_FRAME_PTR: n_files + 1,
        k.AT_UNKNOWN: n_files,
        k.AT_ROWS: ROW_FIELDS * (count[k.ROW] + 1),
        k.AT_CTRL: count[k.CTRL],
        k.AT_DATA: count[k.DATA],
        k.AT_VALUE: attributes,
        k.AT_LIST: count[k.LIST] + 1,
        k.AT_ITEM: count[k.ITEM_CAP],
        k.AT_STRING: count[k.STRING_CAP] + 1,
        k.AT_IO: 5 * count[k.IO],
        k.AT_DOC: 2 * count[k.DOC],
        k.AT_NAME_FIRST: names + 1,
        k.AT_NAME_SIZE: names + 1,
        k.AT_NAME_NEXT: names + 1,
        k.AT_TABLE: slots,
    }
    at = k.FILES + n_files + 1
    # Guards stand between columns where accesses are checked.
    guards = len(before_table()) * (len(sizes) + 1)
    memory = np.zeros(at + sum(sizes.values()) + guards, dtype=np.int64)  # untouched pages cost nothing
    memory[: k.BASES] = count[: k.BASES]
    for base, size in sizes.items():
        guard = before_table(size)
        memory[at : at + len(guard)] = guard
        memory[base] = at + len(guard)
        at += len(guard) + size
    memory[at:] = before_table()
    memory[k.ROW_STRIDE], memory[k.IO_STRIDE], memory[k.DOC_STRIDE] = (
        count[k.ROW] + 1,
        count[k.IO],
        count[k.DOC],
    )
    # A power of 2 of slots: the mask replaces a modulo.
    memory[k.MASK], memory[k.N_FILES] = slots - 1, n_files
    memory[k.ROOM + k.CTRL : k.ROOM + k.DOC + 1] = count[k.CTRL : k.DOC + 1]
    memory[k.ROOM + k.NAME] = names
    memory[k.FILES : k.FILES + n_files + 1] = offsets
    return memory


def _fail(
    error: int,
    data: Data,
    offsets: I64,
    sources: Sequence[str],
    state: I64,
) -> NoReturn:
    file = int(state[k.FILE])
    source, start, size = sources[file], int(offsets[file]), int(offsets[file + 1] - offsets[file])
    # Frames of the file that were complete when the error occurred.
    frame = int(state[k.ROW] - state[state[k.AT_FRAME_PTR] + file])
    if error == k.EMPTY:
        raise InputError(f"{source}: the file is empty, expected a Chakra ET (a GlobalMetadata, then nodes)")
    # Before 0.0.4 there was no GlobalMetadata: the first frame is a node.
    if error == k.OLD_SCHEMA or (frame == 0 and _looks_old(bytes(data[start : start + min(size, 256)]))):
        raise InputError(
            f"{source}: the first message is a node, not a GlobalMetadata: a Chakra file from before schema "
            "0.0.4 (October 2023); expected schema 0.0.4 or 1.0.0: one of schema 0.0.1 (.eg) can be converted with "
            "`armillary trace convert --from eg`, others must be written anew"
        )
    at = int(state[k.ERROR_AT]) - start
    where = "the GlobalMetadata" if frame == 0 else f"node message {frame - 1}"
    what = "not a Chakra ET file" if frame == 0 else "damaged or cut off"
    raise InputError(f"{source}: {what}: byte {at} of {size}, in {where}: {_PROBLEMS[error]}")


def _looks_old(data: bytes) -> bool:
    """Return whether the first frame looks like a node whose id, 0, was left out: a name, then a type."""
    # 0x12 is the tag of field 2, text (a name); 0x18 that of field 3, varint (a type).
    if len(data) < 4 or data[0] > 127 or data[1] != 0x12 or data[2] > 127:
        return False
    after = 3 + data[2]
    return after < min(len(data), 1 + data[0]) and data[after] == 0x18 and data[3:after].isascii()
