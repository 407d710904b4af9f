"""Routes of messages: shortest, spread by hash, adaptive, through rails, or by a table.

Every routing answers two questions: `Routing.paths`, the links of whole messages, for engines that fix the
way at the start; and `Routing.candidates`, the links a message may take next, for those that go hop by hop.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from armillary.base.allowed import Pace
from armillary.base.csv_text import CsvRows
from armillary.base.document import read_text
from armillary.base.errors import InputError
from armillary.platform.topology.graph import Bools, Ints, Topology
from armillary.platform.topology.reach import distances, unreachable

# 16 Mi numbers are 128 MiB.
_CACHED = 1 << 24
"""Numbers kept in tables of next links, over all destinations."""


@dataclass(frozen=True)
class Paths:
    """The links of messages: those of message i are ``link[first[i]:first[i + 1]]``, in order."""

    first: Ints
    link: Ints

    @classmethod
    def gather(cls, count: int, messages: list[Ints], links: list[Ints]) -> Paths:
        """Return the ways of `count` messages from their links in the order taken.

        Args:
            count: Number of messages.
            messages: In each array, every message at most once.
            links: The link that each of these messages takes next.
        """
        hops = np.zeros(count, np.int64)
        for who in messages:
            # A message appears at most once per array, so that += on a fancy index counts every hop.
            hops[who] += 1
        first = np.concatenate([[0], np.cumsum(hops)])
        link = np.empty(first[-1], np.int64)
        # `at` is where the next link of each message goes; it ends where the next message begins.
        at = first[:-1].copy()
        for who, taken in zip(messages, links, strict=True):
            link[at[who]] = taken
            at[who] += 1
        return cls(first, link)

    @property
    def hops(self) -> Ints:
        """(messages) number of links."""
        return np.diff(self.first)

    def __getitem__(self, message: int) -> Ints:
        """Return the links of one message."""
        return self.link[self.first[message] : self.first[message + 1]]


class Routing(ABC):
    """How messages find their way."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology

    @abstractmethod
    def candidates(self, node: int, destination: int) -> Ints:
        """Return the links by which a message at `node` may go on to `destination`, in ascending order.

        Raises:
            InputError: There is none.
        """

    @abstractmethod
    def paths(self, source: ArrayLike, destination: ArrayLike, flow: ArrayLike | None = None) -> Paths:
        """Return the ways of messages; none for a message to itself.

        Args:
            source: (messages) NPUs.
            destination: (messages) NPUs.
            flow: (messages) messages with the same number and ends take the same way; None: all of a pair do.

        Raises:
            InputError: A destination cannot be reached.
        """

    @abstractmethod
    def next_links(self, destination: int) -> tuple[Ints, Ints]:
        """Return the candidates of all nodes: (nodes + 1) where those of a node begin, (candidates) links."""

    def far(self, destination: int) -> Ints:
        """Return (nodes) links of the shortest ways to a destination, -1 where none leads to it."""
        return distances(self.topology, destination)


