"""Schedules as the tables that `round_kernel` reads: rounds, messages, and who sends and receives what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil

import numpy as np
from numpy.typing import NDArray

from armillary.collective.rounds import Rounds
from armillary.engine.messages import message_layout_kernel as lk
from armillary.errors import InputError

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Shape:
    """One schedule in the tables; `parts` are the distinct shares of D that its messages carry."""

    number: int
    moves: Ints
    """(messages, MV_COLUMNS)"""
    parts: tuple[Fraction, ...]


@dataclass
class Shapes:
    """All schedules of a program."""

    rows: list[int] = field(default_factory=list)
    rounds: list[int] = field(default_factory=list)
    sends: list[Ints] = field(default_factory=list)
    receives: list[Ints] = field(default_factory=list)
    received: list[Ints] = field(default_factory=list)
    moves: list[Ints] = field(default_factory=list)
    known: dict[int, tuple[Rounds, Shape]] = field(default_factory=dict)
    ends: int = 0
    """Length of `sends`, and of `receives`."""
    messages: int = 0
    """Length of `received`."""

    def add(self, rounds: Rounds) -> Shape:
        """Return the shape of a schedule.

        Raises:
            InputError: it has more messages than can be numbered.
        """
        if id(rounds) not in self.known:
            # The schedule is kept with its shape, so that its id stays its own.
            self.known[id(rounds)] = (rounds, self._add(rounds))
        return self.known[id(rounds)][1]

    def _add(self, rounds: Rounds) -> Shape:
        first, moves = len(self.rounds) // lk.RO_COLUMNS, []
        parts: dict[Fraction, int] = {}
        count = 0
        for part in rounds.rounds:
            messages = part.moves
            apart = messages.source != messages.target
            source, target = messages.source[apart], messages.target[apart]
            shares = np.stack([messages.numerator[apart], messages.denominator[apart]], axis=1)
            classes = _numbered(shares, parts)
            order = _sorted(source, rounds.n)
            rows = np.stack([source, target, classes, messages.reduce[apart]], axis=1)[order].astype(np.int64)
            self._round(rows, rounds.n, count, part.repeat)
            moves.append(rows)
            count += len(rows)
        if count >= 1 << lk.MOVE_BITS:
            raise InputError(
                f"a {rounds.algorithm} {rounds.operation} among {rounds.n} members has {count} messages; "
                f"expected less than {1 << lk.MOVE_BITS}: choose another algorithm, or network model analytical"
            )
        table = np.concatenate(moves) if moves else np.zeros((0, lk.MV_COLUMNS), np.int64)
        self.rows += [rounds.n, len(rounds.rounds), first, count, self.messages - count]
        self.moves.append(table)
        return Shape(len(self.known), table, tuple(parts))

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


def _numbered(shares: Ints, parts: dict[Fraction, int]) -> Ints:
    """Return the number of each share of D in `parts`, to which new ones are added; shares are (n, 2)."""
    if len(shares) and (shares == shares[0]).all():
        return np.full(len(shares), parts.setdefault(Fraction(*shares[0].tolist()), len(parts)))
    distinct, inverse = np.unique(shares, axis=0, return_inverse=True)
    numbers = [parts.setdefault(Fraction(*pair), len(parts)) for pair in distinct.tolist()]
    return np.array(numbers, np.int64)[inverse.ravel()]


def _sorted(member: Ints, members: int) -> Ints:
    """Return the stable order of messages by member."""
    # NumPy sorts 16 bits by radix.
    return np.argsort(member.astype(np.uint16) if members <= 1 << 16 else member, kind="stable")


def _starts(member: Ints, members: int) -> Ints:
    """Return (members + 1) where the messages of each member begin once they are sorted."""
    return np.concatenate([[0], np.cumsum(np.bincount(member, minlength=members))])


def sizes(parts: Sequence[Fraction], scale: Fraction, chunk: int, memory_bandwidth: float) -> list[int]:
    """Return the rows of SIZES of a phase: bytes and ticks of reduction.

    Args:
        parts: Of a shape.
        scale: Bytes that the schedule is about, per byte of the chunk.
        chunk: Bytes of the chunk.
        memory_bandwidth: At which bytes are reduced, bytes/s; 0: in no time.
    """
    rows = []
    for part in parts:
        moved = ceil(part * scale * chunk)
        rows += [moved, ceil(moved / memory_bandwidth * 1e9) if memory_bandwidth > 0 else 0]
    return rows
