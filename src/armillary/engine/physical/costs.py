"""What chunk schedulers know about a machine: dimensions as levels, and the cost of each phase of a chunk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import ceil

from armillary.collective.chunk_order import Level, Order
from armillary.collective.demand import plain
from armillary.collective.rounds import plain_sizes
from armillary.engine.common.network import CollectiveCall, Communicator, Scale, bits
from armillary.engine.physical.phases import PhysicalPhase, Span, latency_ticks, phase_of, spanned_by, visits
from armillary.platform.model import Platform
from armillary.platform.network import port

Cost = tuple[str, Fraction, PhysicalPhase]
"""An operation on a level, its bytes per byte of the chunk, and the phase that carries it out."""


@dataclass(frozen=True)
class Costs:
    """Every phase that any order of the levels may need, counted as `lower` counts them.

    It is equal for groups of other ranks to which the same costs apply, so that these share plans.

    Attributes:
        operation: Of the collective.
        spans: The levels, without the positions of members.
        costs: Of each level.
        bandwidths: Of the port of each level, bytes/ns.
        scale: In which volumes are counted.
        memory: Bandwidth of reductions, bytes/s; 0: they take no time.
    """

    operation: str
    spans: tuple[Span, ...]
    costs: tuple[tuple[Cost, ...], ...]
    bandwidths: tuple[float, ...]
    scale: Scale
    memory: float

    @cached_property
    def _phase(self) -> dict[tuple[int, str, Fraction], PhysicalPhase]:
        return {
            (span.dim, step, scale): phase
            for span, costs in zip(self.spans, self.costs, strict=True)
            for step, scale, phase in costs
        }

    @cached_property
    def _rates(self) -> list[int]:
        """Units in a ns through the port of each level."""
        return [max(1, self.scale.rate(way)) for way in self.bandwidths]

    @cached_property
    def _ways(self) -> dict[Order, list[tuple[int, PhysicalPhase]]]:
        return {}

    def rows(self, size: int, order: Order) -> list[int]:
        """Return the rows of `chunk_flows_kernel` of a chunk, one after the other."""
        if order not in self._ways:
            at = {span.dim: number for number, span in enumerate(self.spans)}
            self._ways[order] = [
                (at[span.dim], self._phase[span.dim, step, scale])
                for span, step, scale in visits(self.operation, [self.spans[level] for level in order])
            ]
        result = []
        for level, phase in self._ways[order]:
            volume = self.scale.volume(phase.volume * size)
            result += [
                level,
                latency_ticks(phase, size, self.memory),
                -(-volume // self._rates[level]),
                volume,
            ]
        return result


def costs_of(call: CollectiveCall, comm: Communicator, platform: Platform) -> Costs:
    """Return what phases of a call cost in any order of the dimensions that it spans."""
    operation = plain(call.operation)
    # A phase of a level depends on the order of levels only by the bytes that reach it: so all scales that
    # may occur.
    found = spanned_by(call, comm, platform) or []
    costs = tuple(
        tuple(
            (step, scale, replace(phase_of(call, platform, span, step, scale), positions=()))
            for step, scale in _scales(operation, span, [other for other in found if other is not span])
        )
        for span in found
    )
    largest = max((ceil(c.volume * (call.size + 1)) for level in costs for _, _, c in level), default=1)
    scale = Scale(1 << bits(max(largest, 1)))
    bandwidths = tuple(port(platform.dimensions[span.dim]).slower for span in found)
    # The bytes of the members are in the costs; what is left to know of a level is how many they are.
    spans = tuple(Span(span.dim, tuple(range(len(span.positions)))) for span in found)
    return Costs(operation, spans, costs, bandwidths, scale, platform.npu.memory.bytes_per_s)


def _scales(operation: str, span: Span, others: Sequence[Span]) -> list[tuple[str, Fraction]]:
    """Return the operations that may run on a level, each with its bytes per byte of the chunk."""
    n = len(span.positions)
    scales = {Fraction(1)}
    # A reduce-scatter on another level divides what is left, an all-gather multiplies it, an all-to-all
    # leaves it. Each other level was visited before or not: subset products.
    for other in others if operation != "all-to-all" else ():
        size = len(other.positions)
        scales |= {scale * size if operation == "all-gather" else scale / size for scale in scales}
    ordered = sorted(scales, reverse=operation != "all-gather")
    if operation != "all-reduce":
        return [(operation, scale) for scale in ordered]
    steps = [("reduce-scatter", scale) for scale in ordered] + [
        ("all-gather", scale / n) for scale in ordered
    ]
    return [*steps, ("all-reduce", ordered[-1])]


def levels_of(costs: Costs, size: int, chunks: int) -> list[Level]:
    """Return the dimensions of a collective of `size` bytes as a scheduler sees them, innermost first."""
    chunk = plain_sizes(size, chunks)[-1]
    each = "reduce-scatter" if costs.operation == "all-reduce" else costs.operation
    levels = []
    for span, rate, known in zip(costs.spans, costs.bandwidths, costs.costs, strict=True):
        there = [(scale, phase) for name, scale, phase in known if name == each]
        turn = [(scale, phase) for name, scale, phase in known if name == "all-reduce"]
        latency = latency_ticks(there[0][1], chunk, costs.memory)
        moving, turning = (
            float(min((phase.volume / scale for scale, phase in some), default=Fraction(0))) / rate
            for some in (there, turn)
        )
        least, turn_least = (min((ceil(p.latency) for _, p in some), default=0) for some in (there, turn))
        levels.append(Level(len(span.positions), moving, latency, turning, least, turn_least))
    return levels
