"""What one rank did, in the order in which its host issued it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from armillary.capture.kinds import Kind

Ints = NDArray[np.int64]
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


class Rows(Sequence[Row]):
    """Rows as columns: each is made when it is asked for.

    Attributes:
        columns: The fields of `Row`, int64 (5, rows).
    """

    def __init__(self, columns: Ints) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return int(self.columns.shape[1])

    @overload
    def __getitem__(self, at: int) -> Row: ...
    @overload
    def __getitem__(self, at: slice) -> Rows: ...
    def __getitem__(self, at: int | slice) -> Row | Rows:
        return Rows(self.columns[:, at]) if isinstance(at, slice) else Row(*self.columns[:, at].tolist())

    def __iter__(self) -> Iterator[Row]:
        return map(Row._make, zip(*self.columns.tolist(), strict=True))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Rows):
            return np.array_equal(self.columns, other.columns)
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


def renumbered(rows: Sequence[Row]) -> Rows:
    """Return rows whose events are numbered from 1, in the order of their names: PyTorch counts those of all steps."""
    columns = (
        rows.columns.copy() if isinstance(rows, Rows) else np.array(rows, np.int64).reshape(-1, 5).T.copy()
    )
    kind, what = columns[:2]
    named = np.flatnonzero((kind == RECORD) | (kind == WAIT) | ((kind == HOST) & (what != 0)))
    _, first, which = np.unique(what[named], return_index=True, return_inverse=True)
    number = np.empty(len(first), np.int64)
    number[np.argsort(first, kind="stable")] = np.arange(1, len(first) + 1)
    columns[1, named] = number[which]
    return Rows(columns)


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
    rows: Sequence[Row] = field(default_factory=list)
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

    @property
    def columns(self) -> Ints:
        """The rows as `Rows` has them."""
        rows = self.rows
        return rows.columns if isinstance(rows, Rows) else np.array(rows, np.int64).reshape(-1, 5).T

    def of_kind(self, kind: int) -> Rows:
        """Return the rows of a kind."""
        columns = self.columns
        return Rows(columns[:, columns[0] == kind])

    def operators(self) -> Iterator[tuple[Row, Kind]]:
        """Yield what ran on the device, communications left out."""
        return ((row, self.kinds[row.what]) for row in self.of_kind(OPERATOR))

    def issued(self) -> Iterator[tuple[Row, Communication]]:
        """Yield collectives and messages."""
        return ((row, self.communications[row.what]) for row in self.of_kind(COMMUNICATION))

    def different(self) -> tuple[list[Communication], Ints]:
        """Return the communications, equal ones once, and which of these each of them is, int64."""
        number: dict[Communication, int] = {}
        # By identity first: a file has equal ones once.
        same = {id(each): each for each in self.communications}
        of = {key: number.setdefault(each, len(number)) for key, each in same.items()}
        return list(number), np.array([of[id(each)] for each in self.communications], np.int64)

    def peers(self) -> set[int]:
        """Return the ranks at the other ends of messages."""
        return {each.peer for each in self.communications if each.type in ("send", "recv")}

    def stream_of(self, row: Row) -> int:
        """Return the stream that a communication runs on: that of its group where it has one, below 0."""
        found = self.communications[row.what]
        return -1 - found.group if found.own_stream else row.stream
