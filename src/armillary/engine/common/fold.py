"""Partition ranks into classes that provably behave alike, so that each class is simulated once.

Data-, tensor- and expert-parallel ranks do the same thing at the same time. Simulating each of 4,096 equal
ranks would be 4,095 times wasted.

This is colour refinement. Ranks start with the colour of their graph's structure and hardware. A rank's
signature adds the colours of the ranks it deals with, in every communicator and for every send and receive,
in the relative order in which its schedules deal with them, and what the links to them cost. Refine until no
colour splits. Two ranks of one colour then see equal histories: by induction over events, whatever happens to
one of them happens at the same tick to the other. The order of peers matters: two rings that run A, B, A, B
and A, A, B, B have the same peers but not the same ticks. In profile `physical`, where the order within a
tick has no effect, only the set of colours counts.

Folding is exact. `--no-fold` simulates every rank and gives the same tick for each of them, and a
property-based test compares the two. Some ranks are never folded: those that share a first-come-first-served
server (a memory pool, the memory of a node) are served in rank order at equal ticks, so each of them is a
class of its own.

Where a trace has a `RankGrid`, groups and peers enter the refinement as columns over all ranks at once, and
only representatives, and the ranks they deal with, ever get a graph of their own: 131,072 ranks of 16 classes
are lowered in less than a second. `armillary.trace.expand` writes every rank out instead; a property-based
test says that the ticks are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from armillary.engine.common import network
from armillary.engine.common.items import Channel, Channels, View, channel_at
from armillary.platform.model import Platform
from armillary.platform.network import Dimension
from armillary.trace.columns import distinct_columns, distinct_rows

Colours = NDArray[np.int64]


@dataclass(frozen=True)
class Order:
    """A relative order in which members of a ring see each other; `peers` are those they deal with."""

    relative: str
    peers: tuple[int, ...]
    uniform: bool


@dataclass
class Ring:
    """Lines of ranks, (lines, n), whose members see each other in some orders; `dim` is -1 for a group."""

    dim: int
    lines: NDArray[np.int64]
    orders: frozenset[Order]
    slots: NDArray[np.int64]
    """(lines, n) at which of its communicators (in order of first use) each member does so, -1: never."""


def world_lines(platform: Platform, dim: int) -> NDArray[np.int64]:
    """Return all lines of one dimension, (npus / n, n)."""
    stride = network.strides(platform.dimensions)[dim]
    n = platform.dimensions[dim].size
    ranks = np.arange(platform.npus).reshape(-1, n, stride)
    return np.ascontiguousarray(ranks.transpose(0, 2, 1).reshape(-1, n))


def fold(
    colour: Colours, rings: list[Ring], pairs: list[Pairs], dimensions: tuple[Dimension, ...]
) -> Colours:
    """Return the class of every rank, numbered in order of their lowest rank."""
    colour = _number(colour)
    known: dict[object, int] = {}
    # Slots are -1 … width - 2; colour * width + slot + 1 is one number for both.
    width = max((int(ring.slots.max(initial=-1)) for ring in rings), default=-1) + 2
    # Each pass that splits adds a colour, so there are fewer passes than ranks; in practice a handful.
    while not _settled(colour, rings, pairs):
        columns: dict[object, Colours] = {}
        for ring in rings:
            _sign_ring(columns, ring, colour, width, dimensions, known)
        for p in pairs:
            p.sign(columns, colour, known)
        refined = colour
        # A pair (old colour, what the rank met) as one number: colours only ever split, so this ends.
        for column in columns.values():
            refined = _number(refined * (int(column.max()) + 2) + column + 1)
        if refined.max(initial=0) == colour.max(initial=0):
            break  # as many colours as before: nothing split
        colour = refined
    return colour


def by_place(colour: Colours, channels: Channels) -> Colours:
    """Split colours by `_places`, for an engine in which the order of messages within a tick matters."""
    place = _places(channels, len(colour))
    return colour * (int(place.max(initial=0)) + 1) + place


def _places(channels: Channels, npus: int) -> Colours:
    """Return the place of each rank among the ranks that messages link it with, directly or not.

    Messages of one tick arrive in the order of the ranks that sent them, so a ring of ranks that all
    send at once is not symmetric; sets of linked ranks are alike only with their members in order.
    """
    root = list(range(npus))

    def find(rank: int) -> int:
        while root[rank] != rank:
            # Union-find with path halving.
            root[rank] = root[root[rank]]
            rank = root[rank]
        return rank

    for _, source, destination, _ in channels:
        root[find(source)] = find(destination)
    # Ranks by their set of linked ranks; the place in the set follows from a stable sort.
    linked = np.array([find(rank) for rank in range(npus)] if channels else root, np.int64)
    order = np.argsort(linked, kind="stable")
    first = np.searchsorted(linked[order], linked[order])
    place = np.empty(npus, np.int64)
    place[order] = np.arange(npus) - first
    return place


def _settled(colour: Colours, rings: list[Ring], pairs: list[Pairs]) -> bool:
    """Tell whether nothing can split: one colour, and only rings in which every member sees the same."""
    same = colour.max(initial=0) == 0 and not pairs
    return same and all(
        order.uniform
        and order.relative != "absolute"
        and ring.lines.size == len(colour)
        and bool((ring.slots == ring.slots[0, 0]).all())
        for ring in rings
        for order in ring.orders
    )


def _number(colour: Colours) -> Colours:
    """Renumber colours in order of first appearance."""
    if colour.size and not colour.any():
        return colour
    return distinct_rows(colour[:, None])[1]


def _sign_ring(
    columns: dict[object, Colours],
    ring: Ring,
    colour: Colours,
    width: int,
    dimensions: tuple[Dimension, ...],
    known: dict[object, int],
) -> None:
    own, slots = colour[ring.lines], ring.slots
    # A peer is known by its colour and by which of its communicators this one is to it.
    met = own * width + slots + 1
    n = ring.lines.shape[1]
    if all(order.uniform and order.relative == "set" for order in ring.orders):
        # Profile physical: every member of a line sees the same set, so one identity per line.
        values = np.broadcast_to(_sets(met, known)[:, None], met.shape)
    elif all(order.uniform for order in ring.orders):
        # Lines of equal colours have equal identities: each distinct line once.
        rows, row_of = np.unique(met, axis=0, return_inverse=True)
        ids = np.array(
            [[_identify(row, i, ring.orders, b"", known) for i in range(n)] for row in rows.tolist()]
        )
        values = ids[row_of.ravel()]
    else:
        values = np.empty(ring.lines.shape, np.int64)
        for line, members in enumerate(ring.lines):
            row = met[line].tolist()
            costs = _costs(members, ring.orders, dimensions)
            values[line] = [_identify(row, i, ring.orders, costs[i], known) for i in range(n)]
    if len(_values(met)) > len(_values(own)):
        values = values.copy()
        for line in np.flatnonzero((slots != slots[:, :1]).any(axis=1)).tolist():
            # Ranks of one class would meet here in collectives that each of them runs at another place.
            if len(set(met[line].tolist())) > len(set(own[line].tolist())):
                values[line] = [known.setdefault(("rank", m), len(known)) for m in ring.lines[line].tolist()]
    members, values, slots = ring.lines.ravel(), values.ravel(), slots.ravel()
    for slot in (_values(slots + 1) - 1).tolist():
        if slot >= 0:
            column = columns.setdefault((slot, ring.dim), np.full(len(colour), -1, np.int64))
            here = slots == slot
            column[members[here]] = values[here]


def _values(small: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the distinct values of integers from 0 on that are no more than a few times as many, ascending."""
    return np.flatnonzero(np.bincount(small.ravel()))


