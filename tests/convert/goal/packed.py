"""Binary GOAL schedules, as LogGOPSim's txt2bin writes them."""

from __future__ import annotations

import struct

from armillary.convert.goal.operation import Operation


def packed(ranks: list[list[Operation]]) -> bytes:
    """Return what txt2bin writes, by the layout in the docstring of the reader."""
    kinds = {"send": 1, "recv": 2, "calc": 3}
    parts = []
    for operations in ranks:
        ends: list[list[int]] = [[] for _ in operations]
        starts: list[list[int]] = [[] for _ in operations]
        for at, each in enumerate(operations):
            for other in each.ended:
                ends[other].append(at)
            for other in each.started:
                starts[other].append(at)
        roots = [at for at, each in enumerate(operations) if not each.ended and not each.started]
        nodes, places = b"", list[int]()
        for at, each in enumerate(operations):
            wild = [value & 0xFFFFFFFF for value in (each.peer, each.tag)]
            nodes += struct.pack(
                "<IbIQIBB", len(each.ended) + len(each.started), kinds[each.kind], wild[0], each.amount, wild[1],
                each.cpu, each.nic,
            )  # fmt: skip
            for waiting in (ends[at], starts[at]):
                nodes += struct.pack("<II", len(waiting), len(places))
                places += waiting
        head = struct.pack(f"<II{len(roots)}I", len(operations), len(roots), *roots)
        parts.append(head + nodes + struct.pack(f"<{len(places)}I", *places))
    at, table = 6 + 16 * len(ranks), b""
    for part in parts:
        table += struct.pack("<QQ", at, at + len(part))
        at += len(part)
    return struct.pack("<QIBB", 4223, len(ranks), 0, 0) + table + b"".join(parts)
