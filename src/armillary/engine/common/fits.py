"""Collectives and messages timed by the fit that a platform names (`collectives.fit`), not by schedules."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cache, lru_cache
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from armillary.base.errors import InputError
from armillary.collective.demand import plain
from armillary.engine.common.items import MEMORY_OPERATIONS
from armillary.engine.common.network import FRACTION_BITS, CollectiveCall, Communicator, node_size
from armillary.platform.collectives import FitChoice
from armillary.platform.model import Platform
from armillary.platform.network import port

if TYPE_CHECKING:
    from armillary.collective.fitted import CollectiveFit, CollectiveTime


class Message(NamedTuple):
    """A fitted message: latency in ns, volume in bytes at full port bandwidth, and the dimension of that port."""

    latency: float
    volume: Fraction
    dim: int


def fit_of(choice: FitChoice) -> CollectiveFit:
    """Return the fit that a platform names.

    Raises:
        InputError: there is none of that name, or its file is malformed.
    """
    try:
        return _load(*_source(choice))
    except InputError as error:
        raise InputError(f"{choice.source}: {error}" if choice.source else str(error)) from error


def time_of(choice: FitChoice, operation: str, per_node: int, nodes: int, size: int) -> CollectiveTime | None:
    """Return what `CollectiveFit.time` says by the fit that a platform names, which says the same each time.

    Raises:
        InputError: see `fit_of`.
    """
    try:
        return _time(*_source(choice), operation, per_node, nodes, size)
    except InputError as error:
        raise InputError(f"{choice.source}: {error}" if choice.source else str(error)) from error


@lru_cache(maxsize=1 << 14)
def _time(
    name: str, stamp: int, operation: str, per_node: int, nodes: int, size: int
) -> CollectiveTime | None:
    return _load(name, stamp).time(operation, per_node, nodes, size)


def _source(choice: FitChoice) -> tuple[str, int]:
    """Return the name or path of a fit, and the time of its last change, so that an edited file is read again."""
    path = choice.folder / choice.name
    if choice.name.replace("_", "-") in _names() or not path.is_file():
        return choice.name, 0
    return str(path), path.stat().st_mtime_ns


@cache
def _names() -> tuple[str, ...]:
    from armillary.collective.fitted import fit_names

    return fit_names()


@lru_cache(maxsize=64)
def _load(name: str, stamp: int) -> CollectiveFit:
    from armillary.collective.fitted import load_fit

    return load_fit(name)


def timed(call: CollectiveCall, comm: Communicator, platform: Platform) -> CollectiveTime | None:
    """Return the time of a collective by the fit of a platform; None where it has none."""
    choice = platform.collectives.fit
    if choice is None or len(comm.members) < 2 or call.size <= 0 or call.operation in MEMORY_OPERATIONS:
        return None
    # Fits are of a library's kernels.
    if call.pace:
        return None
    used = call.involved
    # A fit measured whole groups; a call that leaves dimensions out is none of its cases.
    if used is not None and not all(d < len(used) and used[d] for d in spanned(comm, platform)):
        return None
    size, operation = call.size, plain(call.operation)
    # Measurements state the size of the result, traces that of one member's part.
    if operation == "all-gather":
        size *= len(comm.members)
    # The member with the most bytes to send or receive decides.
    if call.splits:
        matrix = np.array(call.splits, np.int64)
        size = int(max(matrix.sum(axis=0).max(), matrix.sum(axis=1).max()))
    return time_of(choice, operation, *comm.in_nodes(node_size(platform)), size)


def crosses_host(call: CollectiveCall, comm: Communicator, platform: Platform) -> bool:
    """Tell whether rings of a collective go through the host of a node to a NIC, see `HostPath`."""
    choice = platform.collectives.fit
    # In an all-to-all every member sends by a NIC near to it.
    if choice is None or choice.host is None or plain(call.operation) == "all-to-all":
        return False
    nodes, counts = np.unique(comm.members // node_size(platform), return_counts=True)
    if len(nodes) < 2:
        return False
    several = nodes[counts > 1]
    of_node = comm.members // node_size(platform)
    return any(
        np.unique(comm.members[of_node == node] // choice.host.near, return_counts=True)[1].min() < 2
        for node in several
    )


def fitted_message(platform: Platform, hops: Sequence[int], size: int) -> Message | None:
    """Return a message over so many links of each dimension as the fit of a platform times it; None: it cannot."""
    choice = platform.collectives.fit
    if choice is None or size <= 0:
        return None
    dim = max(d for d, hop in enumerate(hops) if hop)
    time = time_of(choice, "send", *((2, 1) if dim < choice.inner else (1, 2)), size)
    return None if time is None else Message(time.latency_ns, busy(time.transfer_ns, platform, dim), dim)


def busy(ns: float, platform: Platform, dim: int) -> Fraction:
    """Return the bytes that keep the slower direction of a port of a dimension busy for so long, rounded up."""
    # The rate that a program counts with (`Scale.rate`), so that a whole number of ns stays one.
    return ceil(ns) * Fraction(
        int(port(platform.dimensions[dim]).slower * (1 << FRACTION_BITS)), 1 << FRACTION_BITS
    )


def spanned(comm: Communicator, platform: Platform) -> list[int]:
    """Return the dimensions in which members of a communicator differ, innermost first."""
    return [d for d, places in enumerate(comm.positions(platform.dimensions)) if len(places) > 1]
