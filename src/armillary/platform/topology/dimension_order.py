"""Dimension-order routing: a message corrects its coordinates one after the other, innermost first."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from armillary.base.errors import InputError
from armillary.platform.network import TOPOLOGIES
from armillary.platform.topology.graph import Ints, Topology
from armillary.platform.topology.reach import unreachable
from armillary.platform.topology.routing import Paths, Routing


class DimensionOrder(Routing):
    """Innermost dimension first; within it the links that its topology takes.

    Raises:
        InputError: The topology was not built from dimensions.
    """

    def __init__(self, topology: Topology) -> None:
        super().__init__(topology)
        if not topology.dimensions:
            raise InputError(
                f"{topology.name}: routing 'dimension-order' needs a topology of dimensions, expected e.g. 'ecmp'"
            )

    def candidates(self, node: int, destination: int) -> Ints:
        """See `Routing.candidates`."""
        if node == destination:
            return np.empty(0, np.int64)
        # `_next` is for NPUs: a switch lies on a line, and sends straight to the member below it.
        if node >= self.topology.npus:
            links = self.topology.between(node, self._below(node, destination))
        else:
            links = self._next(np.array([node]), np.array([destination]))
        return self._checked(np.atleast_1d(links), np.array([node]), np.array([destination]))

    def paths(self, source: ArrayLike, destination: ArrayLike, flow: ArrayLike | None = None) -> Paths:
        """See `Routing.paths`; all messages of a pair take the same way, whatever `flow`."""
        at, target = np.broadcast_arrays(np.atleast_1d(source), destination)
        at, target = at.astype(np.int64), target.astype(np.int64)
        # `who` are messages still in flight; `began` keeps their sources for errors.
        began, who = at, np.arange(len(at))
        messages: list[Ints] = []
        taken: list[Ints] = []
        # One iteration crosses one dimension for all messages at once: two links through a Switch, one on a
        # ring.
        while len(who := who[at[who] != target[who]]):
            link = self._next(at[who], target[who])
            self._checked(link, began[who], target[who])
            messages.append(who)
            taken.append(link)
            to = self.topology.head[link]
            # Nodes from npus on are switches.
            up = to >= self.topology.npus
            if up.any():
                passing = who[up]
                peer = self._across(at[passing], target[passing])
                down = self.topology.between(to[up], peer)
                messages.append(passing)
                taken.append(self._checked(down, began[passing], target[passing]))
                to[up] = peer
            # `began` is the same array in the first round, and must stay.
            at = at.copy()
            at[who] = to
        return Paths.gather(len(target), messages, taken)

    def next_links(self, destination: int) -> tuple[Ints, Ints]:
        """See `Routing.next_links`."""
        topology = self.topology
        link = np.full(topology.nodes, -1)
        link[: topology.npus] = self._next(np.arange(topology.npus), np.full(topology.npus, destination))
        for switch in range(topology.npus, topology.nodes):
            link[switch] = topology.between(switch, self._below(switch, destination))
        link[destination] = -1
        has = (link >= 0) & (topology.bandwidth[link] > 0)
        return np.concatenate([[0], np.cumsum(has)]), link[has]

    def _next(self, at: Ints, target: Ints) -> Ints:
        """Return the link that each message at an NPU takes."""
        # -1 stays for messages that have arrived; callers filter those beforehand.
        result = np.full(len(at), -1)
        undecided = np.ones(len(at), np.bool_)
        stride = 1
        switch = self.topology.npus
        for dimension in self.topology.dimensions:
            size = dimension.size
            here, there = at // stride % size, target // stride % size
            # Only the first dimension that differs: dimension order.
            now = undecided & (here != there)
            if dimension.topology == "Switch":
                # Switches are numbered dimension by dimension; within one by outer group, then by inner
                # offset.
                to = switch + at // (stride * size) * stride + at % stride
                switch += self.topology.npus // size
            else:
                to = at + (TOPOLOGIES[dimension.topology].step(here, there, size) - here) * stride
            result[now] = self.topology.between(at[now], to[now])
            undecided &= ~now
            stride *= size
        return result

    def _across(self, at: Ints, target: Ints) -> Ints:
        """Return the NPU on the other side of the switch of the first dimension that differs."""
        result, undecided, stride = at.copy(), np.ones(len(at), np.bool_), 1
        for dimension in self.topology.dimensions:
            here, there = at // stride % dimension.size, target // stride % dimension.size
            now = undecided & (here != there)
            result[now] += ((there - here) * stride)[now]
            undecided &= ~now
            stride *= dimension.size
        return result

    def _below(self, switch: int, destination: int) -> int:
        """Return the NPU below a switch to which a message for `destination` descends."""
        first, stride = self.topology.npus, 1
        for dimension in self.topology.dimensions:
            count = self.topology.npus // dimension.size if dimension.topology == "Switch" else 0
            # Switches of earlier dimensions have lower numbers, so that the first range that fits is the one.
            if switch < first + count:
                outer, inner = divmod(switch - first, stride)
                return (outer * dimension.size + destination // stride % dimension.size) * stride + inner
            first += count
            stride *= dimension.size
        raise AssertionError("no such switch")

    def _checked(self, links: Ints, source: Ints, target: Ints) -> Ints:
        # bandwidth[-1] is read for missing links too, but `bad` is already set there.
        bad = (links < 0) | (self.topology.bandwidth[links] == 0)
        if bad.any():
            first = int(np.argmax(bad))
            pair = int(source[first]), int(target[first])
            if links[first] < 0:
                raise unreachable(self.topology, *pair)
            name = self.topology.node_name
            raise InputError(
                f"{self.topology.name}: no way from {name(pair[0])} to {name(pair[1])} in dimension order: link "
                f"{self.topology.link_name(int(links[first]))} is down, expected another routing, e.g. 'shortest'"
            )
        return links