class Shortest(Routing):
    """The path with the fewest links; among several the one with the lowest link numbers."""

    def __init__(self, topology: Topology) -> None:
        super().__init__(topology)
        self._tables: OrderedDict[int, tuple[Ints, Ints]] = OrderedDict()
        self._kept = 0

    def candidates(self, node: int, destination: int) -> Ints:
        """See `Routing.candidates`."""
        first, links = self._table(destination)
        found = links[first[node] : first[node + 1]]
        if not len(found) and node != destination:
            raise self._lost(node, destination)
        return found

    def paths(self, source: ArrayLike, destination: ArrayLike, flow: ArrayLike | None = None) -> Paths:
        """See `Routing.paths`."""
        source, destination = np.broadcast_arrays(np.atleast_1d(source), destination)
        # broadcast_arrays gives read-only views of any integer type.
        source, destination = source.astype(np.int64), destination.astype(np.int64)
        numbers = np.zeros(source.shape, np.int64) if flow is None else np.broadcast_to(flow, source.shape)
        messages: list[Ints] = []
        taken: list[Ints] = []
        # Tables exist per destination: group the messages so that each table is built once and then may be
        # dropped.
        by_destination = np.argsort(destination, kind="stable")
        targets, starts = np.unique(destination[by_destination], return_index=True)
        # split leaves one empty group where there are no messages at all.
        groups = np.split(by_destination, starts[1:])[: len(targets)]
        pace = Pace(f"{self.topology.called}: routes", len(targets), "destinations", "fewer NPUs")
        for number, (target, group) in enumerate(zip(targets.tolist(), groups, strict=True)):
            pace.at(number)
            first, links = self._table(target)
            who, at, step = group, source[group], 0
            # All messages to one destination advance together, a hop per round.
            while True:
                going = at != target
                who, at = who[going], at[going]
                if not len(who):
                    break
                # Number of candidates at each message's node.
                count = first[at + 1] - first[at]
                if not count.all():
                    stuck = int(np.argmin(count))
                    raise self._lost(int(source[who[stuck]]), target, int(at[stuck]))
                # Possible with a table only: shortest ways come nearer with every hop.
                if step > self.topology.nodes:
                    raise self._circle(int(source[who[0]]), target)
                # Where nothing is to be chosen, to hash takes ten times as long as the rest of a hop.
                among = self._pick(count, at, source[who], target, numbers[who]) if count.max() > 1 else 0
                link = links[first[at] + among]
                messages.append(who)
                taken.append(link)
                at, step = self.topology.head[link], step + 1
        return Paths.gather(len(source), messages, taken)

    def next_links(self, destination: int) -> tuple[Ints, Ints]:
        """See `Routing.next_links`."""
        return self._table(destination)

    def _pick(self, count: Ints, at: Ints, source: Ints, destination: int, flow: Ints) -> Ints:
        """Return which of `count` candidates each message takes."""
        # The lowest link number, since tables are sorted by it.
        return np.zeros_like(count)

    def _allowed(self, destination: int) -> Bools:
        """Return (links) which may be taken on the way to `destination`."""
        far = distances(self.topology, destination)
        head, tail = self.topology.head, self.topology.tail
        # The destination may be an NPU that does not forward to others.
        passes = self.topology.forwards | (np.arange(self.topology.nodes) == destination)
        # A hop must come one link nearer: no circle can arise.
        nearer: Bools = (far[head] >= 0) & (far[tail] == far[head] + 1) & passes[head]
        nearer &= self.topology.bandwidth > 0
        return nearer

    def _table(self, destination: int) -> tuple[Ints, Ints]:
        """Return (nodes + 1) where the next links of a node begin in the second array."""
        if destination in self._tables:
            self._tables.move_to_end(destination)
            return self._tables[destination]
        # Links are sorted by tail, so that those that remain are, too.
        links = np.flatnonzero(self._allowed(destination))
        counts = np.bincount(self.topology.tail[links], minlength=self.topology.nodes)
        table = np.concatenate([[0], np.cumsum(counts)]), links
        self._tables[destination] = table
        self._kept += len(links) + len(table[0])
        # Least recently used first; one table must stay, as the caller is about to read it.
        while self._kept > _CACHED and len(self._tables) > 1:
            _, (first, old) = self._tables.popitem(last=False)
            self._kept -= len(first) + len(old)
        return table

    def _lost(self, source: int, destination: int, at: int | None = None) -> InputError:
        return unreachable(self.topology, source, destination)

    def _circle(self, source: int, destination: int) -> InputError:
        name = self.topology.node_name
        return InputError(
            f"{self.topology.called}: the way from {name(source)} to {name(destination)} goes round in a circle"
        )


class Ecmp(Shortest):
    """One of the shortest ways, chosen at every node by a hash of seed, node, source, destination and flow."""

    def __init__(self, topology: Topology, seed: int = 0) -> None:
        super().__init__(topology)
        self.seed = seed

    def _pick(self, count: Ints, at: Ints, source: Ints, destination: int, flow: Ints) -> Ints:
        # The node is hashed as well: without it, every switch would choose alike and use few of the ways
        # (polarisation).
        mixed = mix(np.full(len(at), self.seed), at, source, np.full(len(at), destination), flow)
        return (mixed % count.astype(np.uint64)).astype(np.int64)


class Adaptive(Ecmp):
    """The shortest way with the least in its queue, decided at every node while the message travels.

    Network model `packet` chooses so at every node; `paths` is what happens in an empty network.
    """

    def choose(self, node: int, destination: int, queued: Callable[[Ints], ArrayLike], flow: int = 0) -> int:
        """Return the link to take next: the candidate with the least queued, of several one by hash.

        Args:
            node: Where the message is.
            destination: Its NPU.
            queued: Called with the candidate links; returns what waits for each, in bytes or messages.
            flow: Number of the message, for the hash.
        """
        links = self.candidates(node, destination)
        waiting = np.asarray(queued(links))
        best = links[waiting == waiting.min()]
        one = np.ones(1, np.int64)
        # Without the source: the router sees the message's number only.
        return int(best[self._pick(one * len(best), one * node, one * 0, destination, one * flow)[0]])


