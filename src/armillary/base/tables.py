"""Tables of kernels, each declared once: the meaning and unit of its columns, and the meaning of its rows.

A kernel works on a few flat integer arrays, because Numba carries every array argument through every call: 50 tables
as a tuple of arrays take 1.4 times as long to compile and 1.5 to 1.9 times as long to run. A flat array begins with a
head with the address of each of its tables, and with its scalars. A declaration hides that::

    STATE = Layout("state")
    V_EVENTS = STATE.scalar("events so far")
    LANES = STATE.columns("LANE", "lanes", "One collective on one line of ranks.")
    LANES.column("head", "the chunk that it serves, -1: none", start=-1)
    LANES.column("since", "when its rate was set", "ticks")

It provides the allocation (`Layout.program`, `Layout.state`), and one-line functions (`armillary.base.accessors`) with
which kernels read ``lanes.head(st, lane)`` and write ``lanes.set_since(st, lane, tick)``.

This module also has the working memory of kernels, which grows on request: `room` and `at_least`.
"""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import ShortageError
from armillary.base.jit import Mode, is_checking

Ints = NDArray[np.int64]
Part = Ints | Callable[[int], Ints]
"""The values of a table, or a function that returns them for the address at which they will stand."""
_NO_WORDS = np.zeros(0, np.int64)
_LARGE_PAGE = 1 << 21
"""Bytes of a large page of memory on most machines."""
_HUGE = 2 * _LARGE_PAGE
"""Bytes from which NumPy asks for large pages."""


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Attributes:
        comment: What it holds.
        unit: In what unit, "": a count, a number of a row, or a code.
        head: Place in the head that holds its address; -1: rows are found by their own addresses.
        stride: From one of its rows to the next.
        offset: From the begin of a row.
        many: How many values stand side by side in a row; each is found by one more index.
    """

    comment: str
    unit: str
    head: int
    stride: int
    offset: int
    many: int = 1


@dataclass(eq=False)
class Table:
    """Rows of columns, or columns each of which is a table of its own; see `Layout.rows` and `Layout.columns`."""

    name: str
    shape: str
    comment: str
    layout: Layout | None = None
    apart: bool = False
    width: int = 0
    """Integers in a row."""
    used: int = 0
    """Of these, those that have a column."""
    declared: dict[str, Column] = field(default_factory=dict)
    table: str = ""
    """The name of the table that its rows stand in, if `name` is that of a part of their columns."""
    starts: dict[str, int] = field(default_factory=dict)
    """What the columns hold at first, by the names of their tables; of columns that stand apart."""

    def column(
        self, name: str, comment: str, unit: str = "", *, start: int = 0, many: int = 1, at: int = -1
    ) -> int:
        """Declare the next column; returns its number in a row.

        Args:
            name: As kernels call it.
            comment: What it holds.
            unit: See `Column`.
            start: What it holds at first (`Layout.columns`).
            many: See `Column`.
            at: Another number than the next one: rows of different kinds use it for different things.
        """
        if name in self.declared:
            raise ValueError(f"{self.name}: {name} is declared twice")
        # Each column is a table of its own, with its own address in the head.
        if self.apart and self.layout is not None:
            own = f"{self.name}_{name.upper()}" if self.name else name.upper()
            self.declared[name] = Column(comment, unit, self.layout.place(own), 1, 0, many)
            self.starts[own] = start
            return 0
        place = self.used if at < 0 else at
        head = -1 if self.layout is None else self.layout.places[self.table or self.name]
        self.declared[name] = Column(comment, unit, head, 0, place, many)
        self.used = max(self.used, place + many)
        self.width = max(self.width, self.used)
        return place

    def find(self, name: str) -> Column:
        """Return a column with the final stride of its rows.

        Raises:
            AttributeError: there is none of this name.
        """
        if name not in self.declared:
            raise AttributeError(f"{self.name} has no column {name!r}; it has {', '.join(self.declared)}")
        found = self.declared[name]
        if self.apart or self.layout is None:
            return found
        # The width is known once all columns are declared.
        return Column(found.comment, found.unit, found.head, self.width, found.offset, found.many)


def record(name: str, comment: str) -> Table:
    """Declare rows that have no table: kernels find them by their addresses in an array of working memory."""
    return Table(name, "", comment)


def extended(table: Table, name: str, comment: str) -> Table:
    """Declare that rows of a table, or a record, have further columns where one kind of kernel uses them."""
    return replace(
        table,
        name=name,
        table=table.table or table.name,
        comment=comment,
        declared=dict(table.declared),
        starts={},
    )


class Layout:
    """What a flat array holds: a head, with the address of every table and with the scalars, and then the tables."""

    def __init__(self, name: str, before: Layout | None = None) -> None:
        """Begin with nothing, or with all that another layout holds, so that its kernels read this array, too."""
        self.name = name
        self.places: dict[str, int] = dict(before.places) if before else {}
        """Place in the head of the address of each table."""
        self.tables: list[Table] = list(before.tables) if before else []
        self.head: int = before.head if before else 0
        """Words of the head."""
        self.scalars: dict[int, str] = dict(before.scalars) if before else {}
        """What the scalars are, by their places."""

    def place(self, table: str) -> int:
        """Take the next place of the head for the address of a table."""
        if table in self.places:
            raise ValueError(f"{self.name}: {table} is declared twice")
        self.places[table] = self.head
        self.head += 1
        return self.head - 1

    def scalar(self, comment: str) -> int:
        """Declare one value in the head; returns its place."""
        self.scalars[self.head] = comment
        self.head += 1
        return self.head - 1

    def rows(self, name: str, shape: str, comment: str, width: int = 0) -> Table:
        """Declare a table of rows, whose columns are side by side; `shape` names the things that have a row each.

        With a `width` a row is so wide at least: others may declare columns of their own (`extended`).
        """
        self.place(name)
        self.tables.append(Table(name, shape, comment, self, width=width))
        return self.tables[-1]

    def columns(self, name: str, shape: str, comment: str) -> Table:
        """Declare columns of `shape` rows that stand apart: each is a table ``NAME_COLUMN``.

        Kernels that write a few of many columns touch less memory so.
        """
        self.tables.append(Table(name, shape, comment, self, apart=True))
        return self.tables[-1]

    def reserve(self, lengths: Mapping[str, int]) -> dict[str, Ints]:
        """Return tables of these lengths, to be filled: slices of one array, which `program` takes without a copy."""
        ends = np.cumsum([self.head, *lengths.values()]).tolist()
        flat = np.empty(ends[-1], np.int64)
        return {name: flat[at:end] for name, at, end in zip(lengths, ends, ends[1:], strict=False)}

    def _reserved(self, tables: Mapping[str, Part]) -> Ints | None:
        """Return the array that `reserve` made, if these are all of its tables; else None."""
        first = next(iter(tables.values()), None)
        flat = first.base if isinstance(first, np.ndarray) else None
        if not isinstance(flat, np.ndarray) or flat.dtype != np.int64 or is_checking():
            return None
        at = self.head
        for table in tables.values():
            if not isinstance(table, np.ndarray) or table.base is not flat or table.strides != (8,):
                return None
            # An empty slice may have any address.
            if table.size and table.ctypes.data != flat.ctypes.data + 8 * at:
                return None
            at += table.size
        return flat if at == len(flat) else None

    def program(
        self, tables: Mapping[str, Part], mode: Mode, scalars: Mapping[int, int] | None = None
    ) -> tuple[Any, dict[str, int]]:
        """Lay tables out in one array, a list for the interpreter; returns it and the address of each table.

        Kernels only read it: what `reserve` made is taken as it is.
        """
        head = np.zeros(self.head, np.int64)
        for place, value in (scalars or {}).items():
            head[place] = value
        parts, base, at = [head], {}, len(head)
        reserved = self._reserved(tables)
        for name, table in tables.items():
            at += len(before_table())
            base[name] = head[self.places[name]] = at
            part = np.ravel(table(at) if callable(table) else table)
            # Guards stand here only where kernels are checked; otherwise both are empty.
            parts += [before_table(part.size), part]
            at += part.size
        if reserved is None:
            flat = np.concatenate([*parts, before_table()])
        else:
            flat = reserved
            flat[: self.head] = head
        # For the interpreter a list: indexing an array from Python makes an object of each value.
        return (flat if mode == "compiled" else flat.tolist()), base

    def state(
        self,
        sizes: Mapping[str, int],
        filled: Mapping[str, Ints],
        mode: Mode,
        fill: Callable[[Mapping[str, Ints]], None] | None = None,
    ) -> tuple[Any, dict[str, slice]]:
        """Lay out what a run changes; returns it and where each table is.

        Args:
            sizes: Rows of each shape.
            filled: Tables that begin with other values than declared, or have another size.
            mode: A list for the interpreter.
            fill: Writes what others begin with into the tables, by name.
        """
        lengths: dict[str, int] = {}
        starts: dict[str, int] = {}
        for table in self.tables:
            names = table.starts if table.apart else {table.name: 0}
            starts |= names
            rows = sizes.get(table.shape, 0)
            for name, column in zip(names, table.declared.values(), strict=False):
                lengths[name] = rows * (column.many if table.apart else table.width)
        begin = {name: value for name, value in starts.items() if value}
        return self.lay_out(lengths, filled, mode, begin, fill)

    def lay_out(
        self,
        lengths: Mapping[str, int],
        filled: Mapping[str, Ints],
        mode: Mode,
        begin: Mapping[str, int] = MappingProxyType({}),
        fill: Callable[[Mapping[str, Ints]], None] | None = None,
    ) -> tuple[Any, dict[str, slice]]:
        """Lay out tables of these lengths, and filled ones of their own; see `state`.

        All values of the others are what `begin` says of their tables, else 0.
        """
        at, where, dense = self.head, {}, 0
        every = {**lengths, **{name: len(values) for name, values in filled.items()}}
        # Tables shorter than a large page stand first, and share some: see `sparse_zeros`.
        for name in sorted(every, key=lambda each: 8 * every[each] >= _LARGE_PAGE):
            at += len(before_table())
            where[name] = slice(at, at + every[name])
            at += every[name]
            dense = at if 8 * every[name] < _LARGE_PAGE else dense
        state = sparse_zeros(at + len(before_table()), dense)
        for after in [*where.values(), slice(len(state), len(state))]:
            if len(words := before_table(after.stop - after.start)):
                state[after.start - len(words) : after.start] = words
        for name, span in where.items():
            state[self.places[name]] = span.start
            if name in filled:
                _fill(state[span], filled[name])
            elif name in begin:
                state[span] = begin[name]
        if fill:
            fill({name: state[span] for name, span in where.items()})
        return (state if mode == "compiled" else state.tolist()), where


def _fill(zeros: Ints, values: Ints) -> None:
    """Write values over zeros; of many that are mostly 0 only the others: a page that is not written takes nothing."""
    if len(values) > _HUGE and np.count_nonzero(values) * 64 < len(values):
        others = np.flatnonzero(values)
        zeros[others] = values[others]
    else:
        zeros[:] = values


def sparse_zeros(size: int, dense: int = 0) -> Ints:
    """Return `size` zeros, after the first `dense` in separate pages of 4 KiB that take memory only when written.

    Each of these costs 1.3 us when it is first written, so the first are in large ones: that is a tenth of a run of the
    step below.

    NumPy asks the operating system for pages of 2 MiB. Each is cleared as a whole when its first word is written, and
    of the state of a run few words are: of 97 MB for a step of Llama 405B on 16,384 NPUs, those that are written lie in
    40 MB of large pages and in 3 MB of small ones.

    Raises:
        MemoryError: there is not as much.
    """
    if 8 * size < _HUGE:
        return np.zeros(size, np.int64)
    # Private where the platform knows the word: a forked process writes to pages of its own, as with NumPy.
    private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
    try:
        pages = mmap.mmap(-1, 8 * size, **private)
    except OSError as error:
        raise MemoryError(f"no room for {size} integers") from error
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        # Some systems give large pages to all who do not refuse them. A kernel without them refuses this.
        first = 8 * dense // mmap.PAGESIZE * mmap.PAGESIZE
        parts = (mmap.MADV_HUGEPAGE, 0, first), (mmap.MADV_NOHUGEPAGE, first, 8 * size - first)
        with contextlib.suppress(OSError):
            for advice, start, length in parts:
                if length:
                    pages.madvise(advice, start, length)
    return np.frombuffer(pages, np.int64)


def before_table(size: int = 0) -> Ints:
    """Return the words that precede a table of `size` words in a flat array, and end the array: none, or guards."""
    if not is_checking():
        return _NO_WORDS
    from armillary.base.bounds_kernel import GUARD

    return np.array((GUARD, size, GUARD), np.int64)


class Guards:
    """The guard words of some flat arrays, checked between events; none where kernels are not checked."""

    def __init__(self, *flats: Any) -> None:
        """Note where they are."""
        self.words: list[tuple[Any, Ints]] = []
        if is_checking():
            from armillary.base.bounds_kernel import GUARD

            self.guard = GUARD
            self.words = [(flat, np.flatnonzero(np.asarray(flat) == GUARD)) for flat in flats]

    def budget(self, most: int) -> int:
        """Return how many events a kernel may process before it returns: `most`, or one where guards are checked.

        Raises:
            AssertionError: one has changed.
        """
        for flat, places in self.words:
            words = (
                flat[places] if isinstance(flat, np.ndarray) else [flat[place] for place in places.tolist()]
            )
            wrong = np.flatnonzero(np.asarray(words) != self.guard)
            assert not wrong.size, f"the guard word at {places[wrong[0]]} was written"
        # One event at a time, so that a broken guard is found right after the event that broke it.
        return 1 if self.words else most


def room(size: int, mode: Mode) -> Any:
    """Return `size` integers of working memory.

    Raises:
        ShortageError: there is not as much.
    """
    try:
        return np.zeros(size, np.int64) if mode == "compiled" else [0] * size
    except MemoryError:
        raise ShortageError(
            f"moving every message of these collectives takes {size * 8 / 2**30:.3g} GiB of working memory, more than "
            "there is; expected fewer NPUs, or fewer chunks that are active at a time"
        ) from None


def at_least(array: Any, size: int, mode: Mode) -> Any:
    """Return working memory with the contents of `array` and room for at least `size` integers.

    Where kernels are checked it has exactly `size`, so that use beyond what was asked for is found.
    """
    whole = array
    # A checked array is a view of a longer one: grow that.
    if is_checking() and mode == "compiled" and array.base is not None:
        whole = array.base
    if len(whole) < size:
        # At least twice as long, so that all copies together cost as much as the last.
        longer = room(max(size, 2 * len(whole)), mode)
        longer[: len(whole)] = whole
        whole = longer
    if is_checking() and mode == "compiled":
        return whole[:size]
    if is_checking():
        del whole[size:]
    return whole
