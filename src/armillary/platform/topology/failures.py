"""Links and nodes that fail or get worse, from the start or from some time on."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from armillary.base.errors import InputError
from armillary.platform.topology.graph import Ints, Topology


@dataclass(frozen=True)
class Failure:
    """What happens to a link (with both ways, unless `one_way`) or to all links of a node.

    Attributes:
        node: A node by name or number; or
        link: two nodes, whose links are meant.
        at: From when on, ns.
        until: When it is repaired, ns; None: never.
        bandwidth: Share of the bandwidth that remains; 0: down.
        latency: What is added to the latency, ns.
        one_way: Only links from the first to the second node.
    """

    node: str | int | None = None
    link: tuple[str | int, str | int] | None = None
    at: float = 0.0
    until: float | None = None
    bandwidth: float = 0.0
    latency: float = 0.0
    one_way: bool = False


def degraded(topology: Topology, failures: Iterable[Failure], at: float = 0.0) -> Topology:
    """Return the topology at a time; links keep their numbers, those that are down have bandwidth 0.

    Raises:
        InputError: A node or link does not exist.
    """
    bandwidth, latency = topology.bandwidth.copy(), topology.latency.copy()
    # Every failure is looked up, even before it begins: a wrong name must not wait until its time.
    for failure in failures:
        links = _links(topology, failure)
        if failure.at <= at and (failure.until is None or at < failure.until):
            # Failures of one link multiply, as shares of what is left.
            bandwidth[links] *= failure.bandwidth
            latency[links] += failure.latency
    return dataclasses.replace(topology, bandwidth=bandwidth, latency=latency)


def stages(topology: Topology, failures: Iterable[Failure]) -> list[tuple[float, Topology]]:
    """Return (ns, topology from then on), in order; the first at 0."""
    failures = tuple(failures)
    # 0 is always a stage, even if nothing fails from the start; `until` ends a failure and so begins a stage.
    times = {0.0} | {f.at for f in failures} | {f.until for f in failures if f.until is not None}
    return [(time, degraded(topology, failures, time)) for time in sorted(times)]


def _links(topology: Topology, failure: Failure) -> Ints:
    if not 0 <= failure.bandwidth <= 1:
        raise InputError(
            f"{topology.name}: failure: got bandwidth {failure.bandwidth:g}, expected a share from 0 to 1"
        )
    if failure.until is not None and failure.until <= failure.at:
        raise InputError(f"{topology.name}: failure: got until {failure.until:g} ns, expected more than at")
    # Neither or both.
    if (failure.node is None) == (failure.link is None):
        raise InputError(f"{topology.name}: failure: expected either a node or a link")
    if failure.node is not None:
        node = topology.node(failure.node)
        return np.flatnonzero((topology.tail == node) | (topology.head == node))
    # For the type checker: the line above excludes None.
    assert failure.link is not None
    a, b = map(topology.node, failure.link)
    # All parallel links between both, since they have no names of their own.
    there = (topology.tail == a) & (topology.head == b)
    if not failure.one_way:
        there |= (topology.tail == b) & (topology.head == a)
    if not there.any():
        near = topology.node_name(int(topology.head[topology.first_link[a]]))
        raise InputError(
            f"{topology.name}: failure: no link {topology.node_name(a)} → {topology.node_name(b)}, "
            f"expected a neighbour of {topology.node_name(a)}, e.g. {near}"
        )
    return np.flatnonzero(there)
