"""A storage beside a network: a node behind one port, joined to switches or NPUs of the graph, and the ways to it.

The storage is one node, its port another. The link between them, one for each direction, has the bandwidth of the
storage, so all that read share one of its directions, and all that write the other. Its port is joined to each node of
`at` by links of the same bandwidth and no latency. Neither passes messages on, so routes between NPUs stay as they are.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

import numpy as np

from armillary.base.errors import InputError, nearest, one_of
from armillary.platform.limits import FieldError
from armillary.platform.topology.graph import UNBOUNDED, Ints, Tier, Topology

PORT, STORAGE = "storage port", "storage"
Route = tuple[int, ...]


@dataclass(frozen=True)
class Ways:
    """The links between a storage and the NPUs of a graph.

    Attributes:
        node: The storage.
        write: NPU -> links from it to the storage.
        read: NPU -> links from the storage to it.
    """

    node: int
    write: dict[int, Route]
    read: dict[int, Route]

    def links_of(self) -> dict[tuple[int, int], Route]:
        """Return the links of every pair of NPU and storage."""
        found = {(npu, self.node): links for npu, links in self.write.items()}
        return found | {(self.node, npu): links for npu, links in self.read.items()}


def places(topology: Topology, at: str) -> Ints:
    """Return the nodes that a storage is joined to: those of a dimension's switches, of a tier, or one node.

    Raises:
        FieldError: there is none of that name, or the graph has several planes.
    """
    if topology.planes > 1:
        raise FieldError(
            "storage", ("at",), f"got '{at}', expected none: the network has {topology.planes} planes"
        )
    tiers = {tier.name: tier for tier in topology.tiers}
    for name in (f"{at} switch", at):
        if name in tiers and name != "npu":
            return np.arange(tiers[name].count) + tiers[name].first
    try:
        return np.array([topology.node(at)])
    except InputError:
        pass
    known = [name.removesuffix(" switch") if topology.dimensions else name for name in tiers if name != "npu"]
    expected = f"{one_of(known)}, or a node, e.g. npu 0" if known else "a node, e.g. npu 0"
    raise FieldError("storage", ("at",), f"got '{at}', expected {expected}{nearest(at, known)}") from None


def with_storage(topology: Topology, at: str, bandwidth: float) -> Topology:
    """Return a graph with a storage, whose nodes are the last two: its port, and itself.

    Args:
        topology: The graph.
        at: See `places`.
        bandwidth: Bytes per ns of the storage, each way.

    Raises:
        InputError: see `places`.
    """
    joined, port = places(topology, at), topology.nodes
    storage = port + 1
    tail = np.concatenate([topology.tail, joined, np.full(len(joined), port), [port, storage]])
    head = np.concatenate([topology.head, np.full(len(joined), port), joined, [storage, port]])
    new = len(tail) - topology.links
    # Sorted by tail, then head; links between the same two nodes keep their order.
    order = np.lexsort((head, tail))
    kinds = (*topology.kinds, STORAGE)

    def column(old: np.ndarray, value: float) -> np.ndarray:
        return np.concatenate([old, np.full(new, value, old.dtype)])[order]

    return replace(
        topology,
        first_link=np.concatenate([[0], np.cumsum(np.bincount(tail, minlength=storage + 1))]),
        head=head[order],
        bandwidth=column(topology.bandwidth, bandwidth),
        latency=column(topology.latency, 0.0),
        buffer=column(topology.buffer, UNBOUNDED),
        kind=column(topology.kind, len(topology.kinds)),
        kinds=kinds,
        tiers=(*topology.tiers, Tier(PORT, port, 1), Tier(STORAGE, storage, 1)),
        forwards=np.concatenate([topology.forwards, [False, False]]),
        labels=(*topology.labels, f"{PORT} 0", f"{STORAGE} 0") if topology.labels else (),
        block=np.concatenate([topology.block, [-1, -1]]) if len(topology.block) else topology.block,
    )


def ways(topology: Topology) -> Ways:
    """Return the shortest ways between the storage of a graph (`with_storage`) and its NPUs; equal ones take turns.

    Raises:
        InputError: an NPU cannot reach it.
    """
    storage = topology.nodes - 1
    there, back = _distances(topology, storage, into=True), _distances(topology, storage, into=False)
    write, read = {}, {}
    for npu in range(topology.npus):
        if min(there[npu], back[npu]) < 0:
            raise InputError(f"{topology.called}: {topology.node_name(npu)} cannot reach the storage")
        write[npu] = _walk(topology, there, npu, into=True)
        read[npu] = _walk(topology, back, npu, into=False)
    return Ways(storage, write, read)


def _links(topology: Topology, node: int, *, into: bool) -> list[int]:
    """Return the links that enter a node, or leave it, and are up."""
    if into:
        first, order = topology.incoming
        found = order[first[node] : first[node + 1]].tolist()
    else:
        found = list(range(int(topology.first_link[node]), int(topology.first_link[node + 1])))
    return [link for link in found if topology.bandwidth[link] > 0]


def _distances(topology: Topology, storage: int, *, into: bool) -> list[int]:
    """Return the links on the shortest way from every node to the storage, or from the storage; -1: none."""
    found = [-1] * topology.nodes
    found[storage] = 0
    waiting = deque([storage])
    while waiting:
        node = waiting.popleft()
        # Only what forwards lies within a way; the storage and its port lie at its end.
        if node < topology.nodes - 2 and not topology.forwards[node]:
            continue
        ends = topology.tail if into else topology.head
        for link in _links(topology, node, into=into):
            other = int(ends[link])
            if found[other] < 0:
                found[other] = found[node] + 1
                waiting.append(other)
    return found


def _walk(topology: Topology, distance: list[int], npu: int, *, into: bool) -> Route:
    node, links = npu, []
    ends = topology.head if into else topology.tail
    while distance[node]:
        nearer = [
            link
            for link in _links(topology, node, into=not into)
            if distance[ends[link]] == distance[node] - 1 and _passes(topology, int(ends[link]))
        ]
        # Equal ways take turns by rank, as a hash would spread them.
        link = nearer[npu % len(nearer)]
        links.append(link)
        node = int(ends[link])
    return tuple(links if into else reversed(links))


def _passes(topology: Topology, node: int) -> bool:
    return node >= topology.nodes - 2 or bool(topology.forwards[node])