def _sets(met: Colours, known: dict[object, int]) -> Colours:
    """Return a number per line for the set of (colour, slot) on it, (lines,)."""
    rows = np.sort(met, axis=1)
    first, of_line = distinct_rows(rows)
    ids = [known.setdefault(np.unique(rows[line]).tobytes(), len(known)) for line in first.tolist()]
    return np.array(ids, np.int64)[of_line]


def _identify(row: list[int], i: int, orders: frozenset[Order], cost: bytes, known: dict[object, int]) -> int:
    n = len(row)
    parts: list[object] = [cost]
    for relative in sorted({order.relative for order in orders}):
        # A ring seen from member i: its own colour first, then downstream.
        if relative == "rotate":
            parts.append(tuple(row[i:] + row[:i]))
        elif relative == "set":
            parts.append(("set", *sorted(set(row))))
        # Recursive halving and doubling: members see each other by i xor k, only for a power of two.
        elif relative == "pair" and n & (n - 1) == 0:
            parts.append(("pair", *(row[i ^ k] for k in range(n))))
        else:
            # Any other schedule: the position itself matters.
            parts.append((i, *row))
    key = tuple(parts)
    return known.setdefault(key, len(known))


def _costs(
    members: NDArray[np.int64], orders: frozenset[Order], dimensions: tuple[Dimension, ...]
) -> list[bytes]:
    """Return a key per member for the links to its relative peers: (dimension, hops) of each."""
    n = len(members)
    parts = []
    for order in sorted((o for o in orders if not o.uniform), key=lambda o: (o.relative, o.peers)):
        me, peers = np.arange(n)[:, None], np.array(order.peers)[None, :]
        if order.relative != "rotate":
            parts.append(me)  # positions differ in any case
            continue
        for end in ((me + peers) % n, (me - peers) % n):
            parts += list(network.route(dimensions, members[me], members[end]))
    # A row of bytes per member is hashable, and compares all its links at once.
    table = np.concatenate(parts, axis=1)
    return [row.tobytes() for row in table]


