"""One collective as phases: which ring, how many bytes, which schedules, at what cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.engine.astra_sim.collective.algorithms import schedule_for
from armillary.engine.astra_sim.collective.chunk_order import (
    Collective,
    Route,
    greedy_routes,
    round_robin_orders,
)
from armillary.engine.astra_sim.collective.plan import next_size, plan
from armillary.engine.astra_sim.collective.schedule import Schedule
from armillary.engine.common.network import CollectiveCall, Communicator
from armillary.platform.collectives import Algorithm
from armillary.platform.model import Platform
from armillary.platform.profiles import astra_sim_algorithms, astra_sim_endpoint_delay
from armillary.trace.graph import LIMIT

LOCAL_ENDPOINT_NS = 10
"""Endpoint delay inside a sub-group, whatever the system file says (spec: 1(c), Endpoint)."""
MOST_CHUNKS = 1 << 22
"""More streams of one collective than this are a mistake, and do not fit into memory."""
DEFAULT_INVOLVED = 4
"""Without involved_dim a collective uses the first four dimensions."""


@dataclass(frozen=True)
class CallPhase:
    """One phase of every chunk of a call; `dim` is -1 for a ring over a list of ranks."""

    dim: int
    level: int
    operation: str
    family: str
    size: int
    schedules: tuple[Schedule, ...]
    """Clockwise and anticlockwise, or the two trees; none for a custom collective."""
    tree: bool
    endpoint: int
    uniform: bool

    @property
    def n(self) -> int:
        """Members of the phase."""
        return self.schedules[0].n


@dataclass(frozen=True)
class CallChunks:
    """The chunks of a call: a few routes through the phases, and the route of each chunk.

    Attributes:
        routes: The phases of a chunk on each route; all routes have the same number.
        count: Number of chunks, the most there may be.
        of_chunk: Route of chunk k, or of chunk k modulo its length.
        in_turn: A collective continues in `of_chunk` where the one before it stopped.
        greedy: `of_chunk` was found by `greedy_routes`: it is as long as there are chunks.
        after: The same when the work of another call is left over.
    """

    routes: tuple[tuple[CallPhase, ...], ...]
    count: int
    of_chunk: tuple[int, ...] = (0,)
    in_turn: bool = False
    greedy: bool = False
    after: Mapping[CollectiveCall, tuple[int, ...]] = field(default_factory=dict)


def chunks_of_call(
    call: CollectiveCall,
    comm: Communicator,
    platform: Platform,
    where: str,
    before: Sequence[CollectiveCall] = (),
) -> CallChunks:
    """Return the chunks of a call and their phases, as the scheduler across dimensions has them go.

    Args:
        call: The call.
        comm: Its members.
        platform: The machine.
        where: What errors call it.
        before: Calls whose work may be left over.

    Raises:
        InputError: no algorithm is configured, one that cannot run here, or too many chunks.
    """
    count, chunk = chunks(call, platform)
    if count > MOST_CHUNKS:
        raise InputError(
            f"{where} is split into {count} chunks; expected at most {MOST_CHUNKS}, that is, a smaller "
            "preferred-dataset-splits"
        )
    scheduler = platform.astra_sim.inter_dimension
    # Sub-groups, custom traces and empty collectives have one phase: there is no order to choose.
    one_way = call.custom or not comm.world or count == 0
    if scheduler == "roundRobin" and not one_way:
        listed = len(astra_sim_algorithms(platform, call.operation))
        orders = round_robin_orders(max(listed, 1), call.operation)
        ways = [phases(call, comm, platform, chunk, where, order) for order in orders]
        return CallChunks(tuple(map(tuple, ways)), count, tuple(range(len(ways))), in_turn=True)
    if not scheduler.startswith("offlineGreedy") or call.operation == "all-to-all" or one_way:
        return CallChunks((tuple(phases(call, comm, platform, chunk, where)),), count)
    # Without work left over, and after every call that may have left some.
    fresh = _greedy([call], platform)
    found = {other: _greedy([other, call], platform) for other in before}
    # Routes that occur several times, in whatever situation, share one number.
    number: dict[Route, int] = {}
    for routes in (fresh, *found.values()):
        for route in routes:
            number.setdefault(route, len(number))
    ways = [phases(call, comm, platform, route.size, where, route.order) for route in number]
    after = {other: tuple(number[route] for route in routes) for other, routes in found.items()}
    # Rooms are for the longest case.
    return CallChunks(
        tuple(map(tuple, ways)), max(len(fresh), *map(len, after.values()), 0),
        tuple(number[route] for route in fresh), greedy=True, after=after,
    )  # fmt: skip


def _greedy(calls: Sequence[CollectiveCall], platform: Platform) -> list[Route]:
    """Return the routes of the last of some calls, the first of which begins with no work left over."""
    flexible = platform.astra_sim.inter_dimension == "offlineGreedyFlex"
    collectives = []
    for call in calls:
        _, chunk = chunks(call, platform)
        size = call.size
        if call.operation != "all-gather":
            # Chunks are at least as large as there are NPUs, which may round the collective up.
            size = max(size, chunk * platform.collectives.chunks)
        collectives.append(Collective(call.operation, size, chunk, _used(call, platform)))
    sizes = tuple(d.size for d in platform.dimensions)
    bandwidths = tuple(_gigabytes(d.bandwidth) for d in platform.dimensions)
    return greedy_routes(sizes, bandwidths, collectives, flexible=flexible)


def _used(call: CollectiveCall, platform: Platform) -> tuple[bool, ...]:
    listed = len(astra_sim_algorithms(platform, call.operation))
    mask = (call.involved or (True,) * DEFAULT_INVOLVED)[:listed]
    return tuple(d.size > 1 and i < len(mask) and mask[i] for i, d in enumerate(platform.dimensions))


def _gigabytes(rate: float) -> float:
    """Return a bandwidth in bytes/ns as the file gives it: equal loads must come out equal to the last bit."""
    return float(f"{rate * 10**9 / 2**30:.12g}")


def chunks(call: CollectiveCall, platform: Platform) -> tuple[int, int]:
    """Return (number of chunks, bytes per chunk) of a call (spec: 1(c), Collective to chunks)."""
    if call.custom:
        return 1, call.size
    splits = platform.collectives.chunks
    size = call.size
    chunk = size // splits
    # ASTRA-sim splits no chunk below one byte per NPU, and enlarges the collective instead.
    if call.operation != "all-gather" and platform.npus > chunk:
        chunk = platform.npus
        size = splits * chunk
    # Less than one byte per split: a single chunk, or none at all.
    if chunk == 0:
        return (1, size) if size else (0, 0)
    return -(-size // chunk), chunk


def phases(
    call: CollectiveCall,
    comm: Communicator,
    platform: Platform,
    chunk: int,
    where: str,
    order: Sequence[int] | None = None,
) -> list[CallPhase]:
    """Return the phases of one chunk of `chunk` bytes; none if no dimension takes part.

    `order` is that of the dimensions, by default the usual one.

    Raises:
        InputError: no algorithm is configured, or one that cannot run here.
    """
    if call.custom:
        return [CallPhase(-1, 0, "custom", "all", chunk, (), False, 0, uniform=False)]
    algorithms = astra_sim_algorithms(platform, call.operation)
    if not algorithms:
        raise InputError(
            f"{where} is an {call.operation}, for which the system configuration has no algorithm"
        )
    if comm.world:
        return _world(call, platform, algorithms, chunk, where, order)
    if len(comm.members) < 2:
        return []
    # A sub-group ignores the list of algorithms per dimension: it runs its only one, or a ring.
    algorithm = algorithms[0] if len(algorithms) == 1 else Algorithm("ring")
    name = {"oneRing": "ring", "oneDirect": "direct", "oneHalvingDoubling": "halvingDoubling"}.get(
        algorithm.name, algorithm.name
    )
    pair = _schedules(name, call.operation, len(comm.members), algorithm.window, where, local=True)
    tree = name == "doubleBinaryTree"
    return [CallPhase(-1, 0, call.operation, "all", chunk, pair, tree, LOCAL_ENDPOINT_NS, uniform=False)]


def _world(
    call: CollectiveCall,
    platform: Platform,
    algorithms: Sequence[Algorithm],
    chunk: int,
    where: str,
    order: Sequence[int] | None,
) -> list[CallPhase]:
    sizes = [dimension.size for dimension in platform.dimensions]
    involved = call.involved or (True,) * DEFAULT_INVOLVED
    result = []
    size = chunk
    system, endpoint = platform.astra_sim, astra_sim_endpoint_delay(platform)
    for phase in plan(
        call.operation, algorithms, sizes, system.collective_optimization, involved, order,
        turn_around=system.inter_dimension in ("ascending", "roundRobin"),
    ):  # fmt: skip
        pair = _schedules(phase.algorithm, phase.operation, phase.size, phase.window, where)
        tree = phase.algorithm == "doubleBinaryTree"
        # On a single dimension, or along one, every member sees the same hops to its relative peers.
        uniform = phase.dim >= 0 or len(sizes) == 1
        result.append(
            CallPhase(
                phase.dim, phase.level, phase.operation, phase.family, size, pair, tree, endpoint, uniform
            )
        )
        # The next dimension gets what this one leaves.
        size = next_size(phase.operation, size, phase.size, phase.algorithm)
        if size >= LIMIT:
            raise InputError(f"{where} gathers {size} bytes; expected less than {LIMIT}")
    return result


def _schedules(
    name: str, operation: str, n: int, window: int | None, where: str, *, local: bool = False
) -> tuple[Schedule, Schedule]:
    """The clockwise and anticlockwise variants, or the two trees."""
    try:
        if name == "doubleBinaryTree":
            return schedule_for(name, operation, n, index=0), schedule_for(name, operation, n, index=1)
        forward = schedule_for(name, operation, n, window=window, local=local)
        return forward, schedule_for(name, operation, n, window=window, local=local, reverse=True)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error


def line(platform: Platform, phase: CallPhase, comm: Communicator, rank: int) -> NDArray[np.int64]:
    """Return the members of the ring of `phase` that `rank` belongs to, by position."""
    if phase.dim < 0:
        return comm.members
    stride = 1
    for dimension in platform.dimensions[: phase.dim]:
        stride *= dimension.size
    n = platform.dimensions[phase.dim].size
    # Members differ in the coordinate along `dim` only.
    return rank - (rank // stride % n) * stride + np.arange(n) * stride
