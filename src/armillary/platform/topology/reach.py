"""Reachability of nodes, and the error for unreachable pairs."""

from __future__ import annotations

import dataclasses

import numpy as np

from armillary.base.allowed import Pace
from armillary.base.errors import InputError
from armillary.platform.topology.graph import Ints, Topology, ranges


def distances(topology: Topology, destination: int | Ints) -> Ints:
    """Return (nodes) the fewest links to `destination`, or to the nearest of several; -1 where no way leads there.

    Links that are down are not used, and nodes that do not forward only as the ends of a way.
    """
    found = np.full(topology.nodes, -1)
    # Breadth-first search from the destination, against the direction of links.
    found[destination] = 0
    last = np.empty(topology.nodes, np.int64)
    first, order = topology.incoming
    frontier, step = np.atleast_1d(np.asarray(destination, np.int64)), 0
    while len(frontier):
        step += 1
        links = order[ranges(first[frontier], first[frontier + 1] - first[frontier])]
        # Links that are down have bandwidth 0.
        tails = topology.tail[links[topology.bandwidth[links] > 0]]
        tails = tails[found[tails] < 0]
        # Each once, of those that several links lead to: much faster than `np.unique`.
        last[tails] = np.arange(len(tails))
        tails = tails[last[tails] == np.arange(len(tails))]
        found[tails] = step
        # Nodes that do not forward are reached but not passed: NPUs in a Clos network.
        frontier = tails[topology.forwards[tails]]
    return found


def unreachable(topology: Topology, source: int, destination: int) -> InputError:
    """Return the error of a pair without a way."""
    pair = f"{topology.called}: no way from {topology.node_name(source)} to {topology.node_name(destination)}"
    down = np.flatnonzero(topology.bandwidth == 0)
    # The destination itself is counted, hence the - 1 below.
    reached = int((distances(topology, destination) >= 0).sum())
    why = f"{topology.node_name(destination)} is reached from {reached - 1} of {topology.nodes - 1} nodes"
    if len(down):
        why += (
            f"; {len(down)} of {topology.links} links are down, the first {topology.link_name(int(down[0]))}"
        )
    # The usual cause: two rails meet only through another NPU. Try whether forwarding would help, and say
    # how.
    everyone = dataclasses.replace(topology, forwards=np.ones(topology.nodes, np.bool_))
    if distances(everyone, destination)[source] >= 0:
        how = "routing 'rail'" if topology.host else "forward: true in a YAML edge list"
        why += f"; it could be reached if NPUs forwarded ({how})"
    return InputError(f"{pair}: {why}")


def check_connected(topology: Topology) -> None:
    """Refuse a graph in which some NPU does not reach another.

    Raises:
        InputError: Names such a pair, and the size of the parts.
    """
    # Where everybody forwards, reaching rank 0 and being reached from it gives all pairs: two searches
    # instead of n.
    if topology.forwards.all():
        here = distances(topology, 0)
        back = distances(_reversed(topology), 0)
        for lost, names in ((here, lambda node: (node, 0)), (back, lambda node: (0, node))):
            missing = np.flatnonzero(lost[: topology.npus] < 0)
            if len(missing):
                raise unreachable(topology, *names(int(missing[0])))
        return
    # Otherwise reachability is not transitive: a way may need an NPU that does not forward.
    pace = Pace(f"{topology.called}: reaching its NPUs", topology.npus, "destinations", "fewer NPUs")
    for destination in range(topology.npus):
        pace.at(destination)
        missing = np.flatnonzero(distances(topology, destination)[: topology.npus] < 0)
        if len(missing):
            raise unreachable(topology, int(missing[0]), destination)


def _reversed(topology: Topology) -> Topology:
    first, order = topology.incoming
    return dataclasses.replace(
        # Only what `distances` reads is reversed; latency and buffer keep the order of the original.
        topology,
        first_link=first,
        head=topology.tail[order],
        bandwidth=topology.bandwidth[order],
    )