def _first_crossed(platform: Platform, source: Colours, destination: Colours) -> Colours:
    dimension, hop = network.route(platform.dimensions, source, destination)
    return dimension + hop * len(platform.dimensions)


@dataclass
class Pairs:
    """Point-to-point partners of ranks with as many of them, (ranks, partners), and a constant per partner."""

    ranks: NDArray[np.int64]
    peers: NDArray[np.int64]
    marks: NDArray[np.int64]

    def sign(self, columns: dict[object, Colours], colour: Colours, known: dict[object, int]) -> None:
        """Write the identity of (partner colours, marks) of these ranks into the column of pairs."""
        column = columns.setdefault("pairs", np.full(len(colour), -1, np.int64))
        # Colour of the partner, and the constant mark of what is exchanged with it.
        both = np.concatenate([colour[self.peers], self.marks], axis=1)
        first, which = distinct_columns(both.T)
        met = [known.setdefault(("pairs", row.tobytes()), len(known)) for row in both[first]]
        column[self.ranks] = np.array(met, np.int64)[which]


def pairs_of(
    views: list[View],
    view_of: NDArray[np.int32],
    channels: Channels,
    platform: Platform,
    path_code: Callable[[Platform, Colours, Colours], Colours] | None = None,
) -> list[Pairs]:
    """Return the partners of all ranks, by view: one for each of its items.

    `path_code` encodes the links between two ranks; by default messages pay the first dimension they cross.
    """
    known: dict[object, int] = {}
    found = []
    for v, view in enumerate(views):
        items = view.pairs()
        if not items:
            continue
        ranks = np.flatnonzero(view_of == v)
        peers = np.broadcast_to(view.peer[items], (len(ranks), len(items)))
        path = (path_code or _first_crossed)(platform, ranks[:, None], peers)
        marks = np.empty((len(ranks), len(items)), np.int64)
        for a, rank in enumerate(ranks.tolist()):
            here: dict[Channel, int] = {}
            for b, item in enumerate(items):
                channel = channel_at(view, item, rank)
                if channel not in here:
                    sends, receives = channels[channel]
                    # Which items meet on the channel, and what lies between: equal for ranks whose messages
                    # behave alike.
                    key = (tuple(sends), tuple(receives), int(path[a, b]))
                    here[channel] = known.setdefault(key, len(known))
                marks[a, b] = here[channel]
        found.append(Pairs(ranks, peers, marks))
    return found
