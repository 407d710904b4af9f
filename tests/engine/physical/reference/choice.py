"""Collectives in flight in the reference, and the choice of the next level of a chunk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from armillary.engine.common.network import CollectiveCall, Communicators
from armillary.engine.physical.chunk_routes import ChunkRoutes
from armillary.engine.physical.phases import PhysicalPhase
from tests.engine.physical.reference.flows import ChunkFlow
from tests.engine.physical.reference.nodes import Node


@dataclass(eq=False)
class Instance:
    """One collective in flight: the nodes that have joined and who has come to which phase."""

    call: CollectiveCall
    chunk_routes: ChunkRoutes
    nodes: dict[int, Node] = field(default_factory=dict)
    chunk_flows: dict[tuple[int, tuple[int, ...], tuple[tuple[int, int], ...], bool], ChunkFlow] = field(
        default_factory=dict
    )
    came: dict[tuple[int, int, tuple[int, ...]], int] = field(default_factory=dict)
    left: dict[int, int] = field(default_factory=dict)
    way: dict[int, list[int]] = field(default_factory=dict)
    """Of a chunk that chooses its levels: the dimensions so far."""
    sent: dict[tuple[int, tuple[int, ...]], int] = field(default_factory=dict)
    """Dimension and line -> ticks of all that was sent there and is not through."""

    def phase(self, chunk: int, p: int) -> PhysicalPhase:
        """Return a phase of a chunk."""
        return self.routes(chunk)[0][p]

    def routes(self, chunk: int) -> list[tuple[PhysicalPhase, ...]]:
        """Return the ways that a chunk may still take."""
        if not self.chunk_routes.choices:
            return [self.chunk_routes.routes[self.chunk_routes.chunks[chunk][1]]]
        so_far = self.way.get(chunk, [])
        return [way for way in self.chunk_routes.routes if [p.dim for p in way[: len(so_far)]] == so_far]


class Choices:
    """The members that wait for a level to be chosen; it is told of lines and of ticks at full rate."""

    def __init__(
        self,
        comms: Communicators,
        line: Callable[[int, int, int], tuple[int, ...]],
        took: Callable[[PhysicalPhase, int], int],
    ) -> None:
        self.comms, self.line, self.took = comms, line, took
        self.asking: list[tuple[Instance, int, int, int]] = []
        """Instance, chunk, phase and rank of those that wait."""

    def choose(self) -> list[tuple[Instance, int, int, int]]:
        """Choose the least loaded level for chunks that are asked for, the lowest first; returns who waited."""
        asking, self.asking = self.asking, []
        for instance, chunk, p, _ in sorted(asking, key=lambda each: each[1]):
            if len(instance.way.get(chunk, [])) > p:
                continue  # another member has asked as well
            best: list[Any] = []
            for phase in dict.fromkeys(way[p] for way in instance.routes(chunk)):
                lines = {
                    self.line(instance.call.comm, rank, phase.dim)
                    for rank in self.comms.get(instance.call.comm).members.tolist()
                }
                load = max(instance.sent.get((phase.dim, line), 0) for line in lines)
                if not best or load < best[0]:
                    best = [load, phase, lines]
            _, phase, lines = best
            instance.way[chunk] = [*instance.way.get(chunk, []), phase.dim]
            for line in lines:
                self.count(instance, line, chunk, p, 1)
        return asking

    def must_ask(self, instance: Instance, rank: int, chunk: int, p: int) -> bool:
        """Tell whether the level of a phase is still to be chosen; if so the rank waits for that."""
        if p >= instance.chunk_routes.choices - 1 or len(instance.way.get(chunk, [])) > p:
            return False
        self.asking.append((instance, chunk, p, rank))
        return True

    def count(self, instance: Instance, line: tuple[int, ...], chunk: int, p: int, sign: int) -> None:
        """Count what a chunk has to move on a line as sent there, or as through."""
        phase = instance.phase(chunk, p)
        where = (phase.dim, line)
        took = self.took(phase, instance.chunk_routes.chunks[chunk][0])
        instance.sent[where] = instance.sent.get(where, 0) + sign * took
