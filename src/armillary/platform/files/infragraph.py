"""InfraGraph files as graphs of NPUs and switches.

Every ``xpu`` is an NPU: by its annotation ``rank``, else in order of instances. All other components pass messages on;
what leads nowhere (disks, management) is left out. Three things are simpler than in the file, as in hardware and
in the reference's own exports: ports are part of the switch or NIC that they are joined with by a link without numbers;
links between the same two nodes are one link of their bandwidth together; and switches of one instance that join the
same nodes by the same links are one switch, over which a host's links spread each message.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from armillary.base.document import Document, read_document
from armillary.base.errors import InputError, nearest
from armillary.platform.files.infragraph_links import LinkNumbers, assumed, stated
from armillary.platform.files.infragraph_notes import Noted, read_notes
from armillary.platform.files.infragraph_parts import Edges, Expansion, Parts
from armillary.platform.files.infragraph_schema import Annotations, parsed
from armillary.platform.topology.graph import UNBOUNDED, Topology
from armillary.platform.topology.reach import distances
from armillary.platform.topology.wiring import Wiring

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class InfraGraph:
    """A graph that was read from an InfraGraph, what was assumed for it, and what is odd about it."""

    topology: Topology
    assumed: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def read_infragraph(
    path: str | Path | Mapping[str, object],
    links: Mapping[str, tuple[float | None, float | None]] | None = None,
    buffer: int = UNBOUNDED,
    forward: bool | None = None,
) -> InfraGraph:
    """Return the graph of an InfraGraph file, or of what such a file holds.

    Args:
        path: YAML or JSON.
        links: Name of a link -> bandwidth in bytes per ns and latency in ns that it has, whatever the file says.
        buffer: Bytes at the end of every link.
        forward: Whether xpus pass on messages for others; None: if nothing else joins all of them, as in a torus.

    Raises:
        InputError: The file is missing or malformed, stands for too many parts, or has no xpu.
    """
    document = read_document(dict(path) if isinstance(path, Mapping) else path, "InfraGraph", "yaml")
    found, notes, at = parsed(document)
    parts = Expansion(found, document, at).whole()
    return _Builder(document, parts, notes, dict(links or {}), buffer).build(forward)


class _Builder:
    def __init__(
        self,
        document: Document,
        parts: Parts,
        notes: Annotations,
        links: dict[str, tuple[float | None, float | None]],
        buffer: int,
    ) -> None:
        self.document, self.parts, self.given, self.buffer = document, parts, links, buffer
        self.annotations, self.notes = notes, Noted()
        self.texts: dict[int, dict[str, None]] = {}

    def build(self, forward: bool | None) -> InfraGraph:
        document, parts = self.document, self.parts
        sorts = np.array(parts.sorts)
        npus = np.flatnonzero(sorts == "xpu")
        if not len(npus):
            raise InputError(
                f"{document.name}: has no component of choice xpu, expected at least one to compute on"
            )
        self.notes = read_notes(document.name, self.annotations, parts)
        names = {edges.link.name for edges in parts.edges}
        for name in self.given:
            if name not in names:
                raise InputError(f"{document.name}: no edge is of link '{name}'{nearest(name, names)}")
        owner = self._contracted()
        kinds, columns = self._links(owner)
        columns = _merged(columns)
        columns = self._spread(owner, columns)
        columns = self._pruned(columns, npus)
        # Links to what leads nowhere move no answer, whatever they are taken for.
        texts = [text for kind in np.unique(columns[2]).tolist() for text in self.texts.get(int(kind), ())]
        topology = self._topology(self._ranked(npus), kinds, columns)
        if forward or (forward is None and not _joined(topology)):
            topology = replace(topology, forwards=np.ones(topology.nodes, np.bool_))
            if forward is None:
                texts.append("xpus pass on messages for others: nothing else joins all of them")
        return InfraGraph(topology, (*parts.missing, *texts), (*parts.notes, *self.notes.warnings))

    def _contracted(self) -> Ints:
        """Return (nodes) the node that each is part of: a port may be part of its switch."""
        sorts, owner = self.parts.sorts, np.arange(len(self.parts.names))
        plain = {"port"}

        def root(node: int) -> int:
            while owner[node] != node:
                owner[node] = owner[owner[node]]
                node = int(owner[node])
            return node

        for edges in self.parts.edges:
            if (
                not edges.inside
                or edges.link.name in self.given
                or self._noted(edges)[0].bandwidth is not None
                or self.notes.of_edges(edges)
            ):
                continue
            for a, b in zip(edges.a.tolist(), edges.b.tolist(), strict=True):
                if sorts[a] not in plain and sorts[b] not in plain:
                    continue
                a, b = root(a), root(b)
                # A port is part of one thing: what it joins stays two.
                if a == b or (sorts[a] not in plain and sorts[b] not in plain):
                    continue
                low, high = (a, b) if sorts[b] in plain else (b, a)
                owner[high] = low
        return np.array([root(node) for node in range(len(owner))], np.int64)

    def _links(self, owner: Ints) -> tuple[list[str], list[Ints | NDArray[np.float64]]]:
        """Return the names of links, and columns: both ends, number of the name, bandwidth, latency."""
        kinds: dict[str, int] = {}
        rows: list[tuple[Ints, Ints, int, float, float]] = []
        each = self._links_of_npus()
        for edges in self.parts.edges:
            a, b = owner[edges.a], owner[edges.b]
            # What became one node needs no link.
            apart = a != b
            special = [(of & apart, numbers) for of, numbers in self.notes.of_edges(edges)]
            rest = apart & ~np.any([of for of, _ in special], axis=0) if special else apart
            link = edges.link
            found, note = self._noted(edges)
            own = self.given.get(link.name, (None, None))
            kind = kinds.setdefault(link.name, len(kinds))
            for of, numbers in [*special, (rest, LinkNumbers(None, None))]:
                if not of.any():
                    continue
                # The command line's study comes first, then what is said of the very edge, then of its link.
                numbers = _first(own, numbers, found)
                rate, latency, text = assumed(link.name, numbers, each[link.name])
                for said in (note if numbers.bandwidth == found.bandwidth else "", text):
                    if said:
                        self.texts.setdefault(kind, {})[said] = None
                rows.append((a[of], b[of], kind, rate, latency))
        shape = [len(row[0]) for row in rows]
        columns: list[Ints | NDArray[np.float64]] = [
            np.concatenate([row[side] for row in rows]) if rows else np.empty(0, np.int64) for side in (0, 1)
        ]
        columns += [np.repeat(np.array([row[at] for row in rows]), shape) for at in (2, 3, 4)]
        return list(kinds), columns

    def _noted(self, edges: Edges) -> tuple[LinkNumbers, str]:
        """Return the numbers of a link by its annotations, else as it states them, and what of them is assumed."""
        found, note = stated(edges.link)
        noted = self.notes.links.get(edges.link.name, LinkNumbers(None, None))
        return _first(noted, found), note if noted.bandwidth is None else ""

    def _links_of_npus(self) -> dict[str, int]:
        """Return by the name of a link how many of them the NPU with most has."""
        ends: dict[str, list[Ints]] = defaultdict(list)
        for edges in self.parts.edges:
            ends[edges.link.name] += [edges.a, edges.b]
        is_npu = np.array(self.parts.sorts) == "xpu"
        most = {}
        for name, columns in ends.items():
            count = np.bincount(np.concatenate(columns), minlength=len(is_npu))[is_npu]
            most[name] = max(int(count.max()), 1)
        return most

    def _spread(
        self, owner: Ints, columns: list[Ints | NDArray[np.float64]]
    ) -> list[Ints | NDArray[np.float64]]:
        """Return the links with alike switches of an instance taken for one."""
        a, b, kind, rate, latency = columns
        switches = {node for node in set(owner.tolist()) if self.parts.sorts[node] == "switch"}
        around: dict[int, list[tuple[int, int, float, float]]] = defaultdict(list)
        for tail, head, *numbers in zip(*(column.tolist() for column in columns), strict=True):
            for one, other in ((tail, head), (head, tail)):
                if one in switches:
                    around[one].append((other, *numbers))
        alike: dict[object, list[int]] = defaultdict(list)
        for node, ends in around.items():
            key = (self.parts.instance[node], self.parts.wholes[node], tuple(sorted(ends)))
            alike[key].append(node)
        to = np.arange(len(owner))
        for group in alike.values():
            to[group] = group[0]
        if (to == np.arange(len(to))).all():
            return columns
        return _merged([to[a], to[b], kind, rate, latency])

    def _pruned(
        self, columns: list[Ints | NDArray[np.float64]], npus: Ints
    ) -> list[Ints | NDArray[np.float64]]:
        """Return the links without those to what leads nowhere."""
        count = len(self.parts.names)
        is_npu = np.zeros(count, np.bool_)
        is_npu[npus] = True
        while True:
            a, b = columns[0].astype(np.int64), columns[1].astype(np.int64)
            pairs = np.unique(np.stack([np.minimum(a, b), np.maximum(a, b)], 1), axis=0)
            degree = np.bincount(pairs.ravel(), minlength=count)
            stays = ~(((degree[a] < 2) & ~is_npu[a]) | ((degree[b] < 2) & ~is_npu[b]))
            if stays.all():
                return columns
            columns = [column[stays] for column in columns]

    def _ranked(self, npus: Ints) -> Ints:
        """Return the NPUs by rank: by their annotations, else in order."""
        ranks = self.notes.ranks
        if not ranks:
            return npus
        if sorted(ranks) != list(range(len(npus))) or len(set(ranks.values())) != len(npus):
            raise InputError(
                f"{self.document.name}: annotations: {len(ranks)} ranks of {len(npus)} xpus, expected 0 to "
                f"{len(npus) - 1}, each once"
            )
        return np.array([ranks[rank] for rank in range(len(npus))], np.int64)

    def _topology(self, npus: Ints, kinds: list[str], columns: list[Ints | NDArray[np.float64]]) -> Topology:
        parts = self.parts
        name = self.document.path.stem if self.document.path else "infragraph"
        wiring = Wiring(name, len(npus), self.buffer)
        order = npus.tolist()
        used = np.unique(np.concatenate([columns[0], columns[1]]).astype(np.int64)).tolist()
        others: dict[str, list[int]] = defaultdict(list)
        chosen = set(order)
        for node in used:
            if node not in chosen:
                others[parts.sorts[node]].append(node)
        # Switches first: what else passes messages on are NICs, CPUs and ports.
        for sort in sorted(others, key=lambda each: (each != "switch", each)):
            wiring.tier(sort, len(others[sort]))
            order += others[sort]
        number = np.full(len(parts.names), -1)
        number[order] = np.arange(len(order))
        a, b, kind, rate, latency = columns
        for at, title in enumerate(kinds):
            of = kind == at
            wiring.connect(number[a[of]], number[b[of]], title, rate[of], latency[of])
        instance = np.array(parts.instance)[npus]
        sizes = np.unique(instance, return_counts=True)[1]
        # Hosts are consecutive ranks, and all alike.
        per = int(sizes[0])
        whole_hosts = (sizes == per).all() and (instance == np.repeat(instance[::per], per)).all()
        return wiring.topology(
            host=per if whole_hosts and 1 < per < len(npus) else 0,
            labels=tuple(parts.names[node] for node in order),
            block=np.array(parts.instance)[order],
        )


def _first(*given: tuple[float | None, float | None]) -> LinkNumbers:
    """Return the first bandwidth and the first latency that is known."""
    return LinkNumbers(
        *(next((each for each in both if each is not None), None) for both in zip(*given, strict=True))
    )


def _joined(topology: Topology) -> bool:
    """Return whether the first and the last NPU are reached from all others while NPUs pass nothing on."""
    ends = (0, topology.npus - 1)
    return all((distances(topology, end)[: topology.npus] >= 0).all() for end in ends)


def _merged(columns: list[Ints | NDArray[np.float64]]) -> list[Ints | NDArray[np.float64]]:
    """Return the links with parallel ones of one sort taken for one of their bandwidth together."""
    a, b, kind, rate, latency = columns
    if not len(a):
        return columns
    low, high = np.minimum(a, b), np.maximum(a, b)
    order = np.lexsort((latency, kind, high, low))
    low, high, kind, rate, latency = (column[order] for column in (low, high, kind, rate, latency))
    new = np.ones(len(low), np.bool_)
    new[1:] = (
        (low[1:] != low[:-1])
        | (high[1:] != high[:-1])
        | (kind[1:] != kind[:-1])
        | (latency[1:] != latency[:-1])
    )
    first = np.flatnonzero(new)
    return [
        low[first],
        high[first],
        kind[first],
        np.add.reduceat(rate.astype(np.float64), first),
        latency[first],
    ]