class Rail(Ecmp):
    """Between hosts only along rails: first to the NPU of the own host on the rail of the destination (PXN).

    NCCL does so since 2.12: the message passes through the host's switch and that NPU to its NIC.

    Raises:
        InputError: The topology has no hosts.
    """

    def __init__(self, topology: Topology, seed: int = 0) -> None:
        super().__init__(topology, seed)
        if not topology.host:
            raise InputError(
                f"{topology.called}: routing 'rail' needs hosts, expected e.g. a rail-optimised topology"
            )
        # Links from NPUs into switches: whose hosts' NPUs they serve.
        inner = np.flatnonzero((topology.tail < topology.npus) & (topology.head >= topology.npus))
        hosts = topology.tail[inner] // topology.host
        low, high = np.full(topology.nodes, topology.nodes), np.full(topology.nodes, -1)
        np.minimum.at(low, topology.head[inner], hosts)
        np.maximum.at(high, topology.head[inner], hosts)
        # A switch that serves one host only is inside that host; leaves serve many.
        self._host = np.where(low == high, low, -1)
        self._host[: topology.npus] = np.arange(topology.npus) // topology.host

    def _allowed(self, destination: int) -> Bools:
        topology, per = self.topology, self.topology.host
        head, tail = topology.head, topology.tail
        rail, home = destination % per, destination // per
        is_npu = np.arange(topology.nodes) < topology.npus
        # NPUs on another rail than the destination's.
        off_rail = is_npu & (np.arange(topology.nodes) % per != rail)
        # Nodes of hosts other than the destination's: there, the rail has to be reached first.
        abroad = (self._host >= 0) & (self._host != home)
        inside = (self._host[tail] == self._host[head]) & (self._host[tail] >= 0)
        # Within a host: off the rail up into its switch, and from the switch down to the NPU on the rail.
        to_rail = inside & (off_rail[tail] & ~is_npu[head] | ~is_npu[tail] & is_npu[head] & ~off_rail[head])
        # Nodes where the rail decides. On the rail itself, and outside hosts, the shortest way holds.
        changed = abroad & (off_rail | ~is_npu)
        allowed: Bools = np.where(
            # to_rail needs no distance, and so must check for itself that links are up.
            changed[tail],
            to_rail & (topology.bandwidth > 0),
            super()._allowed(destination),
        )
        return allowed


class Static(Shortest):
    """Ways from a table: at each node the next one for each destination.

    Args:
        topology: The graph.
        table: (node, destination) -> next node.

    Raises:
        InputError: A next node is no neighbour.
    """

    def __init__(self, topology: Topology, table: Mapping[tuple[int, int], int]) -> None:
        super().__init__(topology)
        self._next: dict[int, list[int]] = {}
        for (node, destination), to in table.items():
            self._next.setdefault(destination, []).append(_link(topology, node, destination, to))

    @classmethod
    def read(cls, topology: Topology, path: str | Path) -> Static:
        """Return the routing of a CSV file with the columns node, destination, next (names of nodes)."""
        rows = CsvRows(path, read_text(Path(path), "routing table").splitlines())
        needed, header = {"node", "destination", "next"}, next(rows, [])
        if not needed <= set(header):
            raise InputError(f"{path}: got columns {header}, expected node, destination, next")
        table: dict[tuple[int, int], int] = {}
        # Few names and neighbours make many rows.
        numbers, neighbours = dict[str, int](), set[tuple[int, int]]()
        for row in rows.named(header):
            names = [row[key] for key in ("node", "destination", "next")]
            where = f"{path}:{rows.line}"
            if not all(names):
                raise InputError(
                    f"{where}: got {len(row) - 1} or fewer names, expected node, destination, next"
                )
            try:
                node, destination, to = (
                    numbers[name] if name in numbers else numbers.setdefault(name, topology.node(name))
                    for name in names
                )
                if (node, to) not in neighbours:
                    _link(topology, node, destination, to)
                    neighbours.add((node, to))
            except InputError as error:
                raise InputError(f"{where}: {error}") from None
            if table.setdefault((node, destination), to) != to:
                other = topology.node_name(table[node, destination])
                raise InputError(
                    f"{where}: what is at {names[0]} for {names[1]} goes to {names[2]}, and to {other} above, "
                    "expected one of them"
                )
        return cls(topology, table)

    def _allowed(self, destination: int) -> Bools:
        allowed = np.zeros(self.topology.links, np.bool_)
        allowed[self._next.get(destination, [])] = True
        return allowed & (self.topology.bandwidth > 0)

    def _lost(self, source: int, destination: int, at: int | None = None) -> InputError:
        name = self.topology.node_name
        # The node at which the message is stuck tells which row is missing.
        where = name(source if at is None else at)
        return InputError(
            f"{self.topology.called}: no way from {name(source)} to {name(destination)}: the table has no link that "
            f"is up from {where}"
        )


def _link(topology: Topology, node: int, destination: int, to: int) -> int:
    """Return the link from a node to the next one; of parallel links between two a table means the first."""
    link = int(topology.between(node, to))
    if link < 0:
        name = topology.node_name
        raise InputError(
            f"{topology.called}: the table sends what is at {name(node)} for {name(destination)} to "
            f"{name(to)}, expected a neighbour, e.g. {name(int(topology.head[topology.first_link[node]]))}"
        )
    return link


def mix(*parts: Ints) -> NDArray[np.uint64]:
    """Return a hash of integers, element by element (the finaliser of SplitMix64, Steele et al. 2014)."""
    state = np.zeros(len(parts[0]), np.uint64)
    # 2**64 divided by the golden ratio: consecutive inputs spread evenly.
    for part in parts:
        state = state + part.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state ^= state >> np.uint64(31)
    return state
