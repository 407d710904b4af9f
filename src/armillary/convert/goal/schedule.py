"""Read GOAL schedules: for each rank sends, receives and computations, and what each requires.

::

    num_ranks 2
    rank 0 {
    l1: calc 100
    l2: send 8b to 1 tag 7
    l2 requires l1
    }
    rank 1 { …

A statement has a line. ``a requires b``: a starts when b has ended; ``irequires``: when it has started.
`armillary.convert.goal.binary` reads binary schedules.
"""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path

from armillary.base.counts import MOST_RECORDED, check_count, check_rank_files
from armillary.base.document import read_text
from armillary.base.errors import InputError, nearest
from armillary.convert.goal.binary import is_binary, read_binary
from armillary.convert.goal.operation import ANY, MOST_RANKS, Kind, Operation
from armillary.trace.graph import LIMIT

_LABEL = r"[a-zA-Z][a-zA-Z0-9_]*"
_OPERATION = re.compile(
    rf"(?:(?P<label>{_LABEL})\s*:\s*)?(?:"
    r"(?P<kind>send|recv)\s+(?P<size>\d+)b\s+(?P<way>to|from)\s+(?P<peer>-1|\d+)"
    r"(?:\s+tag\s+(?P<tag>-1|\d+))?(?:\s+cpu\s+(?P<cpu>\d+))?(?:\s+nic\s+(?P<nic>\d+))?"
    r"|calc\s+(?P<ns>\d+)(?:\s+cpu\s+(?P<calc_cpu>\d+))?)",
    re.ASCII,
)
_REQUIRES = re.compile(rf"({_LABEL})\s+(i?requires)\s+({_LABEL})", re.ASCII)
_RANK = re.compile(r"rank\s+(\d+)\s*\{", re.ASCII)
_HINTED = 1000


def _without_comments(text: str) -> str:
    """Return a text whose comments are their line breaks; one without an end is none."""
    parts, at = [], 0
    # Not by a pattern: where many begin and none ends, that takes the square of the text.
    while (begin := text.find("/*", at)) >= 0 and (end := text.find("*/", begin + 2)) >= 0:
        parts += [text[at:begin], "\n" * text.count("\n", begin, end)]
        at = end + 2
    return "".join([*parts, text[at:]])


def read_schedule(path: Path) -> list[list[Operation]]:
    """Return the operations of every rank, in the order of the file.

    Raises:
        InputError: it cannot be read, or is no schedule; names the line, or the operation of a binary one.
    """
    if is_binary(path):
        return read_binary(path)
    text = _without_comments(read_text(path, "GOAL schedule"))
    ranks: list[list[Operation]] | None = None
    seen: set[int] = set()
    rank, labels, total = -1, dict[str, int](), 0
    for number, raw in enumerate(text.split("\n"), 1):
        line, where = raw.partition("//")[0].strip(), f"{path}:{number}"
        if not line:
            continue
        if ranks is None:
            count = _ranks(where, line)
            check_rank_files(count, where)
            ranks = [[] for _ in range(count)]
        elif rank < 0:
            match = _RANK.fullmatch(line)
            rank = _below(where, "rank", match[1], len(ranks)) if match else -1
            if rank < 0 or rank in seen:
                raise InputError(
                    f"{where}: got '{line[:60]}', expected 'rank r {{' of another rank below {len(ranks)}"
                )
            seen.add(rank)
            labels = {}
        elif line == "}":
            rank = -1
        elif match := _REQUIRES.fullmatch(line):
            first, second = (_known(where, labels, name) for name in (match[1], match[3]))
            if first == second:
                raise InputError(f"{where}: {match[1]} requires itself, expected another label")
            mine = ranks[rank][first]
            (mine.ended if match[2] == "requires" else mine.started).append(second)
        else:
            match = _OPERATION.fullmatch(line)
            if not match:
                raise InputError(
                    f"{where}: got '{line[:60]}', expected a send, recv, calc, requires or irequires"
                )
            if match["label"]:
                if match["label"] in labels:
                    raise InputError(f"{where}: label {match['label'][:40]} is there twice, expected another")
                labels[match["label"]] = len(ranks[rank])
            ranks[rank].append(_operation(where, match, rank, len(ranks)))
        total += 1
        check_count(total, MOST_RECORDED, f"{path}: statements", "a shorter schedule")
    if ranks is None or rank >= 0:
        raise InputError(
            f"{path}: ends {'before num_ranks' if ranks is None else f'within rank {rank}'}, expected more"
        )
    # Each rank becomes a file: a number alone must not make a million of them.
    if 2 * len(seen) < len(ranks):
        raise InputError(
            f"{path}: has blocks of {len(seen):,} of {len(ranks):,} ranks, expected one for each that does something, "
            "and for half of them at least"
        )
    return ranks


def _ranks(where: str, line: str) -> int:
    words = line.split()
    if len(words) != 2 or words[0] != "num_ranks":
        raise InputError(f"{where}: got '{line[:60]}', expected 'num_ranks N'")
    return _below(where, "num_ranks", words[1], MOST_RANKS + 1, 1)


def _below(where: str, what: str, text: str, most: int, low: int = 0) -> int:
    # Python refuses to read numbers of thousands of digits.
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else -1
    if not low <= value < most:
        raise InputError(
            f"{where}: {what}: got '{text[:40]}', expected a whole number from {low} to {most - 1}"
        )
    return value


def _known(where: str, labels: dict[str, int], name: str) -> int:
    if name not in labels:
        # A few are enough for a misspelt one, and long ones would fill the line.
        some = [label for label in islice(labels, _HINTED) if len(label) <= 40]
        raise InputError(f"{where}: no label {name[:40]} above{nearest(name, some)}")
    return labels[name]


def _operation(where: str, match: re.Match[str], rank: int, ranks: int) -> Operation:
    if match["kind"] is None:
        cpu = _below(where, "cpu", match["calc_cpu"] or "0", 256)
        return Operation("calc", _below(where, "calc", match["ns"], LIMIT), cpu=cpu)
    receives = match["kind"] == "recv"
    if (match["way"] == "from") != receives:
        raise InputError(f"{where}: got '{match[0][:60]}', expected send … to, or recv … from")
    if not receives and "-1" in (match["peer"], match["tag"]):
        raise InputError(f"{where}: got -1, expected the rank and the tag of a send")
    peer = ANY if match["peer"] == "-1" else _below(where, "rank", match["peer"], ranks)
    if peer == rank:
        raise InputError(f"{where}: a message of rank {rank} to itself, expected another rank")
    tag = ANY if match["tag"] == "-1" else _below(where, "tag", match["tag"] or "0", 2**31)
    cpu, nic = (_below(where, key, match[key] or "0", 256) for key in ("cpu", "nic"))
    kind: Kind = "recv" if receives else "send"
    return Operation(kind, _below(where, "bytes", match["size"], LIMIT), peer, tag, cpu, nic)
