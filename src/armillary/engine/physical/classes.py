"""Which ranks provably behave alike in profile `physical`, so that each class is simulated once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from armillary.engine import network
from armillary.engine.classes import Workload
from armillary.engine.communicators import Communicator
from armillary.engine.fold import Order, Ring, fold, world_lines
from armillary.engine.items import View
from armillary.engine.jobs import Job
from armillary.engine.physical import fluid_layout_kernel as lk
from armillary.engine.physical.jobs import PhysicalPhase
from armillary.platform.model import Platform

Ints = NDArray[np.int64]
_Cost = tuple[int, tuple[PhysicalPhase, ...]]


def classify(
    workload: Workload, job_phases: dict[Job, list[PhysicalPhase]], structure: NDArray[np.int32]
) -> Ints:
    """Return the class of every rank; ranks that may differ by more than whom they deal with are each their own."""
    platform, views, view_of = workload.platform, workload.views, workload.view_of
    ranks = np.arange(platform.npus)
    shared = platform.memory.kind in ("pool", "per-node") and any(
        (v.nodes.kind == lk.MEMORY).any() for v in views
    )
    # A message that nobody receives takes part of a port that its receiver does not know of.
    lost = any(len(sends) > len(receives) for sends, receives in workload.channels.values())
    if shared or lost or platform.physical.jitter:
        return ranks
    patterns: dict[tuple[bytes, bytes], int] = {}
    costs: dict[_Cost, int] = {}
    pattern = np.array(
        [
            patterns.setdefault((view.pattern(), _costs(view, job_phases, costs)), len(patterns))
            for view in views
        ]
    )
    kinds: dict[tuple[float, float], int] = {(1.0, 0.0): 0}
    special = np.zeros(platform.npus, np.int64)
    for rank in {*platform.physical.speed, *platform.physical.delay}:
        own = (platform.physical.speed.get(rank, 1.0), platform.physical.delay.get(rank, 0.0))
        special[rank] = kinds.setdefault(own, len(kinds))
    colour = (structure.astype(np.int64) * len(patterns) + pattern[view_of]) * len(kinds) + special
    slots_of_view = [view.slots() for view in views]
    order = frozenset({Order("set", (), True)})
    rings = {}
    # A collective that moves nothing has no phases, but its members still meet.
    lined = {(job.comm, d): None for job, found in job_phases.items() for d in [p.dim for p in found] or [-1]}
    for number, dim in lined:
        of_view = np.array([slots.get(number, -1) for slots in slots_of_view])
        lines = lines_of(platform, workload.comms.get(number), dim)
        rings[(number, dim)] = Ring(dim, lines, order, of_view[view_of])
    return fold(colour, list(rings.values()), views, view_of, workload.channels, platform, path_code)


def _costs(view: View, job_phases: dict[Job, list[PhysicalPhase]], known: dict[_Cost, int]) -> bytes:
    """Return what the collectives of a view cost, as a key: groups of other ranks may have another shape."""
    found = [
        (len(job.splits or ()), tuple(replace(phase, positions=()) for phase in job_phases[job]))
        for job in view.jobs
    ]
    number = np.array([known.setdefault(cost, len(known)) for cost in found], np.int64)
    return number[view.job[view.job >= 0]].tobytes()


def path_code(platform: Platform, source: Ints, destination: Ints) -> Ints:
    """Return one number per pair of ranks that says how many links of each dimension lie between them."""
    code = np.zeros(np.broadcast(source, destination).shape, np.int64)
    for dimension, hop in zip(
        platform.dimensions, network.path(platform.dimensions, source, destination), strict=True
    ):
        code = code * (dimension.size + 2) + hop
    return code


def lines_of(platform: Platform, comm: Communicator, dim: int) -> Ints:
    """Return the lines of a communicator along one dimension, (lines, n); dim -1: all its members."""
    if dim < 0:
        return comm.members[None, :]
    if comm.world:
        return world_lines(platform, dim)
    stride, size = network.strides(platform.dimensions)[dim], platform.dimensions[dim].size
    place = comm.members // stride % size
    order = np.lexsort((place, comm.members - place * stride))
    return comm.members[order].reshape(-1, len(np.unique(place)))
