"""The fewest ns that kernels, collectives and messages can take on a machine, before there is a trace."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil, inf, prod

import numpy as np

from armillary.collective.algorithms import ROOTED
from armillary.compute.model import Work
from armillary.compute.times import ask
from armillary.engine.common import network
from armillary.engine.common.communicators import CollectiveCall, Communicator
from armillary.engine.common.fits import fitted_message
from armillary.engine.physical.chunk_routes import MOST_IN_FLIGHT, chunk_routes_of
from armillary.engine.physical.phases import PhysicalPhase, latency_ticks
from armillary.platform.model import Platform
from armillary.platform.network import links_per_npu, port
from armillary.trace.gemm import Gemm
from armillary.workload.layers.layer import Step

Group = tuple[tuple[int, int], ...]
"""Ranks as (stride, size) of each mesh dimension in which they differ."""
_SAFE = 1 - 1e-9
"""Volumes and rates are fractions that a program counts in whole units: what is left out here for floats."""
_Routes = tuple[list[list[tuple[float, float, PhysicalPhase]]], int, int]
"""Rate, volume and phase of each phase of each way; chunks and bytes of the least of them, 0: as many as are plain."""
_Kernel = tuple[str, int, int, str, tuple[Gemm, ...]]


class Least:
    """The fewest ns on one machine; what was asked is kept."""

    def __init__(self, platform: Platform) -> None:
        self.platform = platform
        self.rates = [port(dimension).slower for dimension in platform.dimensions]
        collectives = platform.collectives
        self._by_size = (
            collectives.fit is not None
            or collectives.chunk_order != "baseline"
            or any("auto" in names for names in collectives.algorithms.values())
            or collectives.chunks > 1  # chunks hide latencies the better, the larger they are
        )
        self._blocks = np.cumprod([dimension.size for dimension in platform.dimensions]).tolist()
        self._kernels: dict[_Kernel, int] = {}
        self._costs: dict[tuple[object, ...], _Routes] = {}
        self._found: dict[tuple[object, ...], int] = {}
        self._lags: dict[tuple[int, int, int], int] = {}

    def kernels(self, steps: Iterable[Step]) -> None:
        """Ask the compute model for kernels, all at once."""
        new = [key for key in dict.fromkeys(map(_kernel, steps)) if key not in self._kernels]
        if not new:
            return
        compute = self.platform.compute
        known = np.zeros(len(new))
        if not (self.platform.jitter or compute.replay):
            names, operations, size, precisions, products = zip(*new, strict=True)
            work = Work(
                names, np.array(operations, np.int64), np.array(size, np.int64), precisions,
                tuple((each,) if isinstance(each, Gemm) else tuple(each) for each in products),
                np.zeros(len(new), np.int64),
            )  # fmt: skip
            known = np.nan_to_num(np.ceil(ask(self.platform, work, modelled=bool(compute.model)).ns))
        self._kernels |= dict(zip(new, known.astype(np.int64).tolist(), strict=True))

    def kernel(self, step: Step, speed: float = 1.0) -> int:
        """Return the ns of a kernel on a rank of this speed; 0 with jitter, which may make it as short as that."""
        key = _kernel(step)
        if key not in self._kernels:
            self.kernels([step])
        return self._kernels[key] if speed == 1.0 else ceil(self._kernels[key] / speed)

    def place(self, group: Group, rank: int) -> int:
        """Return where in its part of the machine a group of a rank begins: groups of equal places cost the same."""
        first = rank - sum(rank // stride % size * stride for stride, size in group)
        last = first + sum((size - 1) * stride for stride, size in group)
        for block in self._blocks:
            if first // block == last // block:
                return int(first % block)
        return first

    def collective(self, operation: str, size: int, group: Group, first: int) -> int:
        """Return the ns of a collective that has the machine for itself.

        A chunk goes through all phases; and all chunks through the port of each dimension, after what the fastest of
        them needs to come there and before what it needs from there to the end.

        Args:
            operation: As `engine.nodes.OPERATION` names it.
            size: Its ``comm_size``.
            group: The mesh dimensions in which members differ.
            first: A member, the one of the lowest rank.
        """
        if prod(n for _, n in group) < 2 or size <= 0:
            return 0
        key = (operation, size, group, first)
        if key not in self._found:
            self._found[key] = self._collective(operation, size, self._members(group, first))
        return self._found[key]

    def pair(self, operation: str, size: int, first: int, second: int) -> int:
        """Return the ns of a collective of two ranks."""
        if first == second:
            return 0
        return self.collective(operation, size, ((second - first, 2),), first)

    def shift(self, group: Group, first: int, steps: int, size: int) -> int:
        """Return the ns of a message to the member so many steps on, of the two members for which it is least."""
        members = self._members(group, first)
        count = len(members)
        return min(self.message(rank, members[(at + steps) % count], size) for at, rank in enumerate(members))

    def _members(self, group: Group, first: int) -> tuple[int, ...]:
        found = [first]
        for stride, size in group:
            found = [rank + step * stride for step in range(size) for rank in found]
        return tuple(found)

    def _collective(self, operation: str, size: int, members: tuple[int, ...]) -> int:
        call = CollectiveCall(0, operation, size, None)
        by_size = self._by_size or operation in ROOTED
        shape = (operation, members, size if by_size else 0)
        if shape not in self._costs:
            comm = Communicator(0, np.array(members, np.int64), len(members) == self.platform.npus)
            chunk_routes = chunk_routes_of(call, comm, self.platform)
            routes = (
                []
                if chunk_routes.choices
                else [chunk_routes.routes[w] for w in sorted({w for _, w in chunk_routes.chunks})]
            )
            costs = [[(self._rate(phase), float(phase.volume), phase) for phase in route] for route in routes]
            sizes = [each for each, _ in chunk_routes.chunks]
            self._costs[shape] = costs, *((len(sizes), min(sizes)) if by_size else (0, 0))
        routes_of, chunks, least = self._costs[shape]
        if not chunks:
            chunks = max(1, min(self.platform.collectives.chunks, size))
            least = size // chunks
        memory = self.platform.npu.memory.bytes_per_s
        found: list[int] = []
        for route in routes_of:
            if len(route) == 1 and chunks > 1 and route[0][2].beside is not None:
                found.append(_train(*route[0], least, chunks))
                continue
            at, spans = 0, dict[tuple[tuple[int, int], ...], list[int]]()
            for rate, volume, phase in route:
                moving = int(volume * least / rate * _SAFE)
                span = spans.setdefault(phase.ports, [at, 0, 0])
                span[1] += moving
                at += moving
                span[2] = at
                at += latency_ticks(phase, least, memory)
            alone = [before + moving * chunks + at - end for before, moving, end in spans.values()]
            found.append(max([at, *(alone if len(routes_of) == 1 else [])]))
        return min(found, default=0)

    def _rate(self, phase: PhysicalPhase) -> float:
        return min((self.rates[d] / factor for d, factor in phase.ports if d >= 0), default=inf)

    def message(self, source: int, target: int, size: int) -> int:
        """Return the ns of a message."""
        key = (source, target, size)
        if key not in self._lags:
            dimensions = self.platform.dimensions
            hops = network.path(dimensions, np.array(source), np.array(target))
            latency, rate = self.platform.npu.message_delay, inf
            for dimension, of_port, hop in zip(dimensions, self.rates, hops, strict=True):
                if hop:
                    latency += int(hop) * dimension.latency
                    rate = min(rate, of_port / links_per_npu(dimension.topology, dimension.size))
            moving = size / rate
            if fitted := fitted_message(self.platform, [int(hop) for hop in hops], size):
                latency, moving = fitted.latency, float(fitted.volume) / self.rates[fitted.dim]
            self._lags[key] = ceil(latency) + int(moving * _SAFE)
        return self._lags[key]


def _train(rate: float, volume: float, phase: PhysicalPhase, size: int, chunks: int) -> int:
    """Return the ns of chunks that follow each other through one phase, see `last_latency`."""
    assert phase.beside is not None
    busy, beside = volume * size / rate, phase.beside
    alone = busy + phase.latency + phase.wait * size
    turns = alone * -(-chunks // MOST_IN_FLIGHT)
    last = chunks * busy + beside.latency + beside.wait * size
    return int(max(alone + (chunks - 1) * beside.step * size, turns, last) * _SAFE)


def _kernel(step: Step) -> _Kernel:
    """Return what a compute model is told of a step (`emit.template.kernel_attributes`)."""
    products = step.gemms if step.flops else ()
    precision = step.precision if step.flops else "bf16"
    return step.name, max(1, step.flops), max(1, step.bytes), precision, products


def group_of(sizes: Sequence[int], mesh_dims: Iterable[int]) -> Group:
    """Return the (stride, size) of some mesh dimensions of a grid; neighbours that join are one."""
    found: list[tuple[int, int]] = []
    for mesh_dim in mesh_dims:
        stride = prod(sizes[:mesh_dim])
        if found and found[-1][0] * found[-1][1] == stride:
            found[-1] = (found[-1][0], found[-1][1] * sizes[mesh_dim])
        else:
            found.append((stride, sizes[mesh_dim]))
    return tuple(found)
