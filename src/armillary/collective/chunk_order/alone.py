"""The time of a collective that runs alone on a machine and whose members start together."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from armillary.base.jit import Mode, load
from armillary.collective.chunk_order import WITHIN, Level, Order

ROW = 4
"""Numbers of a phase: its level, ns besides, ns at the port, and volume, by which chunks are compared."""


class Rows(Hashable, Protocol):
    """Costs of the phases of a chunk on a machine."""

    def rows(self, size: int, order: Order) -> list[int]:
        """Return `ROW` numbers for every phase of a chunk of `size` bytes, one after the other."""
        ...


MANY = 256
"""Chunks that are worth a compiled kernel for two plans."""


@dataclass(frozen=True)
class Problem:
    """One collective whose chunks are to be planned.

    Attributes:
        operation: One of `chunk_order.SCHEDULABLE`.
        levels: The dimensions that it spans, innermost first.
        sizes: Bytes of the plain chunks.
        within: Which chunk a port serves first, one of `WITHIN`.
        costs: How long phases of chunks take.
    """

    operation: str
    levels: tuple[Level, ...]
    sizes: tuple[int, ...]
    within: str
    costs: Rows

    def time(self, chunks: Sequence[tuple[int, Order]]) -> int:
        """Return when the last of some chunks is done, ns, alone on the machine; quadratic in the chunks."""
        return self._alone.time(chunks)

    @cached_property
    def _alone(self) -> Alone:
        # Loading the compiled kernel costs more than a few small plans.
        mode: Mode = "compiled" if len(self.sizes) > MANY else "interpreted"
        return Alone(len(self.levels), self.within, self.costs, mode)


class Alone:
    """Times plans of one collective over some levels."""

    def __init__(self, levels: int, within: str, costs: Rows, mode: Mode = "interpreted") -> None:
        self.levels, self.costs, self.mode = levels, costs, mode
        self.within = WITHIN.index(within)
        self.kernel = load("armillary.collective.chunk_order.chunk_flows_kernel", mode)
        self._ways: dict[tuple[int, Order], list[int]] = {}

    def time(self, chunks: Sequence[tuple[int, Order]]) -> int:
        """Return when the last of these chunks is done, ns."""
        ways = {chunk: self._way(chunk) for chunk in chunks}
        # All orders have the same number of phases.
        steps = len(self._way(chunks[0])) // ROW
        place = {chunk: i * steps for i, chunk in enumerate(ways)}
        phases = [number for way in ways.values() for number in way]
        given = [phases, [place[chunk] for chunk in chunks]]
        # Room of the kernel: busy per port; stage, step and until per chunk.
        rooms = [[0] * n for n in (self.levels, len(chunks), len(chunks), len(chunks))]
        if self.mode == "compiled":
            arrays = [np.array(column, np.int64) for column in (*given, *rooms)]
            return int(self.kernel.finish(*arrays[:2], steps, self.within, *arrays[2:]))
        return int(self.kernel.finish(*given, steps, self.within, *rooms))

    def _way(self, chunk: tuple[int, Order]) -> list[int]:
        if chunk not in self._ways:
            self._ways[chunk] = self.costs.rows(*chunk)
        return self._ways[chunk]
