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
            distinct, inverse = np.unique(shares, axis=0, return_inverse=True)
            classes = [parts.setdefault(Fraction(*pair), len(parts)) for pair in distinct.tolist()]
            order = np.argsort(source, kind="stable")
            rows = np.stack(
                [source, target, np.array(classes, np.int64)[inverse.ravel()], messages.reduce[apart]], axis=1
            )[order].astype(np.int64)
            self._round(rows, rounds.n, count, part.repeat)
            moves.append(rows)
            count += len(rows)
        if count >= 1 << lk.MOVE_BITS:
            raise InputError(
                f"a {rounds.algorithm} {rounds.operation} among {rounds.n} members has {count} messages; "
                f"expected less than {1 << lk.MOVE_BITS}: choose another algorithm, or network model analytical"
            )
        table = np.concatenate(moves) if moves else np.zeros((0, lk.MV_COLUMNS), np.int64)
        before = sum(len(part) for part in self.moves)
        self.rows += [rounds.n, len(rounds.rounds), first, count, before]
        self.moves.append(table)
        return Shape(len(self.known), table, tuple(parts))

    def _round(self, rows: Ints, members: int, count: int, repeat: int) -> None:
        """Add one round, whose messages have the numbers from `count` on in their shape."""
        base = sum(map(len, self.received))
        self.rounds += [repeat, sum(map(len, self.sends)), sum(map(len, self.receives))]
        everyone = np.arange(members + 1)
        self.sends.append(count + np.searchsorted(rows[:, lk.MV_SOURCE], everyone))
        order = np.argsort(rows[:, lk.MV_TARGET], kind="stable")
        self.receives.append(base + np.searchsorted(rows[order, lk.MV_TARGET], everyone))
        self.received.append(count + order)

    def tables(self) -> dict[str, list[int] | list[Ints]]:
        """Return the tables of the program."""
        return {
            "SHAPES": self.rows, "ROUNDS": self.rounds, "SENDS": self.sends, "RECEIVES": self.receives,
            "RECEIVED": self.received, "MOVES": [part.ravel() for part in self.moves],
        }  # fmt: skip


def sizes(parts: Sequence[Fraction], scale: Fraction, chunk: int, memory_bandwidth: float) -> list[int]:
    """Return the rows of SIZES of a phase: bytes and ticks of reduction, for chunks of one byte more and others.

    Args:
        parts: Of a shape.
        scale: Bytes that the schedule is about, per byte of the chunk.
        chunk: Bytes.
        memory_bandwidth: At which bytes are reduced, bytes/s; 0: in no time.
    """
    rows = []
    for part in parts:
        for size in (chunk + 1, chunk):
            moved = ceil(part * scale * size)
            rows += [moved, ceil(moved / memory_bandwidth * 1e9) if memory_bandwidth > 0 else 0]
    return rows
