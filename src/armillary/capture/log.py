"""What one rank did, in the order in which its host issued it; and its file, ``rank_<r>.json.gz``."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from armillary.base.errors import InputError
from armillary.base.files import replacing
from armillary.base.json_text import parse_json
from armillary.base.packing import read_unpacked
from armillary.capture.kinds import Kind
from armillary.trace.attention import Attention
from armillary.trace.gemm import Gemm

FORMAT = "armillary-capture-1"
MOST_MEMBERS = 10_000_000
"""Ranks of a program, and of all its groups together."""
KINDS = (
    "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "reduce", "gather", "scatter", "barrier",
    "send", "recv",
)  # fmt: skip
"""Types of communications."""
OPERATOR, COMMUNICATION, RECORD, WAIT, JOIN, HOST = range(6)
"""Kinds of rows: an operator; a communication; a stream records an event, waits for one, waits for a communication; the
host waits."""
ALL = -1
"""Stream of a row `HOST` that waits for all of them."""


class Row(NamedTuple):
    """One thing that the host issued.

    Attributes:
        kind: One of those above.
        what: Number of the operator's kind, the communication, or the event.
        stream: That it was issued on, or that waits.
        place: Number of module and line in `Log.places`.
        calls: Operators that the host called since the row before it, this one included: views launch nothing.
    """

    kind: int
    what: int
    stream: int
    place: int = 0
    calls: int = 0


class Place(NamedTuple):
    """Where in the program: module path, file and line, and whether in the backward pass."""

    module: str
    line: str
    backward: bool


@dataclass(frozen=True)
class Communication:
    """A collective or a message.

    Attributes:
        type: ``all-reduce``, ``all-gather``, …, ``send`` or ``recv``.
        input: Bytes that this rank gives.
        output: Bytes that it has afterwards.
        group: Number of its group in `Log.groups`.
        own_stream: Whether it runs on the stream of its group, and its issuer goes on at once.
        peer: Rank of the other end of a message, or root; -1: none.
        tag: Of a message.
        splits: Bytes to each member, of an all-to-all that is not uniform.
    """

    type: str
    input: int
    output: int
    group: int
    own_stream: bool
    peer: int = -1
    tag: int = 0
    splits: tuple[int, ...] = ()

    @property
    def bytes(self) -> int:
        """Bytes of the whole vector: what an all-gather has afterwards, what a reduce-scatter begins with."""
        return max(self.input, self.output)


@dataclass
class Log:
    """One recorded step of one rank.

    Attributes:
        rank: Of the program.
        ranks: How many it has.
        device: Name of the device's constants.
        torch: Version of PyTorch.
        script: What was run.
        step: Which step this is, from 1; 0: the whole script.
        groups: Ranks of every group.
        kinds: Operators, each different one once.
        places: Where rows are from; the first is nowhere.
        communications: In the order of their rows.
        rows: See `Row`.
        peak_bytes: Most memory that tensors had at a time in the step.
        reserved_bytes: Most that PyTorch's allocator held for them.
        assumed: Place -> reads of values that nobody knows, in the whole run.
        notes: What a person should know.
        frameworks: Training software that the program imported, such as ``megatron-core``.
        compiled: Whether it asked for `torch.compile`.
        sources: Files of the program, and others that it read below its folder, with digests.
        environment: Variables that it read, and a digest of their values.
        peak_by: Bytes of what was alive at the peak, by (what, module or line), most first; what is ``weights``,
            ``gradients``, ``optimizer`` or ``tensors``.
        host_bytes: That were copied between the host and the device.
    """

    rank: int
    ranks: int
    device: str
    torch: str
    script: str
    step: int = 0
    groups: list[tuple[int, ...]] = field(default_factory=list)
    kinds: list[Kind] = field(default_factory=list)
    places: list[Place] = field(default_factory=lambda: [Place("", "", False)])
    communications: list[Communication] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    peak_bytes: int = 0
    assumed: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    frameworks: list[str] = field(default_factory=list)
    compiled: bool = False
    sources: dict[str, str] = field(default_factory=dict)
    environment: tuple[list[str], str] = field(default_factory=lambda: ([], ""))
    peak_by: list[tuple[str, str, int]] = field(default_factory=list)
    reserved_bytes: int = 0
    host_bytes: int = 0

    def note(self, text: str) -> None:
        """Add what a person should know, once."""
        if text not in self.notes:
            self.notes.append(text)

    def operators(self) -> Iterator[tuple[Row, Kind]]:
        """Yield what ran on the device, communications left out."""
        return ((row, self.kinds[row.what]) for row in self.rows if row.kind == OPERATOR)

    def issued(self) -> Iterator[tuple[Row, Communication]]:
        """Yield collectives and messages."""
        return ((row, self.communications[row.what]) for row in self.rows if row.kind == COMMUNICATION)

    def stream_of(self, row: Row) -> int:
        """Return the stream that a communication runs on: that of its group where it has one, below 0."""
        found = self.communications[row.what]
        return -1 - found.group if found.own_stream else row.stream


def path_of(folder: Path, rank: int) -> Path:
    """Return the name of a rank's file."""
    return folder / f"rank_{rank}.json.gz"


def write(folder: Path, log: Log) -> None:
    """Write the file of a rank, complete or not at all."""
    content = asdict(log)
    content["groups"] = [short_ranks(ranks) for ranks in log.groups]
    content["kinds"] = [_kind(each) for each in log.kinds]
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
        log.communications = [
            Communication(**{**each, "splits": tuple(each["splits"])}) for each in content["communications"]
        ]
        log.rows = [Row(*each) for each in content["rows"]]
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
    tables = {OPERATOR: len(log.kinds), COMMUNICATION: len(log.communications), JOIN: len(log.communications)}
    for row in log.rows:
        if not all(type(each) is int for each in row) or not 0 <= row.kind <= HOST or row.calls < 0:
            raise ValueError(f"row {list(row)}")
        if not 0 <= row.place < len(log.places) or not 0 <= row.what < tables.get(row.kind, 2**63):
            raise ValueError(f"row {list(row)}")
    for each in log.communications:
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
