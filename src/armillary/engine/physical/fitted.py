"""Collectives and messages of profile `physical` as a fit times them: a latency, and the time a port is busy.

The port is that of the outermost dimension between the members, in both directions. What shares it slows, and is
slowed, as everywhere in this profile; alone, latency and transfer add up to what was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from fractions import Fraction
from functools import cache, lru_cache
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from armillary.base.errors import InputError
from armillary.collective.demand import plain
from armillary.engine.common import network
from armillary.engine.common.communicators import Communicator
from armillary.engine.common.jobs import Job
from armillary.engine.physical.jobs import PhysicalPhase
from armillary.engine.physical.memory import OPERATIONS
from armillary.engine.physical.scale import FRACTION_BITS
from armillary.platform.model import Platform
from armillary.platform.network import port
from armillary.platform.terms import FitChoice

if TYPE_CHECKING:
    from armillary.collective.fitted import CollectiveFit, CollectiveTime

FITTED = "fitted"
"""Name of the algorithm of a phase that a fit timed."""


class Message(NamedTuple):
    """A message: ns, bytes at the full bandwidth of a port, and the dimension of that."""

    latency: float
    volume: Fraction
    dim: int


def fit_of(choice: FitChoice) -> CollectiveFit:
    """Return the fit that a platform names.

    Raises:
        InputError: there is none of that name, or its file is malformed.
    """
    path = choice.folder / choice.name
    named = choice.name.replace("_", "-") in _names() or not path.is_file()
    stamp = 0 if named else path.stat().st_mtime_ns
    try:
        return _load(choice.name if named else str(path), stamp)
    except InputError as error:
        raise InputError(f"{choice.source}: {error}" if choice.source else str(error)) from error


@cache
def _names() -> tuple[str, ...]:
    from armillary.collective.fitted import fit_names

    return fit_names()


@lru_cache(maxsize=64)
def _load(name: str, stamp: int) -> CollectiveFit:
    from armillary.collective.fitted import load_fit

    return load_fit(name)


def timed(job: Job, comm: Communicator, platform: Platform) -> CollectiveTime | None:
    """Return what the fit of a platform says of a collective; None: nothing."""
    choice = platform.physical.fit
    if choice is None or len(comm.members) < 2 or job.size <= 0 or job.operation in OPERATIONS:
        return None
    used = job.involved
    if used is not None and not all(d < len(used) and used[d] for d in _spanned(comm, platform)):
        return None
    counts = np.unique(comm.members // _node_size(platform), return_counts=True)[1]
    size, operation = job.size, plain(job.operation)
    if operation == "all-gather":
        size *= len(comm.members)
    if job.splits:
        matrix = np.array(job.splits, np.int64)
        size = int(max(matrix.sum(axis=0).max(), matrix.sum(axis=1).max()))
    return fit_of(choice).time(operation, int(counts.max()), len(counts), size)


def fitted_phase(
    job: Job, comm: Communicator, platform: Platform, schedule: Callable[[], Sequence[PhysicalPhase]]
) -> PhysicalPhase | None:
    """Return a collective as the fit of a platform times it, as one phase of all members.

    Args:
        job: The collective.
        comm: Its members.
        platform: The machine.
        schedule: Returns the phases that it has without a fit: they say how many bytes are sent at least.
    """
    time = timed(job, comm, platform)
    if time is None:
        return None
    dim = _spanned(comm, platform)[-1]
    volume = busy(time.transfer_ns, platform, dim) / job.size
    there = [phase for phase in schedule() if any(d == dim for d, _ in phase.ports)]
    sent = min(sum((phase.sent for phase in there), Fraction(0)), volume)
    return PhysicalPhase(
        -1, plain(job.operation), FITTED, (), time.latency_ns, volume, Fraction(0), sent, ((dim, 1),)
    )


def fitted_message(platform: Platform, hops: Sequence[int], size: int) -> Message | None:
    """Return a message over so many links of each dimension as the fit of a platform times it; None: it cannot."""
    choice = platform.physical.fit
    if choice is None or size <= 0:
        return None
    dim = max(d for d, hop in enumerate(hops) if hop)
    time = fit_of(choice).time("send", *((2, 1) if dim < choice.inner else (1, 2)), size)
    return None if time is None else Message(time.latency_ns, busy(time.transfer_ns, platform, dim), dim)


def busy(ns: float, platform: Platform, dim: int) -> Fraction:
    """Return the bytes that keep the slower direction of a port of a dimension busy for so long, rounded up."""
    # The rate that a program counts with (`Scale.rate`), so that a whole number of ns stays one.
    return ceil(ns) * Fraction(
        int(port(platform.dimensions[dim]).slower * (1 << FRACTION_BITS)), 1 << FRACTION_BITS
    )


def largest_message(platform: Platform, sizes: Collection[int]) -> int:
    """Return the most bytes that any message of these sizes moves through a port."""
    more = 1 + Fraction(platform.physical.terms.communication)
    found = [ceil(max(sizes, default=0) * more)]
    if platform.physical.fit:
        for dim in range(len(platform.dimensions)):
            hops = [int(d == dim) for d in range(len(platform.dimensions))]
            messages = (fitted_message(platform, hops, size) for size in set(sizes))
            found += [ceil(message.volume * more) for message in messages if message]
    return max(found)


def fit_warnings(
    platform: Platform, jobs: Iterable[tuple[Job, Communicator]], sizes: Collection[int]
) -> list[str]:
    """Return what a person should know of the collectives and message sizes of a run with a fit."""
    choice = platform.physical.fit
    if choice is None:
        return []
    where, sizes = choice.source or f"collectives.fit: {choice.name}", [size for size in sizes if size > 0]
    unknown, beaten = set(), set()
    for job, comm in jobs:
        if len(comm.members) < 2 or job.size <= 0 or job.operation in OPERATIONS:
            continue
        time = timed(job, comm, platform)
        if time is None:
            unknown.add(job.operation)
        elif time.transfer_ns < _least(job, comm, platform):
            beaten.add(job.operation)
    if sizes and fit_of(choice).time("send", 1, 2, max(sizes)) is None:
        unknown.add("send between nodes")
    if sizes and fit_of(choice).time("send", 2, 1, max(sizes)) is None:
        unknown.add("send in a node")
    found = []
    if unknown:
        found.append(f"{where}: the fit does not know {', '.join(sorted(unknown))}: timed by schedules")
    if beaten:
        found.append(
            f"{where}: {', '.join(sorted(beaten))} is faster than the bandwidth of the network allows: "
            "expected the machine that the fit is of; the lower bound takes its links to be as fast as the fit"
        )
    return found


def _least(job: Job, comm: Communicator, platform: Platform) -> float:
    """Return the ns for which the outermost port is busy if each byte crosses it as often as any algorithm needs."""
    dim = _spanned(comm, platform)[-1]
    stride = network.strides(platform.dimensions)[dim]
    outer = len(np.unique(comm.members // stride))
    inner = len(comm.members) / outer
    share = {
        "all-reduce": 1 / inner,  # switches may add up
        "reduce-scatter": (outer - 1) / outer / inner,
        "all-gather": outer - 1.0,
        "all-to-all": (outer - 1) / outer,
    }
    return (
        job.size * share.get(plain(job.operation), 0.0) / port(platform.dimensions[dim]).slower * (1 - 1e-6)
    )


def _spanned(comm: Communicator, platform: Platform) -> list[int]:
    strides = network.strides(platform.dimensions)
    return [
        d
        for d, (dimension, stride) in enumerate(zip(platform.dimensions, strides, strict=True))
        if np.ptp(comm.members // stride % dimension.size)
    ]


def _node_size(platform: Platform) -> int:
    assert platform.physical.fit is not None
    return int(np.prod([dimension.size for dimension in platform.dimensions[: platform.physical.fit.inner]]))
