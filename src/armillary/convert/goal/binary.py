"""Read what LogGOPSim's ``txt2bin`` makes of a GOAL schedule, which its simulator and ATLAHS run.

A number 4223 of 64 bits; behind it, little endian: ranks (u32), greatest cpu and nic (u8 each), and for each rank start
and end of its part (u64, from behind the number). A part has counts of nodes and of those that wait for nothing (u32),
the latter's places, nodes of 39 bytes, and an appendix of places: those that wait for the end of a node, and those that
wait for its start.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from armillary.base.counts import MOST_RECORDED, check_count, check_rank_files
from armillary.base.errors import InputError
from armillary.base.reading import MOST_TEXT, open_file, read_plain
from armillary.convert.goal.operation import ANY, MOST_RANKS, Kind, Operation
from armillary.trace.graph import LIMIT

MAGIC = (4223).to_bytes(8, "little")
_HEAD = 6
NODE = np.dtype([
    ("open", "<u4"), ("type", "i1"), ("peer", "<u4"), ("size", "<u8"), ("tag", "<u4"), ("cpu", "u1"), ("nic", "u1"),
    ("ends", "<u4"), ("first_end", "<u4"), ("starts", "<u4"), ("first_start", "<u4"),
])  # fmt: skip
KINDS: dict[int, Kind] = {1: "send", 2: "recv", 3: "calc"}
WILD = 2**32 - 1
"""What txt2bin makes of -1."""
Nodes = NDArray[np.void]


def is_binary(path: Path) -> bool:
    """Return whether a file begins as a binary schedule; not of a pipe, which can be read once only."""
    if not path.is_file():
        return False
    descriptor = open_file(path)
    try:
        return os.read(descriptor, len(MAGIC)) == MAGIC
    finally:
        os.close(descriptor)


def read_binary(path: Path) -> list[list[Operation]]:
    """Return the operations of every rank, in the order of the file.

    Raises:
        InputError: it is damaged; names the rank and the operation.
    """
    data = read_plain(path, MOST_TEXT)[len(MAGIC) :]
    ranks = int.from_bytes(data[:4], "little")
    if len(data) < _HEAD or not 1 <= ranks <= MOST_RANKS or len(data) < _HEAD + 16 * ranks:
        raise InputError(
            f"{path}: has a table of {ranks} ranks in {len(data) + len(MAGIC)} bytes, expected a schedule"
        )
    check_rank_files(ranks, str(path))
    parts = np.frombuffer(data, "<u8", 2 * ranks, _HEAD).reshape(ranks, 2)
    found, total = [], 0
    for rank, (start, end) in enumerate(parts.tolist()):
        where = f"{path}: rank {rank}"
        if not _HEAD + 16 * ranks <= start <= end - 8 or end > len(data):
            raise InputError(f"{where}: its part is bytes {start} to {end}, expected within {len(data)}")
        count, roots = np.frombuffer(data, "<u4", 2, start).tolist()
        total += count
        check_count(total, MOST_RECORDED, f"{path}: operations", "a shorter schedule")
        first = start + 8 + 4 * roots
        last = first + NODE.itemsize * count
        if roots > count or last > end or (end - last) % 4:
            raise InputError(f"{where}: {count} operations do not fit into its {end - start} bytes")
        nodes = np.frombuffer(data, NODE, count, first)
        found.append(
            _operations(where, nodes, np.frombuffer(data, "<u4", (end - last) // 4, last), rank, ranks)
        )
    return found


def _operations(
    where: str, nodes: Nodes, appendix: NDArray[np.uint32], rank: int, ranks: int
) -> list[Operation]:
    found = [
        _operation(f"{where}: operation {at}", *row, rank, ranks) for at, row in enumerate(nodes.tolist())
    ]
    # More would name an operation twice.
    if int(nodes["ends"].sum(dtype=np.uint64) + nodes["starts"].sum(dtype=np.uint64)) > len(appendix):
        raise InputError(f"{where}: more operations wait than the {len(appendix)} that its appendix names")
    for at, row in enumerate(nodes.tolist()):
        for name, count, first in (("ended", row[7], row[8]), ("started", row[9], row[10])):
            waiting = appendix[first : first + count].tolist()
            if len(waiting) < count or any(other >= len(found) or other == at for other in waiting):
                raise InputError(
                    f"{where}: operation {at}: {count} that wait for it from place {first} of the appendix, expected "
                    f"other operations of {len(found)}"
                )
            for other in waiting:
                getattr(found[other], name).append(at)
    for at, each in enumerate(found):
        if len(each.ended) + len(each.started) != (count := int(nodes["open"][at])):
            raise InputError(
                f"{where}: operation {at}: waits for {count} operations, and {len(each.ended) + len(each.started)} say "
                "that it does"
            )
    return found


def _operation(
    where: str, _open: int, kind: int, peer: int, size: int, tag: int, cpu: int, nic: int, *more: int
) -> Operation:
    *_, rank, ranks = more
    name = KINDS.get(kind)
    if name is None:
        raise InputError(f"{where}: got type {kind}, expected 1 (send), 2 (recv) or 3 (calc)")
    if size >= LIMIT:
        raise InputError(f"{where}: got {size}, expected less than {LIMIT}")
    if name == "calc":
        return Operation(name, size, cpu=cpu)
    wild = name == "recv"
    if (peer >= ranks or peer == rank) and not (wild and peer == WILD):
        raise InputError(f"{where}: {name}: got rank {peer}, expected another of {ranks}")
    if tag >= 2**31 and not (wild and tag == WILD):
        raise InputError(f"{where}: {name}: got tag {tag}, expected less than {2**31}")
    return Operation(name, size, ANY if peer == WILD else peer, ANY if tag == WILD else tag, cpu, nic)
