"""Schedules as the tables that `round_kernel` reads: rounds, messages, and who sends and receives what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil

import numpy as np
from numpy.typing import NDArray

from armillary.base.allowed import require
from armillary.base.errors import InputError
from armillary.collective.rounds import Rounds
from armillary.engine.messages import layout as lk

Ints = NDArray[np.int64]
Part = tuple[Fraction, bool]


PAIR = 220
"""Bytes of a pair of NPUs that exchange messages, with its route: 225 at the peak of 37 million, leaf-spine, flow."""


def require_room(pairs: float) -> None:
    """Refuse more pairs of NPUs than there is memory for, before any of them is listed.

    Raises:
        ShortageError: says how much they need.
    """
    require(
        pairs * PAIR,
        f"listing the routes of {pairs:,.0f} pairs of NPUs that exchange messages",
        "fewer ranks, algorithms with fewer partners such as ring, or network model analytical",
    )


@dataclass(frozen=True, eq=False)
class Shape:
    """One schedule in the tables; `parts` numbers its message sizes: a share of the data, and whether into a switch."""

    rounds: Rounds
    number: int
    moves: Ints
    """(messages, MV_COLUMNS)"""
    parts: Mapping[Part, int]


@dataclass
class Shapes:
    """All schedules of a program."""

    rows: list[int] = field(default_factory=list)
    rounds: list[int] = field(default_factory=list)
    sends: list[Ints] = field(default_factory=list)
    receives: list[Ints] = field(default_factory=list)
    received: list[Ints] = field(default_factory=list)
    moves: list[Ints] = field(default_factory=list)
    known: dict[tuple[int, ...], tuple[tuple[Rounds, ...], list[Shape]]] = field(default_factory=dict)
    count: int = 0
    ends: int = 0
    """Length of `sends`, and of `receives`."""
    messages: int = 0
    """Length of `received`."""

    def add(self, *rounds: Rounds) -> list[Shape]:
        """Return the shapes of schedules; those that are given together number their `parts` alike.

        Raises:
            InputError: one has more messages than can be numbered.
        """
        key = tuple(map(id, rounds))
        if key not in self.known:
            parts: dict[Part, int] = {}
            # The schedules are kept with their shapes, so that their ids stay their own.
            self.known[key] = (rounds, [self._add(one, parts) for one in rounds])
        return self.known[key][1]

    def _add(self, rounds: Rounds, parts: dict[Part, int]) -> Shape:
        # Before any of them is listed.
        size = sum(len(part.base) * (part.n if part.rotates else 1) for part in rounds.rounds)
        if size >= 1 << lk.MOVE_BITS:
            raise InputError(
                f"a {rounds.algorithm} {rounds.operation} among {rounds.n} members has {size:,} messages; "
                f"expected less than {1 << lk.MOVE_BITS:,}: choose another algorithm, or network model analytical"
            )
        require_room(size)
        first, moves = len(self.rounds) // lk.RO_COLUMNS, []
        count, nodes = 0, rounds.n + rounds.switches
        for part in rounds.rounds:
            messages = part.moves
            # A schedule may name what a member keeps; that is no message.
            apart = messages.source != messages.target
            source, target = messages.source[apart], messages.target[apart]
            # Nodes from `n` on are switches.
            into = target >= rounds.n
            shares = np.stack([messages.numerator[apart], messages.denominator[apart], into], axis=1)
            classes = _numbered(shares, parts)
            order = _sorted(source, nodes)
            reduce = messages.reduce[apart]
            at_end = np.where(
                into,
                np.where(reduce, lk.ADDED_IN_SWITCH, lk.RETAINED_IN_SWITCH),
                np.where(reduce, lk.REDUCED, lk.RETAINED),
            )
            rows = np.stack([source, target, classes, at_end], axis=1)[order].astype(np.int64)
            self._round(rows, nodes, count, part.repeat)
            moves.append(rows)
            count += len(rows)
        table = np.concatenate(moves) if moves else np.zeros((0, lk.MV_COLUMNS), np.int64)
        self.rows += [nodes, len(rounds.rounds), first, count, self.messages - count]
        self.moves.append(table)
        self.count += 1
        return Shape(rounds, self.count - 1, table, parts)

    def _round(self, rows: Ints, members: int, count: int, repeat: int) -> None:
        """Add one round, whose messages have the numbers from `count` on in their shape."""
        self.rounds += [repeat, self.ends, self.ends]
        self.sends.append(count + _starts(rows[:, lk.MV_SOURCE], members))
        self.receives.append(self.messages + _starts(rows[:, lk.MV_TARGET], members))
        self.received.append(count + _sorted(rows[:, lk.MV_TARGET], members))
        self.ends += members + 1
        self.messages += len(rows)

    def tables(self) -> dict[str, list[int] | list[Ints]]:
        """Return the tables of the program."""
        return {
            "SHAPES": self.rows, "ROUNDS": self.rounds, "SENDS": self.sends, "RECEIVES": self.receives,
            "RECEIVED": self.received, "MOVES": [part.ravel() for part in self.moves],
        }  # fmt: skip


def _numbered(shares: Ints, parts: dict[Part, int]) -> Ints:
    """Return the number of each share of the data in `parts`, (n,); new shares are added to it.

    Args:
        shares: (n, 3) numerator, denominator, and whether it goes into a switch.
        parts: Those known.
    """
    # The usual case, and much faster than `np.unique` over rows: all messages of a round are alike.
    if len(shares) and (shares == shares[0]).all():
        return np.full(len(shares), _number(shares[0].tolist(), parts))
    distinct, inverse = np.unique(shares, axis=0, return_inverse=True)
    return np.array([_number(row, parts) for row in distinct.tolist()], np.int64)[inverse.ravel()]


def _number(row: list[int], parts: dict[Part, int]) -> int:
    return parts.setdefault((Fraction(row[0], row[1]), bool(row[2])), len(parts))


def _sorted(member: Ints, members: int) -> Ints:
    """Return the stable order of messages by member."""
    # NumPy sorts 16 bits by radix.
    return np.argsort(member.astype(np.uint16) if members <= 1 << 16 else member, kind="stable")


def _starts(member: Ints, members: int) -> Ints:
    """Return (members + 1) where the messages of each member begin once they are sorted."""
    return np.concatenate([[0], np.cumsum(np.bincount(member, minlength=members))])


def sizes(
    parts: Iterable[Part],
    scale: Fraction,
    chunk: int,
    memory_bandwidth: float,
    switch_rate: float = 0.0,
    port_rate: float = 0.0,
) -> list[int]:
    """Return the rows of SIZES of a phase.

    Args:
        parts: Of a shape.
        scale: Bytes that the schedule is about, per byte of the chunk.
        chunk: Bytes of the chunk.
        memory_bandwidth: At which members reduce bytes, bytes/s; 0: in no time.
        switch_rate: At which a switch adds up those of a port, bytes per ns; 0: as they come.
        port_rate: At which they come at most, bytes per ns.
    """
    rows = []
    for part, into_switch in parts:
        moved = ceil(part * scale * chunk)
        rate, unit = (switch_rate, 1e3) if into_switch else (memory_bandwidth, 1e9)
        edge = int(moved / port_rate * 1e3) if into_switch else 0
        rows += [moved, ceil(moved / rate * unit) if rate > 0 else 0, edge]
    return rows
