"""How far from optimal each chunk scheduler is, for one collective of all NPUs of a machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import fsum

import numpy as np

from armillary.base.errors import InputError, nearest, one_of
from armillary.collective.chunk_order import SCHEDULABLE
from armillary.collective.chunk_order.search import least_time
from armillary.engine import simulate
from armillary.engine.common.network import CollectiveCall, Communicator
from armillary.engine.physical.chunk_routes import chunk_routes_of
from armillary.engine.physical.costs import costs_of, levels_of
from armillary.platform.collectives import CHUNK_ORDERS
from armillary.platform.model import Platform, ports
from armillary.trace import CollectiveType, GraphBuilder, Trace

SCHEDULERS = CHUNK_ORDERS.built_in
_TYPES = {
    "all-reduce": CollectiveType.ALL_REDUCE,
    "reduce-scatter": CollectiveType.REDUCE_SCATTER,
    "all-gather": CollectiveType.ALL_GATHER,
    "all-to-all": CollectiveType.ALL_TO_ALL,
}


@dataclass(frozen=True)
class Scheduled:
    """One collective under one scheduler: its ticks (ns), and the share of all ports' bandwidth that it uses."""

    time: int
    used: float


def scheduled(platform: Platform, operation: str, size: int) -> Scheduled:
    """Simulate one collective of all NPUs, alone, as `platform.collectives.chunk_order` says.

    Args:
        platform: The machine.
        operation: One of `SCHEDULABLE`.
        size: Bytes per NPU.

    Raises:
        InputError: there is no such operation, or no chunk to schedule.
    """
    # Others take the dimensions in one order, which schedulers cannot change.
    if operation not in SCHEDULABLE:
        raise InputError(
            f"operation: got {operation!r}, expected {one_of(SCHEDULABLE)}; other collectives visit the dimensions in "
            f"one order only{nearest(operation, SCHEDULABLE)}"
        )
    if platform.npus < 2:
        raise InputError("a machine of one NPU has no collectives; expected 2 or more")
    graph = GraphBuilder()
    graph.collective(operation, _TYPES[operation], size)
    timeline = simulate(Trace.replicate(graph.graph(), platform.npus), platform)
    # Class 0 stands for all ranks: they do the same.
    sent = int(timeline.phase_bytes[timeline.phase_class == 0].sum())
    # A duplex port is as good as its slower direction.
    rate = fsum(min(port.out, port.into) for port in ports(platform))
    return Scheduled(timeline.total_ticks, sent / (timeline.total_ticks * rate))


def under(platform: Platform, how: str) -> Platform:
    """Return the machine with another scheduler."""
    return replace(platform, collectives=replace(platform.collectives, chunk_order=how))


def bound(platform: Platform, operation: str, size: int) -> float:
    """Return what no plan beats, ns: see `least_time`."""
    costs = costs_of(*_all(platform, operation, size), platform)
    return least_time(operation, levels_of(costs, size, platform.collectives.chunks), size)


def orders(platform: Platform, operation: str, size: int) -> list[tuple[str, int, int]]:
    """Return the orders that the chunks take: names of dimensions as visited, and how many chunks and bytes do so."""
    chunk_routes = chunk_routes_of(*_all(platform, operation, size), platform)
    chunks: Counter[int] = Counter()
    moved: Counter[int] = Counter()
    for each, route in chunk_routes.chunks:
        chunks[route] += 1
        moved[route] += each
    # An all-reduce visits dimensions on its way down and back: the first half and the turning point name the
    # order.
    steps = len(chunk_routes.routes[0]) // 2 + 1 if operation == "all-reduce" else None
    names = [
        " > ".join(platform.dimensions[phase.dim].name for phase in route[:steps])
        for route in chunk_routes.routes
    ]
    return [(names[route], count, moved[route]) for route, count in chunks.most_common()]


def compare(
    platform: Platform, operation: str, size: int, schedulers: Sequence[str] = SCHEDULERS
) -> dict[str, Scheduled]:
    """Return what each scheduler does with one collective of all NPUs, alone on the machine."""
    # The last one refuses the most, and soonest: try it before the others have taken their time.
    found = {how: scheduled(under(platform, how), operation, size) for how in reversed(schedulers)}
    return {how: found[how] for how in schedulers}


def _all(platform: Platform, operation: str, size: int) -> tuple[CollectiveCall, Communicator]:
    return CollectiveCall(0, operation, size, None), Communicator(0, np.arange(platform.npus), True)
