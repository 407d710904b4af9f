"""The messages of a trace whose peers follow from rules: who exchanges what with whom, for all ranks at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.engine.common.fold import Pairs
from armillary.engine.common.items import Channel, View
from armillary.engine.physical.workload import path_code
from armillary.platform.model import Platform
from armillary.trace.axis_sets import Route
from armillary.trace.columns import distinct_columns
from armillary.trace.grid import RankGrid

Ints = NDArray[np.int64]
Kind = tuple[bool, int, int]
"""(sends, tag, bytes) of an item."""
ItemSet = dict[Kind, list[int]]
"""The items with which a rank deals with one peer."""


@dataclass(frozen=True, eq=False)
class Peers:
    """The peer of each rank of one view on each of its routes, (ranks, routes)."""

    ranks: Ints
    table: Ints

    def of(self, rank: int) -> Ints:
        """Return the peers of a rank."""
        found: Ints = self.table[np.searchsorted(self.ranks, rank)]
        return found


class GridMessages:
    """Pairs (rank, peer) in ascending order, and which item set of items each is."""

    def __init__(
        self, views: list[View], view_of: NDArray[np.int32], routes: list[list[Route]], grid: RankGrid
    ) -> None:
        """Find all pairs.

        Raises:
            InputError: a message goes to a rank that is not there, or to the one that sends it.
        """
        self.n = grid.n_ranks
        self.peers: list[Peers] = []
        for v, (view, mine) in enumerate(zip(views, routes, strict=True)):
            ranks = np.flatnonzero(view_of == v)
            table = (
                np.array([route.peers(grid, ranks) for route in mine], np.int64)
                .reshape(len(mine), len(ranks))
                .T
            )
            self.peers.append(Peers(ranks, table))
            _check(view, self.peers[v], self.n)
        self._items: dict[int, ItemSet] = {-1: {}}
        self._by_route = [_by_route(view) for view in views]
        first = np.cumsum([0, *map(len, routes)])
        self.item_sets: list[tuple[int, tuple[int, ...]]] = [
            (v, (k,)) for v, mine in enumerate(routes) for k in range(len(mine))
        ]
        # A pair (rank, peer) as one sortable number.
        keys = np.concatenate([(p.ranks[:, None] * self.n + p.table).ravel() for p in self.peers])
        numbers = np.concatenate(
            [np.tile(first[v] + np.arange(p.table.shape[1]), len(p.ranks)) for v, p in enumerate(self.peers)]
        )
        self.keys, at, self._pair_of, count = np.unique(
            keys, return_index=True, return_inverse=True, return_counts=True
        )
        self.item_set = numbers[at]
        self._merge(numbers, np.flatnonzero(count > 1))
        # The items with which the peer answers: both directions decide whether two pairs are alike.
        self.back = self._find(self.keys % self.n, self.keys // self.n)

    def _merge(self, numbers: Ints, several: Ints) -> None:
        """Make one item set of the routes that lead to the same peer."""
        if not several.size:
            return
        merged: dict[int, list[int]] = defaultdict(list)
        for entry in np.flatnonzero(np.isin(self._pair_of, several)).tolist():
            merged[int(self._pair_of[entry])].append(int(numbers[entry]))
        known: dict[tuple[int, ...], int] = {}
        for pair, parts in merged.items():
            key = tuple(sorted(parts))
            if key not in known:
                known[key] = len(self.item_sets)
                self.item_sets.append(
                    (self.item_sets[key[0]][0], tuple(self.item_sets[part][1][0] for part in key))
                )
            self.item_set[pair] = known[key]

    def _find(self, source: Ints, peer: Ints) -> Ints:
        """Return the item sets of pairs, -1 where there is none."""
        wanted = source * self.n + peer
        at = np.minimum(np.searchsorted(self.keys, wanted), max(len(self.keys) - 1, 0))
        return np.where(self.keys[at] == wanted, self.item_set[at], -1) if len(self.keys) else wanted

    def _item_set(self, source: int, peer: int) -> int:
        """Return what `_find` returns for one pair."""
        wanted = source * self.n + peer
        at = int(self.keys.searchsorted(wanted))
        return int(self.item_set[at]) if at < len(self.keys) and self.keys[at] == wanted else -1

    def items(self, item_set: int) -> ItemSet:
        """Return the items of an item set by kind; none for -1."""
        if item_set not in self._items:
            v, routes = self.item_sets[item_set]
            found: ItemSet = dict(self._by_route[v][routes[0]])
            for route in routes[1:]:
                for kind, items in self._by_route[v][route].items():
                    found[kind] = sorted([*found.get(kind, ()), *items])
            self._items[item_set] = found
        return self._items[item_set]

    def channel(self, channel: Channel) -> tuple[list[int], list[int]]:
        """Return the items that send on a channel and those that receive."""
        tag, source, target, size = channel
        there, back = (self.items(self._item_set(a, b)) for a, b in ((source, target), (target, source)))
        return there.get((True, tag, size), []), back.get((False, tag, size), [])

    def pairs(self, platform: Platform) -> list[Pairs]:
        """Return the partners of all ranks, for the fold."""
        mark = (self.item_set * (len(self.item_sets) + 1) + self.back + 1)[self._pair_of]
        found, at = [], 0
        for peers in self.peers:
            if peers.table.size:
                path = path_code(platform, peers.ranks[:, None], peers.table)
                mine = mark[at : at + path.size].reshape(path.shape)
                marks = np.unique(mine, return_inverse=True)[1].reshape(path.shape) * (path.max() + 1) + path
                # Views differ in colour: their marks need not differ.
                found.append(Pairs(peers.ranks, peers.table, marks))
                at += path.size
        return found

    @cached_property
    def lost(self) -> list[tuple[int, Channel]]:
        """How many messages of each kind are never received, and where one of them goes."""
        return list(self._lost())

    def _lost(self) -> Iterator[tuple[int, Channel]]:
        both = np.stack([self.item_set, self.back])
        first, which = distinct_columns(both)
        for at, times in zip(first.tolist(), np.bincount(which).tolist(), strict=True):
            there, back = both[:, at].tolist()
            received = self.items(back)
            for (sends, tag, size), items in self.items(there).items():
                missing = len(items) - len(received.get((False, tag, size), []))
                if sends and missing > 0:
                    source, target = divmod(int(self.keys[at]), self.n)
                    yield missing * times, (tag, source, target, size)


def _check(view: View, peers: Peers, n: int) -> None:
    graph, table = view.nodes.graph, peers.table
    own = table == peers.ranks[:, None]
    for row, route in np.argwhere(own | (table < 0) | (table >= n))[:1].tolist():
        item = int(np.flatnonzero(view.peer == route)[0])
        node = graph.node(int(view.nodes.order[view.nodes.items[item]]))
        rank, peer = int(peers.ranks[row]), int(table[row, route])
        if rank == peer:
            raise InputError(f"{node} on rank {rank} has itself as peer; expected another rank")
        raise InputError(f"{node} has peer {peer}; expected a rank from 0 to {n - 1}")


def _by_route(view: View) -> list[ItemSet]:
    found: dict[int, ItemSet] = defaultdict(dict)
    items, kinds, examples = view.messages()
    order = np.argsort(kinds, kind="stable")
    parts = np.split(items[order], np.cumsum(np.bincount(kinds))[:-1]) if items.size else []
    for item, part in zip(examples.tolist(), parts, strict=True):
        kind = (view.sends(item), int(view.tag[item]), int(view.size[item]))
        found[int(view.peer[item])][kind] = part.tolist()
    return [found[route] for route in range(int(view.peer.max(initial=-1)) + 1)]
