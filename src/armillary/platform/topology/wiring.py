"""How graphs are put together: tiers of nodes, then links between arrays of nodes."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from armillary.base.errors import InputError
from armillary.platform.network import Dimension
from armillary.platform.topology.graph import UNBOUNDED, Bools, Ints, Tier, Topology, check_size


class Wiring:
    """A topology under construction; its first tier are the NPUs.

    Args:
        name: Of the topology.
        npus: Number of NPUs.
        buffer: Bytes at the end of every link.
    """

    def __init__(self, name: str, npus: int, buffer: int = UNBOUNDED) -> None:
        self.name, self.npus, self.buffer = name, npus, buffer
        self.tiers = [Tier("npu", 0, npus)]
        self._kinds: list[str] = []
        self._columns: list[tuple[Ints, ...]] = []

    @property
    def nodes(self) -> int:
        """Number of nodes so far."""
        return self.tiers[-1].first + self.tiers[-1].count

    def tier(self, name: str, count: int) -> Ints:
        """Add `count` switches and return their numbers."""
        self.tiers.append(Tier(name, self.nodes, count))
        return np.arange(count) + self.tiers[-1].first

    def connect(
        self,
        tails: ArrayLike,
        heads: ArrayLike,
        kind: str,
        bandwidth: ArrayLike,
        latency: ArrayLike,
        *,
        back: float | None = None,
        one_way: bool = False,
        buffer: ArrayLike | None = None,
    ) -> None:
        """Add links from `tails` to `heads`, element by element, and back with the same numbers.

        Args:
            tails: Nodes; broadcast against `heads`.
            heads: Nodes.
            kind: What these links are.
            bandwidth: Bytes per ns, above 0.
            latency: ns.
            back: Bandwidth of the way back, if it differs.
            one_way: No way back.
            buffer: Bytes, if not the one of this wiring.
        """
        # An empty tier (spines: 0) has no links, and broadcasting would fail.
        if not np.size(tails) or not np.size(heads):
            return
        if kind not in self._kinds:
            # First mention is the order of the legend.
            self._kinds.append(kind)
        room = self.buffer if buffer is None else buffer
        number = self._kinds.index(kind)
        columns = np.broadcast_arrays(tails, heads, bandwidth, latency, room, number)
        # Before the arrays are copied: a graph that is too large must fail, not fill the memory.
        check_size(
            self.name, sum(len(part[0]) for part in self._columns) + (1 if one_way else 2) * columns[0].size
        )
        tail, head, rate, *rest = (column.ravel() for column in columns)
        if rate.size and rate.min() <= 0:
            raise InputError(f"{self.name}: a link has bandwidth {rate.min():g}, expected more than 0")
        self._columns.append((tail, head, rate, *rest))
        if not one_way:
            self._columns.append((head, tail, rate if back is None else np.full(rate.shape, back), *rest))

    def topology(
        self,
        *,
        forwards: bool | Bools = False,
        labels: tuple[str, ...] = (),
        dimensions: tuple[Dimension, ...] = (),
        host: int = 0,
        block: ArrayLike = (),
        shape: tuple[int, ...] = (),
    ) -> Topology:
        """Return the graph; NPUs forward messages of others if `forwards`, switches always do."""
        # A single NPU: six empty columns, as many as a link has.
        columns = zip(*self._columns, strict=True) if self._columns else [[np.empty(0)]] * 6
        tail, head, rate, latency, room, kind = (np.concatenate(parts) for parts in columns)
        tail, head = tail.astype(np.int64), head.astype(np.int64)
        # By tail, then head, as `Topology.between` relies on; lexsort's last key is the first.
        order = np.lexsort((head, tail))
        # Switches always forward.
        passing = np.ones(self.nodes, np.bool_)
        passing[: self.npus] = forwards
        return Topology(
            name=self.name,
            npus=self.npus,
            first_link=np.concatenate([[0], np.cumsum(np.bincount(tail, minlength=self.nodes))]),
            head=head[order],
            bandwidth=rate[order].astype(np.float64),
            latency=latency[order].astype(np.float64),
            buffer=room[order].astype(np.int64),
            kind=kind[order].astype(np.int64),
            kinds=tuple(self._kinds),
            tiers=tuple(self.tiers),
            forwards=passing,
            labels=labels,
            dimensions=dimensions,
            host=host,
            block=np.asarray(block, np.int64),
            shape=shape,
        )
