"""The nodes and edges that an InfraGraph stands for: devices are taken apart, slices resolved."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.counts import check_count
from armillary.base.document import Document
from armillary.base.errors import InputError, nearest
from armillary.base.hints import KeyPath, key_text
from armillary.platform.files.infragraph_schema import DevicePart, Infrastructure, LinkPart, sliced

Ints = NDArray[np.int64]

MOST_PARTS = 1_000_000
"""Nodes, and edges, that a file stands for: ten seconds of them, and 1 GB."""


@dataclass
class Edges:
    """Edges of one entry of a file: the nodes they join, the link, and whether the entry is inside a device."""

    a: Ints
    b: Ints
    link: LinkPart
    inside: bool


@dataclass
class Parts:
    """What a device, or the whole, consists of.

    Attributes:
        names: Of the nodes, within it.
        sorts: Of the nodes: xpu, nic, switch, …
        wholes: Of the nodes: their component, without the number in it.
        edges: Between them.
        at: Component -> (its first node, how many there are, nodes of each, the device it is).
        instance: (nodes) number of the instance; of the whole only.
        notes: What is odd.
        missing: Edges that join nothing.
    """

    names: list[str] = field(default_factory=list)
    sorts: list[str] = field(default_factory=list)
    wholes: list[str] = field(default_factory=list)
    edges: list[Edges] = field(default_factory=list)
    at: dict[str, tuple[int, int, int, Parts | None]] = field(default_factory=dict)
    instance: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def add(self, name: str, count: int, inner: Parts | None, sort: str) -> None:
        """Add `count` components of a sort, or devices."""
        self.at[name] = (len(self.names), count, len(inner.names) if inner else 1, inner)
        for number in range(count):
            prefix = f"{name}.{number}"
            if inner is None:
                self.names.append(prefix)
                self.sorts.append(sort)
                self.wholes.append(name)
            else:
                self.names += [f"{prefix}.{each}" for each in inner.names]
                self.sorts += inner.sorts
                self.wholes += [f"{prefix}.{each}" for each in inner.wholes]

    def find(self, path: list[tuple[str, slice]], where: str) -> Ints:
        """Return the nodes that a path of names and slices means, in its order.

        Raises:
            InputError: There is no such component, or it has no such number.
        """
        (name, chosen), rest = path[0], path[1:]
        if name not in self.at:
            if name.endswith("]"):
                raise InputError(
                    f"{where}: got '{name}', expected a component and its slice, e.g. 'nic[0:8]'"
                )
            # The reference reads past such an edge, and one of its own blueprints has some.
            self.missing.append(
                f"{where}: no '{name}'{nearest(name, self.at)}: it joins nothing, as in InfraGraph"
            )
            return np.empty(0, np.int64)
        first, count, size, inner = self.at[name]
        if (chosen.stop or 0) > count or (chosen.start or 0) >= count:
            raise InputError(
                f"{where}: got a number beyond the {count} of '{name}', expected at most {count - 1}"
            )
        numbers = np.arange(count)[chosen]
        if not len(numbers):
            raise InputError(f"{where}: chooses none of the {count} of '{name}'")
        if inner is None:
            if rest:
                raise InputError(f"{where}: '{name}' is no device, expected nothing behind it")
            return np.asarray(first + numbers, np.int64)
        if not rest:
            raise InputError(
                f"{where}: '{name}' is a device, expected one of its components behind it: {', '.join(inner.at)}"
            )
        within = inner.find(rest, where)
        self.missing += [each for each in inner.missing if each not in self.missing]
        return np.asarray((first + numbers[:, None] * size + within).ravel(), np.int64)


class Expansion:
    """Takes the devices of a file apart, each once.

    Args:
        found: The file's content.
        document: The file, for errors.
        at: Where the content stands in it.
    """

    def __init__(self, found: Infrastructure, document: Document, at: KeyPath) -> None:
        self.found, self.document, self.at = found, document, at
        self._number = {device.name: number for number, device in enumerate(found.devices)}
        self._done: dict[str, Parts] = {}
        self._sizes: dict[str, int] = {}
        self._edges = 0

    def whole(self) -> Parts:
        """Return all nodes and edges.

        Raises:
            InputError: A name means nothing, a device contains itself, or there are too many.
        """
        whole, found = Parts(), self.found
        total = 0
        for number, each in enumerate(found.instances):
            place = (*self.at, "instances", number, "device")
            total += each.count * self._size(each.device, place, ())
        self._limit(total, "nodes")
        for each in found.instances:
            inner = self._device(each.device)
            first, instances = len(whole.names), each.count
            whole.add(each.name, instances, inner, "")
            base = (whole.instance[-1] + 1) if whole.instance else 0
            whole.instance += np.repeat(base + np.arange(instances), len(inner.names)).tolist()
            shift = first + np.arange(instances)[:, None] * len(inner.names)
            for edges in inner.edges:
                self._count(len(edges.a) * instances)
                a, b = (np.asarray((shift + side).ravel(), np.int64) for side in (edges.a, edges.b))
                whole.edges.append(Edges(a, b, edges.link, True))
            whole.notes += inner.notes
            whole.missing += inner.missing
        links = {link.name: link for link in found.links}
        for number, edge in enumerate(found.edges):
            place = (*self.at, "edges", number)
            ends = []
            for name, end in (("ep1", edge.ep1), ("ep2", edge.ep2)):
                path = [
                    *self._sliced(end.instance, (*place, name)),
                    *self._sliced(end.component, (*place, name)),
                ]
                if path[0][0] not in whole.at:
                    hint = nearest(path[0][0], whole.at) or f", expected one of {', '.join(whole.at)}"
                    raise self.document.error((*place, name, "instance"), f"no instance '{path[0][0]}'{hint}")
                ends.append(self._find(whole, path, (*place, name)))
            whole.edges.append(self._joined(ends[0], ends[1], edge, links, place, whole.notes, False))
        # One entry of a device is one note, however many instances it has.
        whole.notes, whole.missing = list(dict.fromkeys(whole.notes)), list(dict.fromkeys(whole.missing))
        return whole

    def _size(self, name: str, place: KeyPath, above: tuple[str, ...]) -> int:
        """Return how many nodes a device is, without taking it apart."""
        if name in self._sizes:
            return self._sizes[name]
        if name not in self._number:
            raise self.document.error(place, f"no device '{name}'{nearest(name, self._number)}")
        if name in above:
            raise self.document.error(place, f"device '{name}' contains itself, expected another")
        total, number = 0, self._number[name]
        for position, part in enumerate(self.found.devices[number].components):
            inside = (*self.at, "devices", number, "components", position, "name")
            each = self._size(part.name, inside, (*above, name)) if part.choice == "device" else 1
            total += part.count * each
            # A device that is used nowhere may be of any size; what counts is what the instances are made of.
            total = min(total, 10**18)
        self._sizes[name] = total
        return total

    def _device(self, name: str) -> Parts:
        if name in self._done:
            return self._done[name]
        number = self._number[name]
        device: DevicePart = self.found.devices[number]
        parts = Parts()
        for part in device.components:
            inner = self._device(part.name) if part.choice == "device" else None
            first = len(parts.names)
            parts.add(part.name, part.count, inner, part.choice)
            if inner:
                shift = first + np.arange(part.count)[:, None] * len(inner.names)
                for edges in inner.edges:
                    self._count(len(edges.a) * part.count)
                    a, b = (np.asarray((shift + side).ravel(), np.int64) for side in (edges.a, edges.b))
                    parts.edges.append(Edges(a, b, edges.link, True))
                parts.notes += inner.notes
                parts.missing += inner.missing
        links = {link.name: link for link in self.found.links} | {link.name: link for link in device.links}
        for position, edge in enumerate(device.edges):
            place = (*self.at, "devices", number, "edges", position)
            ends = []
            for key, end in (("ep1", edge.ep1), ("ep2", edge.ep2)):
                outer = self._sliced(end.device, (*place, key)) if end.device else []
                path = [*outer, *self._sliced(end.component, (*place, key))]
                ends.append(self._find(parts, path, (*place, key)))
            parts.edges.append(self._joined(ends[0], ends[1], edge, links, place, parts.notes, True))
        self._done[name] = parts
        return parts

    def _sliced(self, text: str, place: KeyPath) -> list[tuple[str, slice]]:
        try:
            return sliced(text)
        except InputError as error:
            raise self.document.error(place, str(error)) from None

    def _find(self, parts: Parts, path: list[tuple[str, slice]], place: KeyPath) -> Ints:
        return parts.find(path, f"{self.document.where(place)}: {key_text(place)}")

    def _joined(
        self,
        a: Ints,
        b: Ints,
        edge: Any,
        links: dict[str, LinkPart],
        place: KeyPath,
        notes: list[str],
        inside: bool,
    ) -> Edges:
        """Return the edges of an entry: pairs in order, all pairs, or a ring of all of them."""
        if edge.link not in links:
            raise self.document.error(
                (*place, "link"),
                f"no link '{edge.link}'{nearest(edge.link, links) or ', expected one of the links'}",
            )
        if edge.scheme == "one2one":
            if len(a) != len(b) and len(a) and len(b):
                few = min(len(a), len(b))
                notes.append(
                    f"{self.document.where(place)}: {key_text(place)}: one2one of {len(a)} and {len(b)} components: "
                    f"the first {few} are joined, as in InfraGraph"
                )
            a, b = a[: len(b)], b[: len(a)]
            if (a == b).any():
                raise self.document.error(place, "a link leads from a component to itself, expected two")
        elif edge.scheme == "many2many":
            self._limit(self._edges + len(a) * len(b), "edges")
            a, b = np.repeat(a, len(b)), np.tile(b, len(a))
            # Both ends among the same components: each pair once, none with itself.
            low, high = np.minimum(a, b)[a != b], np.maximum(a, b)[a != b]
            pairs = np.unique(np.stack([low, high], 1), axis=0) if len(low) else np.empty((0, 2), np.int64)
            a, b = pairs[:, 0], pairs[:, 1]
        else:
            around = np.array(list(dict.fromkeys([*a.tolist(), *b.tolist()])), np.int64)
            if len(around) < 2 and len(a) and len(b):
                raise self.document.error(place, "a ring of one component, expected two or more")
            a, b = around, np.roll(around, -1)
            if len(around) <= 2:
                a, b = a[: len(around) - 1], b[: len(around) - 1]
        self._count(len(a))
        return Edges(a, b, links[edge.link], inside)

    def _count(self, more: int) -> None:
        self._edges += more
        self._limit(self._edges, "edges")

    def _limit(self, count: int, what: str) -> None:
        check_count(count, MOST_PARTS, f"{self.document.name}: {what}", "fewer instances")
