"""Who can send to whom directly: the links between NPUs, and the paths through switches only.

A switch forwards and holds nothing, so a path from a link into it to a link out of it is like a link, but shares
its ends with others: NPUs behind one switch have an edge each to the others, and all edges of an NPU begin in one port.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.platform.topology.graph import Ints, Topology, ranges
from armillary.platform.topology.routing import Paths, Routing

MOST_PEERS = 256
"""Edges of an NPU through one fabric of switches; of more NPUs, those at even steps."""
PS = 1000


@dataclass(frozen=True, eq=False)
class Edges:
    """(edges) columns: from which NPU to which, on what links; in the order of `source`, `target`.

    `after` is what the receiver needs before it can send on or add, in ps. Reversed edges keep their numbers.
    """

    topology: Topology
    source: Ints
    target: Ints
    paths: Paths
    duration: Ints
    """(links) ps that a chunk takes on a link."""
    latency: Ints
    """(links) ps."""
    after: int = 0

    @property
    def n(self) -> int:
        """Number of NPUs."""
        return self.topology.npus

    @functools.cached_property
    def port(self) -> Ints:
        """(edges) the link by which it leaves its NPU."""
        return self.paths.link[self.paths.first[:-1]]

    @functools.cached_property
    def ports(self) -> tuple[Ints, Ints, Ints]:
        """(ports + 1) where the edges of a port begin in the second, (edges), and (edges) the number of its port.

        Ports are in the order of their NPUs.
        """
        # Grouped by NPU, then port, so that a port's edges are consecutive.
        order = np.lexsort((self.target, self.port, self.source))
        port = self.port[order]
        begins = np.flatnonzero(np.concatenate([[True], port[1:] != port[:-1]]))
        of = np.empty(len(order), np.int64)
        of[order] = np.repeat(np.arange(len(begins)), np.diff(np.append(begins, len(order))))
        return np.append(begins, len(order)), order, of

    @functools.cached_property
    def cost(self) -> Ints:
        """(edges) ps that a chunk takes alone."""
        first = self.paths.first[:-1]
        # Cut through: the slowest link of the path sets the pace, latencies add up.
        slowest = np.maximum.reduceat(self.duration[self.paths.link], first)
        return np.asarray(slowest + np.add.reduceat(self.latency[self.paths.link], first) + self.after)

    def reversed(self, after: int) -> Edges:
        """Return the same edges in the other direction: a reduce-scatter is an all-gather there, backwards in time."""
        hops = self.paths.hops
        turned = ranges(self.paths.first[:-1], hops)
        within = turned - np.repeat(self.paths.first[:-1], hops)
        # Within a path the links are taken from the last to the first.
        link = self.paths.link[np.repeat(self.paths.first[1:] - 1, hops) - within]
        paths = Paths(self.paths.first, link)
        return Edges(self.topology, self.target, self.source, paths, self.duration, self.latency, after)

    def back(self) -> Ints | None:
        """Return (edges) the opposite edge of each, over equal links; None if one has none."""
        n = self.n
        key, wanted = self.source * n + self.target, self.target * n + self.source
        at = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
        # The pair of NPUs has no edge back, or one of another length.
        if (key[at] != wanted).any() or (self.paths.hops[at] != self.paths.hops).any():
            return None
        other = self.reversed(self.after)
        mine = self.paths.link[ranges(self.paths.first[at], self.paths.hops)]
        alike = (self.duration[mine] == self.duration[other.paths.link]) & (
            self.latency[mine] == self.latency[other.paths.link]
        )
        ends = (self.topology.tail[mine] == self.topology.head[other.paths.link]) & (
            self.topology.head[mine] == self.topology.tail[other.paths.link]
        )
        return at if (alike & ends).all() else None


def edges_of(routing: Routing, chunk: int, after: int = 0) -> Edges:
    """Return the edges of a network.

    Args:
        routing: The routes of messages through switches.
        chunk: Bytes of a chunk.
        after: See `Edges`.

    Raises:
        InputError: an NPU has none.
    """
    topology = routing.topology
    n = topology.npus
    keys = np.unique(np.concatenate([_direct(topology), _switched(topology)]))
    source, target = keys // n, keys % n
    paths = routing.paths(source, target)
    hops = paths.hops
    # Paths through other NPUs are not edges: the NPU in between has edges of its own.
    inner = np.ones(len(paths.link), np.bool_)
    inner[paths.first[1:] - 1] = False
    passes = inner & (topology.head[paths.link] < n)
    kept = np.add.reduceat(passes, paths.first[:-1]) == 0 if len(keys) else np.zeros(0, np.bool_)
    source, target, hops = source[kept], target[kept], hops[kept]
    link = paths.link[ranges(paths.first[:-1][kept], hops)]
    for side in (source, target):
        alone = np.setdiff1d(np.arange(n), side)
        if len(alone) and n > 1:
            raise InputError(
                f"{topology.called}: {topology.node_name(int(alone[0]))} has no link or way through switches to "
                "or from another NPU; expected at least one"
            )
    up = topology.bandwidth > 0
    duration = np.zeros(topology.links, np.int64)
    # Rounded up: a chunk never takes less than its bytes need.
    duration[up] = np.ceil(chunk * PS / topology.bandwidth[up]).astype(np.int64)
    latency = np.rint(topology.latency * PS).astype(np.int64)
    first = np.concatenate([[0], np.cumsum(hops)])
    return Edges(topology, source, target, Paths(first, link), duration, latency, after)


def _direct(topology: Topology) -> Ints:
    """Return the pairs of NPUs, as ``source * npus + target``, that a link joins."""
    n = topology.npus
    found = (topology.tail < n) & (topology.head < n) & (topology.bandwidth > 0)
    return topology.tail[found] * n + topology.head[found]


def _switched(topology: Topology) -> Ints:
    """Return the pairs that are behind the same switches."""
    n, tail, head = topology.npus, topology.tail, topology.head
    up = topology.bandwidth > 0
    # Switches that links join form one fabric; its NPUs reach each other through it.
    fabric = components(topology.nodes, *(side[up & (tail >= n) & (head >= n)] for side in (tail, head)))
    out, into = up & (tail < n) & (head >= n), up & (tail >= n) & (head < n)
    sends = np.unique(fabric[head[out]] * n + tail[out])
    gets = np.unique(fabric[tail[into]] * n + head[into])
    keys = [np.zeros(0, np.int64)]
    _, starts = np.unique(gets // n, return_index=True)
    for group in np.split(gets, starts[1:]) if len(gets) else []:
        targets = group % n
        first, last = np.searchsorted(sends, [group[0] // n * n, group[0] // n * n + n])
        sources = sends[first:last] % n
        size = len(targets)
        if size <= MOST_PEERS:
            keys.append((sources[:, None] * n + targets).ravel())
            continue
        # Near neighbours on both sides, and evenly spaced ones for the long distances.
        near = np.arange(1, MOST_PEERS // 4)
        steps = np.unique(
            np.concatenate([near, size - near, np.arange(1, MOST_PEERS // 2) * size // (MOST_PEERS // 2)])
        )
        at = np.searchsorted(targets, sources)[:, None]
        keys.append((sources[:, None] * n + targets[(at + steps) % size]).ravel())
    found = np.concatenate(keys)
    # A fabric also joins an NPU with itself.
    apart: Ints = found[found // n != found % n]
    return apart


def components(nodes: int, tail: Ints, head: Ints) -> NDArray[np.int64]:
    """Return (nodes) the lowest node that is joined with each, whatever the direction of links."""
    part = np.arange(nodes)
    while True:
        least = part.copy()
        np.minimum.at(least, tail, part[head])
        np.minimum.at(least, head, part[tail])
        # Pointer jumping: labels travel exponentially far, so passes are few.
        least = least[least]
        if (least == part).all():
            return part
        part = least
