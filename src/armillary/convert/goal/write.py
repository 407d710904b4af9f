"""Write GOAL schedules: as text, or as LogGOPSim's ``txt2bin`` makes of it, which its simulator and ATLAHS run."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

from armillary.base.errors import InputError, one_of
from armillary.base.files import replacing, write_text
from armillary.convert.goal.binary import KINDS, MAGIC, WILD
from armillary.convert.goal.operation import ANY, Operation

SUFFIXES = (".goal", ".bin")
"""Of text, and of a binary schedule."""
_CODES = {name: code for code, name in KINDS.items()}


def check_suffix(path: Path) -> None:
    """Refuse a file name that does not say whether the schedule is text or binary.

    Raises:
        InputError: names it.
    """
    if path.suffix not in SUFFIXES:
        raise InputError(f"{path}: suffix '{path.suffix}', expected {one_of(SUFFIXES)}")


def write_schedule(path: Path, ranks: Sequence[Sequence[Operation]]) -> None:
    """Write the operations of every rank: text in a file ``.goal``, binary in one ``.bin``.

    Raises:
        InputError: another suffix, or it cannot be written.
    """
    check_suffix(path)
    if path.suffix == ".goal":
        write_text(path, *_text(ranks))
        return
    with replacing(path) as temporary:
        temporary.write_bytes(b"".join(_binary(ranks)))


def _text(ranks: Sequence[Sequence[Operation]]) -> Iterator[str]:
    yield f"num_ranks {len(ranks)}\n"
    for rank, operations in enumerate(ranks):
        yield f"rank {rank} {{\n"
        # A label must be there before a line that uses it, and an operation may wait for a later one.
        for number, each in enumerate(operations):
            yield f"l{number}: {_statement(each)}\n"
        for number, each in enumerate(operations):
            yield "".join(f"l{number} requires l{other}\n" for other in each.ended)
            yield "".join(f"l{number} irequires l{other}\n" for other in each.started)
        yield "}\n"


def _statement(each: Operation) -> str:
    if each.kind == "calc":
        text = f"calc {each.amount}"
    else:
        text = f"{each.kind} {each.amount}b {'to' if each.kind == 'send' else 'from'} {each.peer}"
        text += f" tag {each.tag}" if each.tag else ""
    # Their order is fixed, and 0 is what they are without being named.
    text += f" cpu {each.cpu}" if each.cpu else ""
    return text + (f" nic {each.nic}" if each.nic and each.kind != "calc" else "")


def _binary(ranks: Sequence[Sequence[Operation]]) -> Iterator[bytes]:
    parts = [_part(operations) for operations in ranks]
    cpus = max((each.cpu for operations in ranks for each in operations), default=0)
    nics = max((each.nic for operations in ranks for each in operations), default=0)
    yield MAGIC + struct.pack("<IBB", len(ranks), cpus, nics)
    # Places count from behind the magic number.
    at = struct.calcsize("<IBB") + 16 * len(parts)
    for part in parts:
        yield struct.pack("<QQ", at, at + len(part))
        at += len(part)
    yield from parts


def _part(operations: Sequence[Operation]) -> bytes:
    """Return the part of a rank: counts, places of what waits for nothing, nodes, and who waits for each."""
    after_end: list[list[int]] = [[] for _ in operations]
    after_start: list[list[int]] = [[] for _ in operations]
    for number, each in enumerate(operations):
        for other in each.ended:
            after_end[other].append(number)
        for other in each.started:
            after_start[other].append(number)
    roots = [number for number, each in enumerate(operations) if not each.ended and not each.started]
    pieces = [struct.pack(f"<II{len(roots)}I", len(operations), len(roots), *roots)]
    places: list[int] = []
    for number, each in enumerate(operations):
        peer, tag = (WILD if value == ANY else value for value in (each.peer, each.tag))
        row = [
            len(each.ended) + len(each.started),
            _CODES[each.kind],
            peer,
            each.amount,
            tag,
            each.cpu,
            each.nic,
        ]
        for waiting in (after_end[number], after_start[number]):
            row += [len(waiting), len(places)]
            places += waiting
        pieces.append(struct.pack("<IbIQIBBIIII", *row))
    return b"".join([*pieces, struct.pack(f"<{len(places)}I", *places)])
