"""One collective of profile `physical` as phases: a latency and a volume on each dimension it spans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from math import ceil, inf, prod
from typing import NamedTuple

import numpy as np

from armillary.base.errors import InputError, one_of
from armillary.collective.algorithms import (
    ROOTED,
    algorithms_for,
    choose,
    find_algorithm,
    natural,
    parts_for,
    rounds_for,
)
from armillary.collective.demand import plain
from armillary.collective.load import Load, load, placed
from armillary.collective.rounds import Rounds
from armillary.engine.common import network
from armillary.engine.common.network import CollectiveCall, Communicator
from armillary.engine.physical.memory import REDUCE
from armillary.platform.memory import fill_ns
from armillary.platform.model import Platform
from armillary.platform.network import TOPOLOGIES, links_per_npu, port


class Cost(NamedTuple):
    """What a phase costs, in bytes per byte that the schedule is about, and ns."""

    latency: float
    volume: Fraction
    added: Fraction
    sent: Fraction
    received: Fraction


def in_switch(platform: Platform, dim: int, collective: str, operation: str, n: int) -> Cost:
    """Return what an operation of a collective among `n` members costs in the switches of a dimension.

    Segments follow each other, so data moves up and down at the same time. The latency is one link up, one down, and
    that of the switch. The volume is what takes as long, at the bandwidth of the slower direction, as the
    slowest of three: to send, to receive and to add up.

    Raises:
        InputError: the switches of the dimension cannot reduce.
    """
    from armillary.collective.in_switch import ports

    dimension = platform.dimensions[dim]
    ability = dimension.in_network
    if ability is None:
        others = [name for name in algorithms_for(operation) if name != "in-switch"]
        raise InputError(
            f"{platform.source or 'platform'}: collectives: {collective}: {dimension.name}: got in-switch, but "
            f"{_reason(platform, dimension.topology)}; expected {one_of(others)}, natural or auto"
        )
    up, down = ports(operation, n)
    ways = port(dimension)
    rate = Fraction(ways.slower)
    volume = max(up * rate / Fraction(ways.out), down * rate / Fraction(ways.into))
    if ability.rate and operation != "all-gather":
        volume = max(volume, up * rate / Fraction(ability.rate))
    added = down if operation == "reduce-scatter" else Fraction(0)
    latency = 2 * dimension.latency + ability.latency + platform.npu.message_delay
    return Cost(latency, volume, added, up, down)


def _reason(platform: Platform, topology: str) -> str:
    if platform.topology:
        return "the nearest switches that join these NPUs have no in_network"
    if topology == "Switch":
        return "this Switch has no in_network"
    return f"a {topology} has no switch"


FITTED = "fitted"
"""Name of the algorithm of a phase that a fit timed."""
MEMORY_LOAD, MEMORY_STORE = -1, -2


@dataclass(frozen=True)
class Span:
    """Where the members of a communicator are in one dimension: all lines have the same positions."""

    dim: int
    positions: tuple[int, ...]


@dataclass(frozen=True)
class Beside:
    """What the busiest link or port cannot hide of chunks that follow each other.

    `step` is ns per byte of the fullest round: a chunk is at least so far behind the one before. `latency` (ns) and
    `wait` (ns per byte) are those of rounds before the first and after the last that use that link or port.
    """

    step: float
    latency: float
    wait: float


@dataclass(frozen=True)
class PhysicalPhase:
    """One phase of every chunk of a call, on lines along `dim` (-1: one line with all members).

    `latency` is ns per chunk but for the reduction; a chunk of the call of c bytes keeps the fullest port or link busy
    for ``volume * c`` bytes at full port bandwidth, takes ``wait * c`` ns more in rounds in which others are busier,
    and a member reduces ``reduced * c`` bytes.
    """

    dim: int
    operation: str
    algorithm: str
    positions: tuple[int, ...]
    latency: float
    volume: Fraction
    reduced: Fraction
    sent: Fraction
    """Bytes through the busiest port direction, per byte of the chunk."""
    ports: tuple[tuple[int, int], ...]
    """(dimension, how much of its port one byte takes) that a member uses; below 0: the stages of a memory."""
    host: bool = field(default=False, kw_only=True)
    """Whether what leaves a node crosses its host, see `HostPath`."""
    scale: Fraction = Fraction(1)
    """Bytes that the schedule of a line is about, per byte of the chunk."""
    port: Fraction | None = None
    """Bytes through the busiest direction if members do not send in that one; else None."""
    wait: float = 0.0
    """ns per byte of the chunk beyond those of `volume` that it takes alone; others can use the ports meanwhile."""
    beside: Beside | None = None
    """What many chunks that follow each other wait for; None: each of them for all of `latency` and `wait`."""
    parts: int | None = None
    """Parts that the algorithm cuts a chunk into; None: its default."""

    @property
    def busiest(self) -> Fraction:
        """Bytes through the busier direction of a port, per byte of the chunk."""
        return self.sent if self.port is None else self.port

    def at(self, positions: tuple[int, ...]) -> PhysicalPhase:
        """Return it for members at other positions; `dataclasses.replace` takes ten times as long."""
        found = object.__new__(PhysicalPhase)
        found.__dict__.update(vars(self), positions=positions)
        return found


def spans(platform: Platform, comm: Communicator) -> list[Span] | None:
    """Return what a communicator spans, innermost first; None if it is no grid of positions."""
    used = comm.positions(platform.dimensions)
    # A grid has as many members as combinations of positions: e.g. ranks 0, 1, 4, 5 in 4 x 2, but not 0, 1,
    # 4, 6.
    if int(np.prod([len(u) for u in used])) != len(comm.members):
        return None
    return [Span(d, positions) for d, positions in enumerate(used) if len(positions) > 1]


def spanned_by(call: CollectiveCall, comm: Communicator, platform: Platform) -> list[Span] | None:
    """Return the dimensions that a call uses, innermost first; None if its group is no grid of positions."""
    found = spans(platform, comm)
    if found is not None and call.involved is not None:
        found = [s for s in found if s.dim < len(call.involved) and call.involved[s.dim]]
    return found


def phases(
    call: CollectiveCall,
    comm: Communicator,
    platform: Platform,
    order: Sequence[Span] | None = None,
    known: dict[tuple[Span, str, Fraction], PhysicalPhase] | None = None,
) -> list[PhysicalPhase]:
    """Return the phases of a chunk of a call in order; none for a single member.

    Args:
        call: The call.
        comm: Its members.
        platform: The machine.
        order: The dimensions that it uses, as they are visited on the way in; None: the plain order.
        known: Phases of the same call in other orders, to which new ones are added.
    """
    if len(comm.members) < 2:
        return []
    if call.splits:
        return _split(call, comm, platform)
    operation = plain(call.operation)
    found = spanned_by(call, comm, platform)
    if found is None:
        return [_flat(call, comm, platform)]
    if order is None:
        # An all-gather visits the outermost dimension first, where its data is still the smallest. Rooted
        # operations that spread data take the same order.
        outer_first = operation in ("all-gather", "broadcast", "scatter")
        order = found[::-1] if outer_first else found
    made = {} if known is None else known
    visited = visits(operation, order)
    for visit in visited:
        if visit not in made:
            made[visit] = phase_of(call, platform, *visit)
    return [made[visit] for visit in visited]


def visits(operation: str, order: Sequence[Span]) -> list[tuple[Span, str, Fraction]]:
    """Return the steps of a collective in order: level, operation, and its bytes per byte of the chunk."""
    result = []
    scale = Fraction(1)
    if operation == "gather":
        scale /= prod(len(span.positions) for span in order)
    for span, step in _steps(operation, order):
        n = len(span.positions)
        # A gather is stated by what comes together, an all-gather by what a member brings.
        result.append((span, step, scale * n if step == "gather" else scale))
        if step in ("reduce-scatter", "scatter"):
            scale /= n
        elif step in ("all-gather", "gather"):
            scale *= n
    return result


def in_memory(call: CollectiveCall, platform: Platform) -> PhysicalPhase:
    """A load or store of all members at once, whose data the stages of a hierarchical memory carry once."""
    store = call.operation == REDUCE
    fill = fill_ns(platform.remote_memory, call.size, store, platform.npus, collective=True)
    return PhysicalPhase(
        -1, "reduce-scatter" if store else "all-gather", "in-memory", (), fill, Fraction(1), Fraction(0),
        Fraction(0), ((MEMORY_STORE if store else MEMORY_LOAD, 1),),
    )  # fmt: skip


def _split(call: CollectiveCall, comm: Communicator, platform: Platform) -> list[PhysicalPhase]:
    """An all-to-all with sizes of its own: each dimension is as slow as its fullest line."""
    from armillary.engine.physical.splits import loads

    grid = spans(platform, comm) is not None
    phases = []
    # A message is sent once, whatever dimensions it crosses.
    delay = platform.npu.message_delay
    for d, cost in loads(call, comm, platform):
        latency = cost.hops * platform.dimensions[d].latency + delay
        phases.append(PhysicalPhase(
            d if grid else -1, "all-to-all", "direct", (), latency, cost.volume / call.size, Fraction(0),
            cost.sent / call.size, ((d, 1),), Fraction(1, call.size),
        ))  # fmt: skip
        delay = 0.0
    return phases


def split_at_once(call: CollectiveCall, comm: Communicator, platform: Platform) -> PhysicalPhase:
    """Return an all-to-all with sizes of its own as one phase in which every member sends to every other.

    Its volume is 0, because the network that moves its messages decides which ports they cross.
    """
    matrix = np.array(call.splits, np.int64)
    np.fill_diagonal(matrix, 0)
    most = int(max(matrix.sum(axis=0).max(), matrix.sum(axis=1).max()))
    everyone = tuple(range(len(comm.members)))
    used = tuple((d, 1) for d in range(len(platform.dimensions)))
    return PhysicalPhase(
        -1, "all-to-all", "direct", everyone, 0.0, Fraction(0), Fraction(0), Fraction(most, call.size), used,
        Fraction(1, call.size),
    )  # fmt: skip


def _steps(operation: str, order: Sequence[Span]) -> list[tuple[Span, str]]:
    """Return the levels and their operations: on the way in, and for an all-reduce also on the way back."""
    if operation == "all-reduce":
        # Reduce-scatter on the way in, all-reduce on the outermost level with the least data, all-gather on
        # the way back (hierarchical all-reduce, as in BlueConnect).
        inner, last = order[:-1], order[-1:]
        return [
            *((s, "reduce-scatter") for s in inner),
            *((s, "all-reduce") for s in last),
            *((s, "all-gather") for s in inner[::-1]),
        ]
    return [(s, operation) for s in order]


def phase_of(
    call: CollectiveCall, platform: Platform, span: Span, operation: str, scale: Fraction
) -> PhysicalPhase:
    """Return one phase; a member comes to it with `scale` bytes per byte of the chunk."""
    dimension = platform.dimensions[span.dim]
    n = len(span.positions)
    rate = port(dimension).slower
    # One name per dimension; the last one holds for all further dimensions.
    names = platform.collectives.algorithms.get(call.operation, ("natural",))
    name = names[span.dim] if span.dim < len(names) else names[-1]
    chunks = max(1, min(platform.collectives.chunks, call.size))
    # The bytes of a chunk that reach this level decide which algorithm is the fastest.
    chunk = float(call.size * scale / chunks)
    if name == "auto" or (name == "natural" and operation in ROOTED):
        able = dimension.in_network if name == "auto" else None
        name = choose(
            dimension.topology, operation, n, chunk, dimension.latency, rate, in_network=able, chunks=chunks,
            endpoint_delay=platform.npu.message_delay,
        )  # fmt: skip
    elif name == "natural":
        name = natural(dimension.topology, operation, n)
    try:
        parts = parts_for(name, dimension.topology, n, chunk, dimension.latency, rate, chunks)
        rounds = rounds_for(name, operation, n, chunks=parts)
        topologies = find_algorithm(name).topologies if name != "in-switch" else ()
        if topologies and dimension.topology not in topologies:
            raise InputError(f"got topology {dimension.topology}, expected {one_of(topologies)}")
    except InputError as error:
        where = f"{platform.source or 'platform'}: collectives: {call.operation}: {dimension.name}"
        raise InputError(f"{where}: the {operation} of this dimension cannot be {name}: {error}") from error
    if name == "in-switch":
        own = in_switch(platform, span.dim, call.operation, operation, n)
        return PhysicalPhase(
            span.dim, operation, name, span.positions, own.latency, own.volume * scale, own.added * scale,
            own.sent * scale, ((span.dim, 1),), scale, max(own.sent, own.received) * scale,
        )  # fmt: skip
    cost = _load(rounds, dimension.topology, dimension.size, span.positions)
    latency = cost.hops * dimension.latency + rounds.count * platform.npu.message_delay
    return PhysicalPhase(
        span.dim, operation, name, span.positions, latency, cost.fullest * scale, cost.reduced * scale,
        cost.sent * scale, ((span.dim, 1),), scale, wait=_wait(cost, rate) * float(scale),
        beside=_beside(cost, dimension.latency, platform.npu.message_delay, rate / float(scale)), parts=parts,
    )  # fmt: skip


def _wait(cost: Load, rate: float) -> float:
    """Return ns per byte that the rounds of a chunk take alone, above those of its fullest port or link."""
    return float(cost.volume - cost.fullest) / rate


def _beside(cost: Load, hop: float, delay: float, rate: float) -> Beside | None:
    around = cost.around
    if around is None:
        return None
    latency = float(around.hops) * hop + float(around.rounds) * delay
    return Beside(float(cost.step) / rate, latency, float(around.volume) / rate)


@lru_cache(maxsize=256)
def _load(rounds: Rounds, topology: str, size: int, positions: tuple[int, ...]) -> Load:
    n = rounds.n
    return load(rounds, topology, size) if n == size else placed(rounds, topology, size, positions)[0]


def _flat(call: CollectiveCall, comm: Communicator, platform: Platform) -> PhysicalPhase:
    """A group that is no grid: rounds among all members, each message pays every dimension that any crosses."""
    n, operation = len(comm.members), plain(call.operation)
    strides = network.strides(platform.dimensions)
    used, latency, rate = [], 0.0, inf
    for d, (dimension, stride) in enumerate(zip(platform.dimensions, strides, strict=True)):
        positions = np.unique(comm.members // stride % dimension.size)
        if len(positions) > 1:
            links = links_per_npu(dimension.topology, dimension.size)
            used.append((d, links))
            rate = min(rate, port(dimension).slower / links)
            far = TOPOLOGIES[dimension.topology].farthest(positions, dimension.size).max()
            latency += int(far) * dimension.latency
    chunks = max(1, min(platform.collectives.chunks, call.size))
    known = "Switch", n, call.size / chunks, latency / 2, rate
    if operation in ROOTED:
        delay = platform.npu.message_delay
        name = choose("Switch", operation, *known[1:], chunks=chunks, endpoint_delay=delay)
    else:
        name = natural("Switch", operation, n)
    parts = parts_for(name, *known, chunks)
    cost = load(rounds_for(name, operation, n, chunks=parts), "Switch", n)
    # A Switch crosses two links in each round: half its hops are the rounds.
    rounds = cost.hops // 2
    total = rounds * (latency + platform.npu.message_delay)
    return PhysicalPhase(
        -1, operation, name, tuple(range(n)), total, cost.fullest, cost.reduced, cost.sent, tuple(used),
        wait=_wait(cost, rate), beside=_beside(cost, latency / 2, platform.npu.message_delay, rate),
        parts=parts,
    )  # fmt: skip


def reduction_ns(phase: PhysicalPhase, chunk: int, memory: float) -> float:
    """Return how long a member takes to reduce its part of a chunk of `chunk` bytes, ns; `memory` is in bytes/s."""
    return float(phase.reduced * chunk) / memory * 1e9 if memory > 0 else 0.0


def latency_ticks(phase: PhysicalPhase, chunk: int, memory: float) -> int:
    """Return the latency of a chunk of `chunk` bytes in ticks, with its reduction and its wait, rounded up."""
    # One rounding of the sum, in ns.
    return ceil(phase.latency + phase.wait * chunk + reduction_ns(phase, chunk, memory))
