"""Files of captured ranks, ``rank_<r>.json.gz``: rows as columns, and equal communications once."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np

from armillary.base.errors import InputError
from armillary.base.files import replacing
from armillary.base.json_text import parse_json
from armillary.base.packing import read_unpacked
from armillary.base.reading import read_plain
from armillary.capture.kinds import Kind
from armillary.capture.log import (
    ALL,
    COMMUNICATION,
    HOST,
    JOIN,
    KINDS,
    OPERATOR,
    Communication,
    Ints,
    Log,
    Place,
    Row,
    Rows,
)
from armillary.trace.attention import Attention
from armillary.trace.gemm import Gemm

FORMAT = "armillary-capture-2"
RUN = "capture.json"
"""File of a folder that says what its ranks are of: those of another run are not taken for this one's."""
MOST_MEMBERS = 10_000_000
"""Ranks of a program, and of all its groups together."""
MOST_STREAM = MOST_CALLS = 2**31


def path_of(folder: Path, rank: int) -> Path:
    """Return the name of a rank's file."""
    return folder / f"rank_{rank}.json.gz"


def write(folder: Path, log: Log) -> None:
    """Write the file of a rank, complete or not at all."""
    content = {each.name: getattr(log, each.name) for each in fields(log)}
    content["groups"] = [short_ranks(ranks) for ranks in log.groups]
    content["kinds"] = [_kind(each) for each in log.kinds]
    different, which = log.different()
    content["communications"] = {"different": [asdict(each) for each in different], "which": which.tolist()}
    content["rows"] = dict(zip(Row._fields, log.columns.tolist(), strict=True))
    text = json.dumps({"format": FORMAT, **content}, separators=(",", ":"))
    with replacing(path_of(folder, log.rank)) as temporary:
        # Without the time of day, so that equal runs are equal files.
        temporary.write_bytes(gzip.compress(text.encode(), mtime=0))


def read(path: Path) -> Log:
    """Return the log of a file.

    Raises:
        InputError: it cannot be read, or is not what `write` writes.
    """
    try:
        content: dict[str, Any] = parse_json(bytes(read_unpacked(path)), path)
        if content.pop("format") != FORMAT:
            raise ValueError("its format differs")
        log = Log(**content)
        log.groups, left = [], MOST_MEMBERS
        for ranks in content["groups"]:
            log.groups.append(_long(ranks, left))
            left -= len(log.groups[-1])
        log.kinds = [_of_kind(each) for each in content["kinds"]]
        log.places = [Place(*each) for each in content["places"]]
        called = content["communications"]
        different = [
            Communication(**{**each, "splits": tuple(each["splits"])}) for each in called["different"]
        ]
        _check_communications(log, different)
        which = _numbers("which", called["which"], len(different))
        log.communications = [different[at] for at in which.tolist()]
        log.rows = Rows(_rows(log, content["rows"]))
        log.environment = ([str(each) for each in log.environment[0]], str(log.environment[1]))
        log.sources = {str(file): str(digest) for file, digest in log.sources.items()}
        log.peak_by = [(what, whose, size) for what, whose, size in log.peak_by]
        _check(log)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}, expected what `armillary capture` writes") from error
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise InputError(
            f"{path}: cannot be read ({error}); expected what `armillary capture` writes"
        ) from error
    return log


def read_captured(folder: str | Path) -> list[Log]:
    """Return the ranks of a folder that `capture_script` has filled.

    Raises:
        InputError: it is none, or the run was interrupted.
    """
    path = Path(folder) / RUN
    if not path.exists():
        raise InputError(
            f"{folder}: has no {RUN}, expected a folder that `armillary capture --out` has filled"
        )
    try:
        said = parse_json(read_plain(path), path)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}), expected what `armillary capture` writes"
        ) from None
    except ValueError as error:
        raise InputError(f"{path}: is not JSON ({error}), expected what `armillary capture` writes") from None
    done = said.get("done") if isinstance(said, dict) else None
    if not isinstance(done, list) or not done or not all(type(rank) is int for rank in done):
        raise InputError(f"{path}: names no ranks that were run; expected a capture that ended: run it again")
    logs = [read(path_of(Path(folder), rank)) for rank in done]
    if wrong := next(
        (log for log in logs if log.ranks != logs[0].ranks or log.device != logs[0].device), None
    ):
        raise InputError(
            f"{path_of(Path(folder), wrong.rank)}: of {wrong.ranks} ranks on {wrong.device}, expected "
            f"{logs[0].ranks} on {logs[0].device}, as in {path_of(Path(folder), logs[0].rank).name}"
        )
    return logs


