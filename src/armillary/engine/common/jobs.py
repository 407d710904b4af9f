"""One collective as phases: which ring, how many bytes, which schedules, at what cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.collective import Schedule, schedule_for
from armillary.collective.chunk_order.astra_sim import Collective, Route, greedy_routes, round_robin_orders
from armillary.collective.plan import next_size, plan
from armillary.engine.common.communicators import Communicator
from armillary.engine.common.network import LIMIT
from armillary.platform.algorithms import Algorithm
from armillary.platform.model import Platform

LOCAL_ENDPOINT_NS = 10
"""Endpoint delay inside a sub-group, whatever the system file says (spec: 1(c), Endpoint)."""
MOST_CHUNKS = 1 << 22
"""More streams of one collective than this are a mistake, and do not fit into memory."""
DEFAULT_INVOLVED = 4
"""Without involved_dim a collective uses the first four dimensions."""


@dataclass(frozen=True)
class Job:
    """What the members of a collective must agree on."""

    comm: int
    operation: str
    size: int
    involved: tuple[bool, ...] | None
    custom: str = ""
    """Prefix of the traces that replace the algorithm."""
    root: int = 0
    """Rank a broadcast, reduce, gather or scatter has as root."""
    splits: tuple[tuple[int, ...], ...] = ()
    """Bytes from each member to each other one, of an all-to-all with sizes of its own."""


@dataclass(frozen=True)
class JobPhase:
    """One phase of every chunk of a job; `dim` is -1 for a ring over a list of ranks."""

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
class JobChunks:
    """The chunks of a job: a few ways through the phases, and who goes which.

    Attributes:
        routes: The phases of a chunk on each way; all ways have as many.
        count: Number of chunks, the most there may be.
        of_chunk: Way of chunk k, or of chunk k modulo its length.
        in_turn: Collectives go on in `of_chunk` where the one before them stopped.
        greedy: `of_chunk` was found by `greedy_routes`: it is as long as there are chunks.
        after: The same when the work of another job is left over.
    """

    routes: tuple[tuple[JobPhase, ...], ...]
    count: int
    of_chunk: tuple[int, ...] = (0,)
    in_turn: bool = False
    greedy: bool = False
    after: Mapping[Job, tuple[int, ...]] = field(default_factory=dict)


def job_chunks(
    job: Job, comm: Communicator, platform: Platform, where: str, before: Sequence[Job] = ()
) -> JobChunks:
    """Return the chunks of a job and their phases, as the scheduler across dimensions has them go.

    Args:
        job: The job.
        comm: Its members.
        platform: The machine.
        where: What errors call it.
        before: Jobs whose work may be left over.

    Raises:
        InputError: no algorithm is configured, one that cannot run here, or too many chunks.
    """
    count, chunk = chunks(job, platform)
    if count > MOST_CHUNKS:
        raise InputError(
            f"{where} is split into {count} chunks; expected at most {MOST_CHUNKS}, that is, a smaller "
            "preferred-dataset-splits"
        )
    scheduler = platform.system.inter_dimension
    one_way = job.custom or not comm.world or count == 0
    if scheduler == "roundRobin" and not one_way:
        listed = len(platform.system.algorithms.get(job.operation, ()))
        orders = round_robin_orders(max(listed, 1), job.operation)
        ways = [phases(job, comm, platform, chunk, where, order) for order in orders]
        return JobChunks(tuple(map(tuple, ways)), count, tuple(range(len(ways))), in_turn=True)
    if not scheduler.startswith("offlineGreedy") or job.operation == "all-to-all" or one_way:
        return JobChunks((tuple(phases(job, comm, platform, chunk, where)),), count)
    fresh = _greedy([job], platform)
    found = {other: _greedy([other, job], platform) for other in before}
    number: dict[Route, int] = {}
    for routes in (fresh, *found.values()):
        for route in routes:
            number.setdefault(route, len(number))
    ways = [phases(job, comm, platform, route.size, where, route.order) for route in number]
    after = {other: tuple(number[route] for route in routes) for other, routes in found.items()}
    return JobChunks(
        tuple(map(tuple, ways)), max(len(fresh), *map(len, after.values()), 0),
        tuple(number[route] for route in fresh), greedy=True, after=after,
    )  # fmt: skip


def _greedy(jobs: Sequence[Job], platform: Platform) -> list[Route]:
    """Return the routes of the last of some jobs, the first of which begins with no work left over."""
    flexible = platform.system.inter_dimension == "offlineGreedyFlex"
    collectives = []
    for job in jobs:
        _, chunk = chunks(job, platform)
        size = job.size
        if job.operation != "all-gather":
            size = max(size, chunk * platform.system.dataset_splits)
        collectives.append(Collective(job.operation, size, chunk, _used(job, platform)))
    sizes = tuple(d.size for d in platform.dimensions)
    bandwidths = tuple(_gigabytes(d.bandwidth) for d in platform.dimensions)
    return greedy_routes(sizes, bandwidths, collectives, flexible=flexible)


def _used(job: Job, platform: Platform) -> tuple[bool, ...]:
    listed = len(platform.system.algorithms.get(job.operation, ()))
    mask = (job.involved or (True,) * DEFAULT_INVOLVED)[:listed]
    return tuple(d.size > 1 and i < len(mask) and mask[i] for i, d in enumerate(platform.dimensions))


def _gigabytes(rate: float) -> float:
    """Return a bandwidth in bytes/ns as the file gives it: equal loads must come out equal to the last bit."""
    return float(f"{rate * 10**9 / 2**30:.12g}")


def chunks(job: Job, platform: Platform) -> tuple[int, int]:
    """Return (number of chunks, bytes per chunk) of a job (spec: 1(c), Collective to chunks)."""
    if job.custom:
        return 1, job.size
    splits = platform.system.dataset_splits
    size = job.size
    chunk = size // splits
    if job.operation != "all-gather" and platform.npus > chunk:
        chunk = platform.npus
        size = splits * chunk
    if chunk == 0:
        return (1, size) if size else (0, 0)
    return -(-size // chunk), chunk


def phases(
    job: Job,
    comm: Communicator,
    platform: Platform,
    chunk: int,
    where: str,
    order: Sequence[int] | None = None,
) -> list[JobPhase]:
    """Return the phases of one chunk of `chunk` bytes; none if no dimension takes part.

    `order` is that of the dimensions, by default the usual one.

    Raises:
        InputError: no algorithm is configured, or one that cannot run here.
    """
    if job.custom:
        return [JobPhase(-1, 0, "custom", "all", chunk, (), False, 0, uniform=False)]
    algorithms = platform.system.algorithms.get(job.operation, ())
    if not algorithms:
        raise InputError(
            f"{where} is an {job.operation}, for which the system configuration has no algorithm"
        )
    if comm.world:
        return _world(job, platform, algorithms, chunk, where, order)
    if len(comm.members) < 2:
        return []
    algorithm = algorithms[0] if len(algorithms) == 1 else Algorithm("ring")
    name = {"oneRing": "ring", "oneDirect": "direct", "oneHalvingDoubling": "halvingDoubling"}.get(
        algorithm.name, algorithm.name
    )
    pair = _schedules(name, job.operation, len(comm.members), algorithm.window, where, local=True)
    tree = name == "doubleBinaryTree"
    return [JobPhase(-1, 0, job.operation, "all", chunk, pair, tree, LOCAL_ENDPOINT_NS, uniform=False)]


def _world(
    job: Job,
    platform: Platform,
    algorithms: Sequence[Algorithm],
    chunk: int,
    where: str,
    order: Sequence[int] | None,
) -> list[JobPhase]:
    sizes = [dimension.size for dimension in platform.dimensions]
    involved = job.involved or (True,) * DEFAULT_INVOLVED
    result = []
    size = chunk
    system = platform.system
    for phase in plan(
        job.operation, algorithms, sizes, system.collective_optimization, involved, order,
        turn_around=system.inter_dimension in ("ascending", "roundRobin"),
    ):  # fmt: skip
        pair = _schedules(phase.algorithm, phase.operation, phase.size, phase.window, where)
        tree = phase.algorithm == "doubleBinaryTree"
        uniform = phase.dim >= 0 or len(sizes) == 1
        endpoint = system.endpoint_delay
        result.append(
            JobPhase(
                phase.dim, phase.level, phase.operation, phase.family, size, pair, tree, endpoint, uniform
            )
        )
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


def line(platform: Platform, phase: JobPhase, comm: Communicator, rank: int) -> NDArray[np.int64]:
    """Return the members of the ring of `phase` that `rank` belongs to, by position."""
    if phase.dim < 0:
        return comm.members
    stride = 1
    for dimension in platform.dimensions[: phase.dim]:
        stride *= dimension.size
    n = platform.dimensions[phase.dim].size
    return rank - (rank // stride % n) * stride + np.arange(n) * stride
