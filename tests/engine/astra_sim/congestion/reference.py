"""Point-to-point messages over links, simulated in the obvious way: an event is a function in the list of its tick."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from functools import partial

from armillary.platform.links import link_blocks, route
from armillary.platform.network import Dimension

Do = Callable[[], None]
Step = tuple[int, int, int]
"""Compute for some us, then send to a rank some bytes."""


class Reference:
    """Ranks that compute and send in turn, and work on their CPU meanwhile; every receive is posted at tick 0."""

    def __init__(
        self, dimensions: tuple[Dimension, ...], steps: list[list[Step]], work: list[list[int]] | None = None
    ) -> None:
        self.dimensions, self.steps = dimensions, steps
        self.work = work or [[] for _ in steps]
        self.blocks = link_blocks(dimensions)
        self.now = 0
        self.lists: dict[int, deque[Do]] = defaultdict(deque)
        self.batches: dict[tuple[int, int], deque[Do]] = {}
        self.busy: set[int] = set()
        self.waiting: dict[int, deque[Do]] = defaultdict(deque)
        self.sent = [[0] * len(own) for own in steps]
        """Tick at which each message of each rank is at its destination."""

    def run(self) -> list[list[int]]:
        """Return `sent`."""
        for rank in range(len(self.steps)):
            self.compute(rank, 0)
            self.use_cpu(rank, 0)
        while self.lists:
            self.now = min(self.lists)
            while self.lists[self.now]:
                self.lists[self.now].popleft()()
            del self.lists[self.now]
        return self.sent

    def on_rank(self, rank: int, tick: int, do: Do) -> None:
        if (rank, tick) not in self.batches:
            self.batches[rank, tick] = deque()
            self.lists[tick].append(partial(self.run_batch, rank, tick))
        self.batches[rank, tick].append(do)

    def run_batch(self, rank: int, tick: int) -> None:
        while self.batches[rank, tick]:
            self.batches[rank, tick].popleft()()
        del self.batches[rank, tick]

    def compute(self, rank: int, step: int) -> None:
        if step < len(self.steps[rank]):
            ticks = max(1000 * self.steps[rank][step][0], 1)
            self.on_rank(rank, self.now + ticks, partial(self.send, rank, step))

    def use_cpu(self, rank: int, step: int) -> None:
        if step < len(self.work[rank]):
            ticks = max(1000 * self.work[rank][step], 1)
            self.on_rank(rank, self.now + ticks, partial(self.use_cpu, rank, step + 1))

    def send(self, rank: int, step: int) -> None:
        _, to, size = self.steps[rank][step]
        self.hop(rank, step, route(self.blocks, rank, to), size)

    def hop(self, rank: int, step: int, links: list[int], size: int) -> None:
        if not links:
            self.sent[rank][step] = self.now
            self.compute(rank, step + 1)
        elif links[0] in self.busy:
            self.waiting[links[0]].append(partial(self.cross, rank, step, links, size))
        else:
            self.cross(rank, step, links, size)

    def cross(self, rank: int, step: int, links: list[int], size: int) -> None:
        self.busy.add(links[0])
        edge = next(b.dimension for b in self.blocks if b.first <= links[0] < b.first + b.count)
        arrival = self.now + int(edge.latency + size / edge.bandwidth)
        self.lists[arrival].append(partial(self.hop, rank, step, links[1:], size))
        self.lists[self.now + int(size / edge.bandwidth)].append(partial(self.free, links[0]))

    def free(self, link: int) -> None:
        self.busy.remove(link)
        if self.waiting[link]:
            self.waiting[link].popleft()()
