"""Lower bounds in ns of kernels, collectives and messages on a machine, before there is a trace."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil, inf, prod

import numpy as np

from armillary.collective.algorithms import ROOTED
from armillary.compute.model import Work
from armillary.compute.times import ask
from armillary.engine.common import network
from armillary.engine.common.fits import fitted_message
from armillary.engine.common.network import CollectiveCall, Communicator
from armillary.engine.physical.chunk_routes import MOST_IN_FLIGHT, chunk_routes_of
from armillary.engine.physical.phases import PhysicalPhase, latency_ticks
from armillary.platform.model import Platform
from armillary.platform.network import links_per_npu, port
from armillary.trace.gemm import Gemm
from armillary.workload.layers.layer import Step

Group = tuple[tuple[int, int], ...]
"""Ranks as (stride, size) of each mesh dimension in which they differ."""
_SAFE = 1 - 1e-9
"""Safety factor: the engine counts exact fractions in whole units, and a bound in floats must stay below."""
_Routes = tuple[list[list[tuple[float, float, PhysicalPhase]]], int, int]
"""Rate, volume and phase of each phase of each route; chunks and least bytes of one, 0: as in plain chunks."""
_Kernel = tuple[str, int, int, str, tuple[Gemm, ...]]


class Least:
    """Lower bounds on one machine, in ns; results are cached."""

    def __init__(self, platform: Platform) -> None:
        self.platform = platform
        self.rates = [port(dimension).slower for dimension in platform.dimensions]
        collectives = platform.collectives
        # Whether the way of a collective depends on its size: then costs cannot be shared between sizes.
        self._by_size = (
            collectives.fit is not None
            or collectives.chunk_order != "baseline"
            or any("auto" in names for names in collectives.algorithms.values())
            or collectives.chunks > 1  # chunks hide latencies the better, the larger they are
        )
        # NPUs of the innermost dimension, of the two innermost, and so on.
        self._blocks = np.cumprod([dimension.size for dimension in platform.dimensions]).tolist()
        self._kernels: dict[_Kernel, int] = {}
        self._costs: dict[tuple[object, ...], _Routes] = {}
        self._found: dict[tuple[object, ...], int] = {}
        self._lags: dict[tuple[int, int, int], int] = {}

    def kernels(self, steps: Iterable[Step]) -> None:
        """Time kernels by the compute model, all in one call."""
        # Kinds in order of first mention, without repeats: one call of the model for all of them.
        new = [key for key in dict.fromkeys(map(_kernel, steps)) if key not in self._kernels]
        if not new:
            return
        compute = self.platform.compute
        # With jitter or replay a duration is not known before the run: 0 is a safe bound.
        known = np.zeros(len(new))
        if not (self.platform.jitter or compute.replay):
            names, operations, size, precisions, products = zip(*new, strict=True)
            work = Work(
                names, np.array(operations, np.int64), np.array(size, np.int64), precisions,
                tuple((each,) if isinstance(each, Gemm) else tuple(each) for each in products),
                np.zeros(len(new), np.int64),
            )  # fmt: skip
            # NaN is a kernel without a time, which takes 0 here; whole ns, as the engine rounds up.
            known = np.nan_to_num(np.ceil(ask(self.platform, work, modelled=bool(compute.model)).ns))
        self._kernels |= dict(zip(new, known.astype(np.int64).tolist(), strict=True))

    def kernel(self, step: Step, speed: float = 1.0) -> int:
        """Return the ns of a kernel on a rank of this speed; 0 with jitter, which may shorten it at will."""
        key = _kernel(step)
        if key not in self._kernels:
            self.kernels([step])
        # Slower ranks divide by less than 1; the common case skips the division.
        return self._kernels[key] if speed == 1.0 else ceil(self._kernels[key] / speed)

    def place(self, group: Group, rank: int) -> int:
        """Return where a group of a rank begins in its part of the machine: groups of equal places cost the same."""
        # Mixed-radix: what remains of the rank when all its coordinates in the group are 0.
        first = rank - sum(rank // stride % size * stride for stride, size in group)
        last = first + sum((size - 1) * stride for stride, size in group)
        # The smallest block of the machine that holds the group: its place in there decides the cost.
        for block in self._blocks:
            if first // block == last // block:
                return int(first % block)
        return first

    def collective(self, operation: str, size: int, group: Group, first: int) -> int:
        """Return the least ns of a collective that has the machine to itself.

        A chunk goes through all phases; and all chunks through the port of each dimension, after what the fastest of
        them needs to come there and before what it needs from there to the end.

        Args:
            operation: As `engine.nodes.OPERATION` names it.
            size: Its ``comm_size``.
            group: The mesh dimensions in which members differ.
            first: A member, the one of the lowest rank.
        """
        # Nothing to do, or nobody to do it with.
        if prod(n for _, n in group) < 2 or size <= 0:
            return 0
        key = (operation, size, group, first)
        if key not in self._found:
            self._found[key] = self._collective(operation, size, self._members(group, first))
        return self._found[key]

    def pair(self, operation: str, size: int, first: int, second: int) -> int:
        """Return the least ns of a collective of two ranks."""
        if first == second:
            return 0
        # Two ranks are a group of one dimension whose stride is their distance.
        return self.collective(operation, size, ((second - first, 2),), first)

    def shift(self, group: Group, first: int, steps: int, size: int) -> int:
        """Return the least ns of a message to the member `steps` further on, over all members."""
        members = self._members(group, first)
        count = len(members)
        # The pair that is closest: a lower bound for all of them.
        return min(self.message(rank, members[(at + steps) % count], size) for at, rank in enumerate(members))

    def _members(self, group: Group, first: int) -> tuple[int, ...]:
        found = [first]
        for stride, size in group:
            found = [rank + step * stride for step in range(size) for rank in found]
        return tuple(found)

    def _collective(self, operation: str, size: int, members: tuple[int, ...]) -> int:
        call = CollectiveCall(0, operation, size, None)
        # Rooted collectives depend on the size as well, even where others do not.
        by_size = self._by_size or operation in ROOTED
        shape = (operation, members, size if by_size else 0)
        if shape not in self._costs:
            comm = Communicator(0, np.array(members, np.int64), len(members) == self.platform.npus)
            chunk_routes = chunk_routes_of(call, comm, self.platform)
            routes = (
                []
                # A choice is left to the run, so that no way is certain: 0 is the bound.
                if chunk_routes.choices
                else [chunk_routes.routes[w] for w in sorted({w for _, w in chunk_routes.chunks})]
            )
            costs = [[(self._rate(phase), float(phase.volume), phase) for phase in route] for route in routes]
            sizes = [each for each, _ in chunk_routes.chunks]
            self._costs[shape] = costs, *((len(sizes), min(sizes)) if by_size else (0, 0))
        routes_of, chunks, least = self._costs[shape]
        # Costs without sizes: cut as the platform says, into whole bytes.
        if not chunks:
            chunks = max(1, min(self.platform.collectives.chunks, size))
            # The smallest chunk: bounds must hold for each of them.
            least = size // chunks
        memory = self.platform.npu.memory.bytes_per_s
        found: list[int] = []
        for route in routes_of:
            # One phase with latencies that overlap: chunks follow each other, see `_train`.
            if len(route) == 1 and chunks > 1 and route[0][2].beside is not None:
                found.append(_train(*route[0], least, chunks))
                continue
            # Ports -> [ns before its first phase, ns that it is busy per chunk, ns when its last phase ends].
            at, spans = 0, dict[tuple[tuple[int, int], ...], list[int]]()
            for rate, volume, phase in route:
                # _SAFE: a float may be above the exact fraction, and a bound must not be.
                moving = int(volume * least / rate * _SAFE)
                span = spans.setdefault(phase.ports, [at, 0, 0])
                span[1] += moving
                at += moving
                span[2] = at
                at += latency_ticks(phase, least, memory)
            # All chunks pass each port, after the fastest arrival there and before the fastest end from
            # there.
            alone = [before + moving * chunks + at - end for before, moving, end in spans.values()]
            # With several ways chunks may take different ones, and a port need not carry all of them.
            found.append(max([at, *(alone if len(routes_of) == 1 else [])]))
        return min(found, default=0)

    def _rate(self, phase: PhysicalPhase) -> float:
        # d < 0 is no dimension (the NPU's own memory); without any, the rate is no limit.
        return min((self.rates[d] / factor for d, factor in phase.ports if d >= 0), default=inf)

    def message(self, source: int, target: int, size: int) -> int:
        """Return the least ns of a message."""
        key = (source, target, size)
        if key not in self._lags:
            dimensions = self.platform.dimensions
            hops = network.path(dimensions, np.array(source), np.array(target))
            latency, rate = self.platform.npu.message_delay, inf
            # The links of a route are crossed in a row: latencies add up, and the narrowest decides the rate.
            for dimension, of_port, hop in zip(dimensions, self.rates, hops, strict=True):
                if hop:
                    latency += int(hop) * dimension.latency
                    # A message uses one link of a port.
                    rate = min(rate, of_port / links_per_npu(dimension.topology, dimension.size))
            moving = size / rate
            # A fit replaces both parts.
            if fitted := fitted_message(self.platform, [int(hop) for hop in hops], size):
                latency, moving = fitted.latency, float(fitted.volume) / self.rates[fitted.dim]
            self._lags[key] = ceil(latency) + int(moving * _SAFE)
        return self._lags[key]


def _train(rate: float, volume: float, phase: PhysicalPhase, size: int, chunks: int) -> int:
    """Return the ns of chunks that follow each other through one phase, see `last_latency`."""
    assert phase.beside is not None
    busy, beside = volume * size / rate, phase.beside
    # One chunk alone.
    alone = busy + phase.latency + phase.wait * size
    # At most MOST_IN_FLIGHT chunks overlap: so many turns.
    turns = alone * -(-chunks // MOST_IN_FLIGHT)
    # The port is busy for all of them, then the last one's latency.
    last = chunks * busy + beside.latency + beside.wait * size
    # Latencies follow each other at `step` per byte, at least.
    return int(max(alone + (chunks - 1) * beside.step * size, turns, last) * _SAFE)


def _kernel(step: Step) -> _Kernel:
    """Return what a compute model learns of a step (`emit.template.kernel_attributes`)."""
    # As the trace would state it: a step without operations has no GEMMs, and its precision is the default.
    products = step.gemms if step.flops else ()
    precision = step.precision if step.flops else "bf16"
    # At least 1: a kernel of 0 operations would be one of unknown work.
    return step.name, max(1, step.flops), max(1, step.bytes), precision, products


def group_of(sizes: Sequence[int], mesh_dims: Iterable[int]) -> Group:
    """Return the (stride, size) of some mesh dimensions of a grid; neighbours that join are one."""
    found: list[tuple[int, int]] = []
    for mesh_dim in mesh_dims:
        stride = prod(sizes[:mesh_dim])
        # Adjacent dimensions of which one ends where the other begins are one of the product of their sizes.
        if found and found[-1][0] * found[-1][1] == stride:
            found[-1] = (found[-1][0], found[-1][1] * sizes[mesh_dim])
        else:
            found.append((stride, sizes[mesh_dim]))
    return tuple(found)
