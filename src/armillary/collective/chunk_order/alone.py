"""When a collective ends that has a machine for itself and whose members all start at once."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import numpy as np

from armillary.collective.chunk_order.levels import Level, Order, course
from armillary.jit import Mode, load

WITHIN = ("earliest-phase", "fifo", "smallest-first")
"""Which chunk a port serves first, in the order of the numbers of `lanes_kernel`."""
BYTE = 1 << 20
"""Parts of a byte-time in which volumes are compared."""


class Alone:
    """Times plans of one collective, to within the rounding of each phase to ns."""

    def __init__(
        self, operation: str, levels: Sequence[Level], within: str, mode: Mode = "interpreted"
    ) -> None:
        self.operation, self.levels, self.mode = operation, levels, mode
        self.within = WITHIN.index(within)
        self.steps = len(course(operation, levels, tuple(range(len(levels)))))
        self.kernel = load("armillary.collective.chunk_order.lanes_kernel", mode)
        self._ways: dict[tuple[int, Order], list[int]] = {}

    def time(self, chunks: Sequence[tuple[int, Order]]) -> int:
        """Return when the last of these chunks is through, ns."""
        ways = {chunk: self._way(chunk) for chunk in chunks}
        place = {chunk: i * self.steps for i, chunk in enumerate(ways)}
        phases = [number for way in ways.values() for number in way]
        given = [phases, [place[chunk] for chunk in chunks]]
        rooms = [[0] * n for n in (len(self.levels), len(chunks), len(chunks), len(chunks))]
        if self.mode == "compiled":
            arrays = [np.array(column, np.int64) for column in (*given, *rooms)]
            return int(self.kernel.finish(*arrays[:2], self.steps, self.within, *arrays[2:]))
        return int(self.kernel.finish(*given, self.steps, self.within, *rooms))

    def _way(self, chunk: tuple[int, Order]) -> list[int]:
        if chunk not in self._ways:
            size, order = chunk
            self._ways[chunk] = [
                number
                for step in course(self.operation, self.levels, order)
                for number in (
                    step.level, ceil(step.latency), ceil(step.moving * size), int(step.moving * size * BYTE),
                )
            ]  # fmt: skip
        return self._ways[chunk]
