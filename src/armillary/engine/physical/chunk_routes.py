"""The chunks of a collective of profile `physical`: the size of each, and the phases of its route.

A collective over a grid of dimensions has one or more chunk routes. Each is a dimension order and so a list
of phases, and every chunk has bytes and a route. Chunks of different routes use the same chunk flows, so
sharing needs no rule for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import permutations
from math import ceil, factorial, prod

from armillary.base.errors import InputError
from armillary.collective.chunk_order import SCHEDULABLE, plain_order
from armillary.collective.demand import plain
from armillary.collective.rounds import plain_sizes
from armillary.engine.common.items import MEMORY_OPERATIONS
from armillary.engine.common.network import CollectiveCall, Communicator, between
from armillary.engine.physical.phases import Beside, PhysicalPhase, Span, in_memory, phases, spanned_by
from armillary.platform.model import Platform
from armillary.trace.node import WHOLE_PACE

MOST_IN_FLIGHT = 256
"""Chunks of a collective that are in flight at a time on a line, at most. With 32, one in 64 small chunks paid its
latencies twice: 128 KiB on 256 NPUs of a 10 GB/s switch took 324 us, not 167."""
MOST_ROUTES = 720
"""Orders of levels, at most, where chunks choose their route while they run."""


@dataclass(frozen=True)
class ChunkRoutes:
    """What the chunks of a call do.

    Every route has the same number of phases. With `choices`, the number of levels, the routes are all orders of these,
    in lexicographic order beginning with the plain one, and each chunk takes its route level by level.
    """

    routes: tuple[tuple[PhysicalPhase, ...], ...]
    chunks: tuple[tuple[int, int], ...]
    """Bytes and route of every chunk."""
    choices: int = 0

    @cached_property
    def _hash(self) -> int:
        return hash((self.routes, self.chunks, self.choices))

    def __hash__(self) -> int:
        # Many chunks of phases in exact fractions, compared for every group.
        return self._hash

    @property
    def phases(self) -> list[PhysicalPhase]:
        """All phases of all routes."""
        return [phase for route in self.routes for phase in route]

    @property
    def dims(self) -> list[int]:
        """Dimensions along which members meet; -1: all at once, as where all follow one choice."""
        return [phase.dim for phase in self.phases] + [-1] * (self.choices > 0) or [-1]

    @cached_property
    def distinct(self) -> dict[tuple[int, int], Sequence[int]]:
        """The bytes and routes of chunks that differ, with the routes that each may take."""
        every = range(len(self.routes))
        return {chunk: every if self.choices else chunk[1:] for chunk in self.chunks}

    @property
    def crosses_host(self) -> bool:
        """Whether a phase crosses the hosts of nodes."""
        return any(phase.host for phase in self.phases)

    @cached_property
    def stripped(self) -> ChunkRoutes:
        """It without the positions of the members, for comparison."""
        routes = tuple(tuple(replace(phase, positions=()) for phase in route) for route in self.routes)
        return replace(self, routes=routes)

    def at(self, positions: Sequence[tuple[int, ...]]) -> ChunkRoutes:
        """Return it for members at other positions in each dimension, which must cost the same."""
        # A fitted collective is one phase of all members, wherever they are.
        routes = tuple(
            tuple(phase if phase.dim < 0 else phase.at(positions[phase.dim]) for phase in route)
            for route in self.routes
        )
        found = ChunkRoutes(routes, self.chunks, self.choices)
        vars(found).update(stripped=self.stripped, distinct=self.distinct)
        return found


def last_latency(chunk_routes: ChunkRoutes, ticks: Callable[[PhysicalPhase, int], int]) -> int | None:
    """Return the ticks that the last of many chunks takes after its volume, without its reduction; None: as each does.

    Where a collective is one phase of chunks that follow each other, the rounds of one chunk hide the latencies of
    others. The last chunk ends at the latest of three times: when the fullest link or port has carried all chunks and
    the rounds before and after are over; when the last has followed the first at the pace of the fullest round; when
    all have had their turn, with at most `MOST_IN_FLIGHT` in flight.

    Args:
        chunk_routes: Of a call.
        ticks: Returns how long a phase keeps its ports busy with a chunk of so many bytes.
    """
    # First of all: asked for each of up to 40,320 routes.
    if len(chunk_routes.chunks) < 2 or len(chunk_routes.routes) != 1 or len(chunk_routes.routes[0]) != 1:
        return None
    sizes = [size for size, _ in chunk_routes.chunks]
    phase = chunk_routes.routes[0][0]
    if phase.beside is None:
        return None
    most, times = max(sizes), Counter(sizes)
    busy = {size: ticks(phase, size) for size in times}
    total = sum(busy[size] * count for size, count in times.items())
    # Times are in ns: ports busy, then latency, then what the chunk waits in rounds where others are busier.
    alone = busy[most] + phase.latency + phase.wait * most
    # A pipeline: each further chunk ends at least one step of the fullest round after the one before.
    behind = (len(sizes) - 1) * phase.beside.step * most
    # With more chunks than may be in flight, they go in waves.
    turns = alone * -(-len(sizes) // MOST_IN_FLIGHT)
    return max(
        ceil(max(alone + behind, turns)) - total, ceil(phase.beside.latency + phase.beside.wait * most)
    )


def place_of(call: CollectiveCall, comm: Communicator, platform: Platform) -> tuple[int, ...] | None:
    """Return what the chunk routes of a call depend on of its members: how many places they take in each dimension.

    None: where these are, or what their node is, may matter, too. Behind a switch every place is like every other. A
    fit is by the members in a node and the nodes, which follow; which NICs they are near to does not.
    """
    fit = platform.collectives.fit
    if call.splits or call.operation in MEMORY_OPERATIONS or (fit and fit.host):
        return None
    places = tuple(map(len, comm.positions(platform.dimensions)))
    if prod(places) != len(comm.members) or len(comm.members) < 2:
        return None
    behind = all(
        dimension.topology == "Switch"
        for dimension, count in zip(platform.dimensions, places, strict=True)
        if count > 1
    )
    return places if behind else None


def chunk_routes_of(call: CollectiveCall, comm: Communicator, platform: Platform) -> ChunkRoutes:
    """Return what the chunks of a call do on a machine.

    Raises:
        InputError: an algorithm cannot do it, or there are too many orders to choose from; or the fit that the machine
            names cannot be read.
    """
    if call.operation in MEMORY_OPERATIONS:
        return ChunkRoutes(
            ((in_memory(call, platform),),), ((call.size, 0),)
        )  # a memory has chunks of its own
    whole = None
    if platform.collectives.fit:
        from armillary.engine.physical.fitted import fitted_phase

        whole = fitted_phase(call, comm, platform, lambda: phases(call, comm, platform))
    chunk_routes = ChunkRoutes(((whole,),), ((call.size, 0),)) if whole else _scheduled(call, comm, platform)
    if call.pace:
        return _paced(chunk_routes, Fraction(WHOLE_PACE, call.pace))
    return _slowed(chunk_routes, platform) if platform.terms.slows_communication else chunk_routes


def _paced(chunk_routes: ChunkRoutes, longer: Fraction) -> ChunkRoutes:
    """Return chunk routes whose phases keep their ports busy for longer: a kernel sends slower than links carry.

    Terms are those of a library, whose kernels and buffers are its own.
    """
    routes = tuple(
        tuple(replace(phase, volume=phase.volume * longer) for phase in route)
        for route in chunk_routes.routes
    )
    return replace(chunk_routes, routes=routes)


def _slowed(chunk_routes: ChunkRoutes, platform: Platform) -> ChunkRoutes:
    """Return chunk routes whose phases take longer by the shares of `Terms`, inside a node and between nodes."""

    def slower(phase: PhysicalPhase) -> PhysicalPhase:
        dims = [dim for dim, _ in phase.ports] or [phase.dim]
        more = 1 + Fraction(platform.terms.communication_share(between(platform, dims)))
        return replace(
            phase,
            latency=phase.latency * float(more),
            volume=phase.volume * more,
            wait=phase.wait * float(more),
            beside=phase.beside and Beside(*(ns * float(more) for ns in astuple(phase.beside))),
        )

    routes = tuple(tuple(map(slower, route)) for route in chunk_routes.routes)
    return replace(chunk_routes, routes=routes)


def _scheduled(call: CollectiveCall, comm: Communicator, platform: Platform) -> ChunkRoutes:
    collectives, operation = platform.collectives, plain(call.operation)
    how, found = collectives.chunk_order, spanned_by(call, comm, platform) or []
    if how == "online-greedy" and operation == "all-gather":
        # Its last level has the most to move; how loaded that will be, nothing says when the first is chosen.
        how = "baseline"
    if how == "baseline" or call.splits or operation not in SCHEDULABLE or len(found) < 2:
        return plain_chunk_routes(phases(call, comm, platform), call.size, platform)
    choices = 0
    if how == "online-greedy":
        choices = len(found)
        if factorial(choices) > MOST_ROUTES:
            raise InputError(
                f"{platform.source or 'platform'}: collectives: chunk_order: online-greedy over {choices} "
                "dimensions; expected at most 6, or another order, e.g. themis"
            )
        # All orders are lowered in advance, because a kernel cannot; 6 levels make 720.
        orders = list(permutations(plain_order(operation, choices)))
        chosen = [(size, orders[0]) for size in plain_sizes(call.size, collectives.chunks)]
    else:
        from armillary.collective.chunk_order.choose import MOST, chunks_for
        from armillary.engine.physical.costs import costs_of, levels_of

        if how in ("auto", "optimal") and min(collectives.chunks, call.size) > MOST:
            raise InputError(
                f"{platform.source or 'platform'}: collectives: chunks: got {collectives.chunks}, expected at most "
                f"{MOST} with chunk_order {how}, or another order, e.g. themis"
            )
        costs = costs_of(call, comm, platform)
        levels = levels_of(costs, call.size, collectives.chunks)
        chosen = chunks_for(
            how, collectives.within_dimension, operation, levels, call.size, collectives.chunks, costs
        )
        # Only the orders that some chunk takes, in order of first use.
        orders = list(dict.fromkeys(order for _, order in chosen))
    number = {order: i for i, order in enumerate(orders)}
    # Of eight levels there are 40,320 orders, whose phases are those of a level behind some others: a few thousand.
    known: dict[tuple[Span, str, Fraction], PhysicalPhase] = {}
    routes = tuple(
        tuple(phases(call, comm, platform, [found[at] for at in order], known)) for order in orders
    )
    return ChunkRoutes(routes, tuple((size, number[order]) for size, order in chosen), choices)


def plain_chunk_routes(route: Sequence[PhysicalPhase], size: int, platform: Platform) -> ChunkRoutes:
    """Return the chunk routes of chunks that all have the same phases."""
    return ChunkRoutes(
        (tuple(route),), tuple((each, 0) for each in plain_sizes(size, platform.collectives.chunks))
    )
