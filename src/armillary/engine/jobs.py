"""One collective as phases: which ring, how many bytes, which schedules, at what cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from armillary.collective import Schedule, schedule_for
from armillary.collective.chunk_order.astra_sim import Machine, Route, greedy_routes, round_robin_orders
from armillary.collective.plan import next_size, plan
from armillary.engine.communicators import Communicator
from armillary.engine.network import LIMIT
from armillary.errors import InputError
from armillary.platform.model import Algorithm, Platform

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
        of_chunk: Way of chunk k, or of chunk k modulo its length.
        in_turn: Collectives go on in `of_chunk` where the one before them stopped.
        count: Number of chunks.
        chunk: Bytes of a chunk; of the first, if they differ.
    """

    routes: tuple[tuple[JobPhase, ...], ...]
    of_chunk: tuple[int, ...]
    in_turn: bool
    count: int
    chunk: int


def job_chunks(job: Job, comm: Communicator, platform: Platform, where: str) -> JobChunks:
    """Return the chunks of a job and their phases, as the scheduler across dimensions has them go.

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
    listed = platform.system.algorithms.get(job.operation, ())
    alone = len(listed) < 2 or job.custom or not comm.world or count == 0
    if scheduler == "roundRobin" and not alone:
        found = [
            phases(job, comm, platform, chunk, where, order)
            for order in round_robin_orders(len(listed), job.operation)
        ]
        return JobChunks(tuple(map(tuple, found)), tuple(range(len(found))), True, count, chunk)
    if scheduler in ("offlineGreedy", "offlineGreedyFlex") and job.operation != "all-to-all" and not (
        job.custom or not comm.world or count == 0
    ):
        routes = _greedy(job, platform, listed, chunk, flexible=scheduler == "offlineGreedyFlex")
        distinct = list(dict.fromkeys(routes))
        ways = [phases(job, comm, platform, route.size, where, route.order) for route in distinct]
        number = {route: i for i, route in enumerate(distinct)}
        of_chunk = tuple(number[route] for route in routes)
        return JobChunks(tuple(map(tuple, ways)), of_chunk, False, len(routes), routes[0].size)
    return JobChunks((tuple(phases(job, comm, platform, chunk, where)),), (0,), False, count, chunk)


def _greedy(
    job: Job, platform: Platform, algorithms: Sequence[Algorithm], chunk: int, *, flexible: bool
) -> list[Route]:
    mask = job.involved or (True,) * DEFAULT_INVOLVED
    machine = Machine(
        tuple(d.size for d in platform.dimensions),
        tuple(_gigabytes(d.bandwidth) for d in platform.dimensions),
        tuple(
            d.size > 1 and i < min(len(mask), len(algorithms)) and mask[i]
            for i, d in enumerate(platform.dimensions)
        ),
    )
    size = max(job.size, chunk * platform.system.dataset_splits) if job.operation != "all-gather" else job.size
    return greedy_routes(machine, job.operation, size, chunk, flexible=flexible)


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
