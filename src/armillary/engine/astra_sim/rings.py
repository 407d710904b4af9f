"""Rings of the simulated classes: the quotient of the real rings by the fold."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from armillary.engine.astra_sim import layout as lk
from armillary.engine.astra_sim.phases import CallPhase
from armillary.engine.astra_sim.phases import line as line_of
from armillary.engine.common.network import QuotientComm
from armillary.platform.model import Platform

Ints = NDArray[np.int64]


@dataclass
class Ring:
    """The lines of one communicator along one dimension (-1: its whole list of ranks)."""

    entry: int
    """Offset in `ring_entry` of its first (line, member state) pair, one pair per local class."""
    first_line: int
    n_lines: int


@dataclass
class Rings:
    """All rings of a program as the arrays that `step_kernel` reads."""

    platform: Platform
    classes: Ints
    """Class of every rank."""
    representatives: Ints
    ring_entry: list[int] = field(default_factory=list)
    line_rows: list[int] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    _rings: dict[tuple[int, int], Ring] = field(default_factory=dict)

    def ring(self, comm: QuotientComm, phase: CallPhase) -> Ring:
        """Return the ring of `phase`, building it on first use."""
        key = (comm.number, phase.dim)
        if key not in self._rings:
            self._rings[key] = self._build(comm, phase)
        return self._rings[key]

    def _build(self, comm: QuotientComm, phase: CallPhase) -> Ring:
        entry = len(self.ring_entry) // 2
        first = len(self.line_rows) // lk.LN_COLUMNS
        place: dict[int, tuple[int, int]] = {}
        for cls in comm.local:
            # Another class of the same line may have been placed with it.
            if cls not in place:
                ranks = line_of(self.platform, phase, comm.real, int(self.representatives[cls]))
                self._line(comm, self.classes[ranks].tolist(), place)
        for cls in comm.local:
            self.ring_entry += place[cls]
        return Ring(entry, first, len(self.line_rows) // lk.LN_COLUMNS - first)

    def _line(self, comm: QuotientComm, classes: list[int], place: dict[int, tuple[int, int]]) -> None:
        number = len(self.line_rows) // lk.LN_COLUMNS
        member_state: dict[int, int] = {}
        positions = []
        for position, cls in enumerate(classes):
            # The first position of a class on a line stands for all its members there.
            if cls not in member_state:
                member_state[cls] = len(member_state)
                positions.append(position)
                place[cls] = (number, member_state[cls])
        index = len(self.lines)
        self.lines += [member_state[cls] for cls in classes]
        local = len(self.lines)
        self.lines += [comm.local[cls] for cls in member_state]
        position_at = len(self.lines)
        self.lines += positions
        rank_at = len(self.lines)
        self.lines += list(member_state)
        self.line_rows += [len(classes), len(member_state), index, local, position_at, rank_at]
