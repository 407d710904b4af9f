"""What storage and checkpoint nodes do: the ``StorageInfo`` of mlcommons/chakra's pull request 216, field 11 of a node.

Fields that the schema of a trace does not have are kept as they are (kind ``field`` of attributes); this is the only
one that is looked into.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from armillary.base.hints import nearest, one_of
from armillary.trace import wire_kernel as wire
from armillary.trace.columns import NodeType
from armillary.trace.graph import Graph

FIELD = 11
LEVELS = ("unknown", "fs", "page", "block", "device")
_OPERATIONS = {
    "fs": {1: "open", 2: "close", 3: "read", 4: "write", 5: "pread", 6: "pwrite", 7: "fsync", 8: "fdatasync",
           9: "sync_file_range"},
    "page": {1: "add_to_cache", 2: "dirty", 3: "readahead_sync", 6: "readahead_async"},
    "block": {1: "read", 2: "write", 3: "flush"},
}  # fmt: skip
# The operation's message in the oneof, and where its count is: field, and bytes of a unit.
_MEMBERS = {10: ("fs", 5, 1), 11: ("page", 4, 4096), 12: ("block", 5, 512)}
_MOVES = {"read", "write", "pread", "pwrite", "add_to_cache", "readahead_sync", "readahead_async"}
_READS = _MOVES - {"write", "pwrite"}
_MOST = 2**62


@dataclass(frozen=True)
class Storage:
    """What one node does.

    Attributes:
        level: One of `LEVELS`: where in the stack of the operating system it was seen.
        operation: As the schema names it, e.g. ``pwrite``; "" if it states none.
        size: Bytes that it moves; pages have 4096, sectors 512.
    """

    level: str = "unknown"
    operation: str = ""
    size: int = 0


def storage_nodes(graph: Graph) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Return positions of the storage and checkpoint nodes, the bytes that each moves, and whether it states that."""
    at = np.flatnonzero(np.isin(graph.types, (NodeType.STORAGE_NODE, NodeType.CHECKPOINT_NODE)))
    found = [storage_of(graph, position) for position in at.tolist()]
    sizes = np.array([each.size if each else 0 for each in found], np.int64)
    return at, sizes, np.array([each is not None for each in found], np.bool_)


def storage_of(graph: Graph, position: int) -> Storage | None:
    """Return what a node does; None where it has no ``StorageInfo`` or a damaged one."""
    for _, kind, value in graph.attrs(position):
        if kind != "field":
            continue
        for number, inner in _fields(value):
            if number == FIELD and isinstance(inner, bytes):
                return _storage(inner)
    return None


def read(graph: Graph, position: int) -> bool:
    """Return whether a storage node reads; what states no operation does, unless it is a checkpoint."""
    found = storage_of(graph, position)
    if found is None or not found.operation:
        return int(graph.types[position]) != NodeType.CHECKPOINT_NODE
    return found.operation in _READS


def storage_field(operation: str, size: int, path: str = "") -> bytes:
    """Return the field of a node for an operation on a file.

    Args:
        operation: Such as ``write``.
        size: Bytes.
        path: Name of the file.

    Raises:
        ValueError: there is no such operation.
    """
    numbers = {name: number for number, name in _OPERATIONS["fs"].items()}
    if operation not in numbers:
        raise ValueError(
            f"got operation '{operation}', expected {one_of(numbers)}{nearest(operation, numbers)}"
        )
    number = numbers[operation]
    text = path.encode()
    inner = b"\x08" + _varint(number) + (b"\x12" + _varint(len(text)) + text if text else b"")
    inner += b"\x28" + _varint(size) if size else b""
    info = b"\x08" + _varint(LEVELS.index("fs")) + b"\x52" + _varint(len(inner)) + inner
    return b"\x5a" + _varint(len(info)) + info


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def _storage(data: bytes) -> Storage:
    level, operation, size = "unknown", "", 0
    for number, value in _fields(data):
        if number == 1 and isinstance(value, int) and 0 <= value < len(LEVELS):
            level = LEVELS[value]
        elif number in _MEMBERS and isinstance(value, bytes):
            kind, at, unit = _MEMBERS[number]
            inner = dict(_fields(value))
            operation, count = _OPERATIONS[kind].get(_whole(inner.get(1))) or "", _whole(inner.get(at))
            level = kind if level == "unknown" else level
            size = min(count * unit, _MOST) if operation in _MOVES else 0
    return Storage(level, operation, size)


def _whole(value: object) -> int:
    return max(value, 0) if isinstance(value, int) else 0


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of each field, up to where they are damaged."""
    memory, pos = [0] * (wire.ERROR_AT + 1), 0
    while pos < len(data):
        number, kind, value, pos = wire.field(data, pos, len(data), memory)
        if number < 0:
            return
        yield number, (data[value:pos] if kind == 2 else value)
