"""The orders that `online-greedy` chooses for a collective that is alone: a simulation in plain Python.

The rules are those of `engine.physical.progress_kernel` and `chunk_flows_kernel`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from armillary.collective.chunk_order import WITHIN, Order, plain_order
from armillary.collective.chunk_order.alone import ROW, Problem, Rows
from armillary.collective.chunk_order.greedy import Chunks


@dataclass
class _Chunk:
    number: int
    size: int
    order: Order = ()
    step: int = 0
    came: int = 0
    rows: tuple[tuple[int, ...], ...] = ()

    @property
    def row(self) -> tuple[int, ...]:
        return self.rows[self.step]


def foreseen(problem: Problem) -> Chunks:
    """Return what `online_greedy` does; a run chooses while other collectives load the levels, too."""
    levels = len(problem.levels)
    return online_greedy(problem.operation, levels, problem.sizes, problem.within, problem.costs)


def online_greedy(operation: str, levels: int, sizes: Sequence[int], within: str, costs: Rows) -> Chunks:
    """Return the chunks with the orders that they would choose during the run."""
    chunks = [_Chunk(number, size) for number, size in enumerate(sizes)]
    plain, policy = plain_order(operation, levels), WITHIN.index(within)
    load = [0] * levels
    serving: dict[int, tuple[int, _Chunk]] = {}
    flying: list[tuple[int, int]] = []
    waiting: list[list[tuple[int, int, int]]] = [[] for _ in range(levels)]
    arriving, tick = chunks, 0

    def rows(chunk: _Chunk, way: Order) -> tuple[tuple[int, ...], ...]:
        flat = costs.rows(chunk.size, way)
        return tuple(tuple(flat[i : i + ROW]) for i in range(0, len(flat), ROW))

    def place(chunk: _Chunk) -> tuple[int, int, int]:
        # As the ports of the kernel: policy, then phase, then chunk.
        return ((0, chunk.came, chunk.row[3])[policy], chunk.step, chunk.number)

    while True:
        # Chunks whose order is complete load their next level before others choose.
        for chunk in arriving:
            if chunk.step >= levels - 1:
                load[chunk.row[0]] += chunk.row[2]
        # Choices within a tick are made in the order of chunks: the result does not depend on the order of
        # events.
        for chunk in sorted(arriving, key=lambda c: c.number):
            chunk.came = tick
            if len(chunk.order) < levels - 1:
                left = [at for at in plain if at not in chunk.order]
                # `plain` breaks ties: the first of the least loaded levels in the plain order.
                level = min(left, key=lambda at: load[at])
                # The rest of the order is a placeholder that only costs are computed with.
                rest = tuple(at for at in left if at != level)
                chunk.rows = rows(chunk, (*chunk.order, level, *rest))
                # A single level that is left needs no choice.
                chunk.order += (level,) if len(rest) > 1 else (level, *rest)
                load[level] += chunk.row[2]
        for chunk in arriving:
            heappush(waiting[chunk.row[0]], place(chunk))
        for level in range(levels):
            if waiting[level] and level not in serving:
                first = chunks[heappop(waiting[level])[-1]]
                serving[level] = (tick + first.row[2], first)
        if not serving and not flying:
            return [(chunk.size, chunk.order) for chunk in chunks]
        # `flying` is a heap, so its first ends first.
        tick = min([until for until, _ in serving.values()] + [until for until, _ in flying[:1]])
        for level, (until, chunk) in list(serving.items()):
            if until == tick:
                del serving[level]
                # The level's load falls when the port is done, before the latency.
                load[level] -= chunk.row[2]
                heappush(flying, (tick + chunk.row[1], chunk.number))
        arriving = []
        while flying and flying[0][0] == tick:
            chunk = chunks[heappop(flying)[1]]
            chunk.step += 1
            if chunk.step < len(chunk.rows):
                arriving.append(chunk)