def _check(log: Log) -> None:
    """Refuse numbers that lead nowhere.

    Raises:
        ValueError: there is one.
    """
    sizes = (log.peak_bytes, log.reserved_bytes, log.host_bytes)
    if not all(type(each) is int for each in (log.rank, log.ranks, log.step, *sizes)):
        raise ValueError("rank, ranks, step, peak_bytes, reserved_bytes or host_bytes is no integer")
    if not 0 <= log.rank < log.ranks <= MOST_MEMBERS:
        raise ValueError(f"rank {log.rank} of {log.ranks}")
    texts = (log.device, log.torch, log.script, *log.notes, *log.assumed, *log.frameworks)
    if not all(isinstance(each, str) for each in texts):
        raise ValueError("device, torch, script, notes, assumed or frameworks is no text")
    if type(log.compiled) is not bool:
        raise ValueError("compiled is neither true nor false")
    for what, whose, size in log.peak_by:
        if not isinstance(what, str) or not isinstance(whose, str) or type(size) is not int or size < 0:
            raise ValueError(f"memory {[what, whose, size]}")
    if not all(type(each) is int for each in log.assumed.values()):
        raise ValueError("assumed counts no reads")
    if not all(isinstance(each, str) for place in log.places for each in place[:2]):
        raise ValueError("a place is no text")
    if any(
        len(set(ranks)) < len(ranks) or not all(type(rank) is int for rank in ranks) for ranks in log.groups
    ):
        raise ValueError("a group has a rank twice, or one that is no number")
    if any(not ranks or min(ranks) < 0 or max(ranks) >= log.ranks for ranks in log.groups):
        raise ValueError("a group has ranks that the program has not")
    for kind in log.kinds:
        if not all(type(each) is int and 0 <= each < 2**62 for each in (kind.flops, kind.size)):
            raise ValueError(f"operator '{kind.name}' has no work that is possible")
        if not all(isinstance(each, str) for each in (kind.name, kind.family, kind.precision)):
            raise ValueError("an operator has no name")
        sizes = (*(kind.gemm or ()), *(kind.attention or ()))
        if not all(type(each) is int and 0 <= each < 2**40 for each in sizes) or (
            kind.gemm and not all(kind.gemm)
        ):
            raise ValueError(f"operator '{kind.name}' has no size that is possible")


def _rows(log: Log, columns: dict[str, list[int]]) -> Ints:
    """Return the columns of rows.

    Raises:
        ValueError: a number leads nowhere.
    """
    limits = {
        "kind": HOST + 1,
        "what": 2**63,
        "place": len(log.places),
        "stream": MOST_STREAM,
        "calls": MOST_CALLS,
    }
    lowest = {"stream": ALL}
    found = np.array(
        [_numbers(name, columns[name], limits[name], lowest.get(name, 0)) for name in Row._fields], np.int64
    )
    many = len(log.communications)
    for kind, most in ((OPERATOR, len(log.kinds)), (COMMUNICATION, many), (JOIN, many)):
        if (found[1][found[0] == kind] >= most).any():
            raise ValueError(f"a row of kind {kind} has a number of {most} or more")
    return found


def _numbers(name: str, values: list[int], limit: int, lowest: int = 0) -> Ints:
    """Return whole numbers from `lowest` to below `limit`.

    Raises:
        ValueError: there are others.
    """
    # True is 1 and 0.5 is 0 where NumPy makes integers of them.
    if not isinstance(values, list) or not set(map(type, values)) <= {int}:
        raise ValueError(f"'{name}' is no list of whole numbers")
    found = np.array(values or [], np.int64 if not values else None)
    # Of another type where a number is too large for this one.
    if len(found) and (found.dtype != np.int64 or not lowest <= found.min() <= found.max() < limit):
        raise ValueError(f"'{name}' has numbers beyond {lowest} to {limit - 1}")
    return found


def _check_communications(log: Log, different: Sequence[Communication]) -> None:
    for each in different:
        numbers = (each.input, each.output, each.group, each.peer, each.tag, *each.splits)
        if (
            not all(type(number) is int and -1 <= number < 2**62 for number in numbers)
            or each.type not in KINDS
            or type(each.own_stream) is not bool
        ):
            raise ValueError(f"communication {each}")
        if not 0 <= each.group < len(log.groups) or min(numbers[:2]) < 0 or each.peer >= log.ranks:
            raise ValueError(f"communication {each}")
        if each.type in ("send", "recv") and each.peer < 0:
            raise ValueError(f"message {each}")


def short_ranks(ranks: tuple[int, ...]) -> list[int] | dict[str, int]:
    """Return ranks as a rule where they are equally far apart: a group may have 100,000."""
    step = ranks[1] - ranks[0] if len(ranks) > 1 else 1
    if step > 0 and ranks == tuple(range(ranks[0], ranks[0] + step * len(ranks), step)):
        return {"first": ranks[0], "count": len(ranks), "step": step}
    return list(ranks)


def _long(ranks: list[int] | dict[str, int], most: int) -> tuple[int, ...]:
    if isinstance(ranks, list):
        return tuple(ranks)
    first, count, step = ranks["first"], ranks["count"], ranks["step"]
    if count > most:
        raise ValueError(f"a group of {count} ranks")
    return tuple(range(first, first + count * step, step))


def _kind(kind: Kind) -> dict[str, Any]:
    return {name: value for name, value in asdict(kind).items() if value is not None} | {
        name: list(value) for name in ("gemm", "attention") if (value := getattr(kind, name)) is not None
    }


def _of_kind(content: dict[str, Any]) -> Kind:
    tensors = {
        side: tuple((tuple(shape), str(dtype)) for shape, dtype in content[side])
        for side in ("inputs", "outputs")
    }
    if not all(type(each) is int for shapes in tensors.values() for shape, _ in shapes for each in shape):
        raise ValueError("a tensor whose sizes are no whole numbers")
    gemm = Gemm(*content["gemm"]) if "gemm" in content else None
    attention = Attention(*content["attention"]) if "attention" in content else None
    return Kind(**{**content, **tensors, "gemm": gemm, "attention": attention})
