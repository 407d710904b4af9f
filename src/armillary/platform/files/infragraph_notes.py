"""Annotations of an InfraGraph that move an answer: ranks of xpus, bandwidths and latencies of links and edges.

Annotations are texts that anyone may add (InfraGraph 3.1), so that what they are called is a convention: ``rank`` of
InfraGraph itself; ``link_bandwidth_gbps`` and ``link_latency_ms`` of ASTRA-sim-service; ``bandwidth`` and ``latency``
with units, as InfraGraph writes them into the graph that it expands (``112.5 GBps``, ``500 ns``). All others are
named in a warning.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError, nearest
from armillary.base.hints import show
from armillary.base.units import whole
from armillary.platform.files.infragraph_links import LANES, LinkNumbers
from armillary.platform.files.infragraph_parts import MOST_PARTS, Edges, Parts
from armillary.platform.files.infragraph_schema import Annotations, Attribute, sliced
from armillary.platform.files.ns3_topology import parse_delay, parse_rate

# They say what a part is called or is, and no time depends on it.
_QUIET = ("ipaddress", "device_type", "device_name", "type", "name", "description")
# Attribute -> the unit of its number; "": the value has one.
_RATES = {"link_bandwidth_gbps": "Gbps", "bandwidth": ""}
_DELAYS = {"link_latency_ms": "ms", "latency": ""}
_LOSSES = ("packet_loss_rate", "link_error_rate")
_TRANSFERS = re.compile(r"(\d+(?:\.\d*)?)GT(?:/s|ps)")


@dataclass
class Noted:
    """What annotations say.

    Attributes:
        ranks: Rank -> its node.
        links: Name of a link -> its numbers.
        pairs: (low node, high node) -> the numbers of the edges between them.
        warnings: What of the annotations has no effect.
    """

    ranks: dict[int, int] = field(default_factory=dict)
    links: dict[str, LinkNumbers] = field(default_factory=dict)
    pairs: dict[tuple[int, int], LinkNumbers] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def of_edges(self, edges: Edges) -> list[tuple[NDArray[np.bool_], LinkNumbers]]:
        """Return which edges of an entry have numbers of their own, with these."""
        if not self.pairs:
            return []
        low, high = np.minimum(edges.a, edges.b).tolist(), np.maximum(edges.a, edges.b).tolist()
        found = [self.pairs.get(pair) for pair in zip(low, high, strict=True)]
        return [
            (np.array([each == numbers for each in found], np.bool_), numbers)
            for numbers in dict.fromkeys(each for each in found if each is not None)
        ]


def read_notes(name: str, notes: Annotations, parts: Parts) -> Noted:
    """Return what annotations say of the parts of an InfraGraph.

    Raises:
        InputError: One names what is not there, or has a value that is no number.
    """
    return _Reader(name, parts).read(notes)


class _Reader:
    def __init__(self, name: str, parts: Parts) -> None:
        self.name, self.parts, self.found = f"{name}: annotations", parts, Noted()
        self.numbers = {each: node for node, each in enumerate(parts.names)}
        self.unused: dict[str, None] = {}
        self.lossy = False

    def read(self, notes: Annotations) -> Noted:
        for node in notes.nodes:
            self._node(node.name, node.attributes)
        for each in notes.rank_assignment:
            self._rank(each.npu_identifier, str(each.rank_identifier))
        names = {edges.link.name for edges in self.parts.edges}
        for link in notes.links:
            if link.name not in names:
                raise InputError(f"{self.name}: no edge is of link '{link.name}'{nearest(link.name, names)}")
            numbers = self._numbers(f"link '{link.name}'", link.attributes)
            self.found.links[link.name] = numbers
        for edge in notes.edges:
            self._edge(edge.ep1, edge.ep2, edge.attributes)
        for attribute in notes.graph:
            self._other(attribute)
        for given in notes.device_specifications:
            self.unused |= dict.fromkeys(key for key in given if key not in _QUIET)
        if self.lossy:
            self.found.warnings.append(f"{self.name}: links lose packets, which is not simulated")
        if self.unused:
            self.found.warnings.append(f"{self.name}: without effect: {', '.join(self.unused)}")
        return self.found

    def _node(self, name: str, attributes: Iterable[Attribute]) -> None:
        for each in attributes:
            if each.attribute == "rank":
                self._rank(name, str(each.value))
            else:
                self._other(each)

    def _rank(self, name: str, text: str) -> None:
        rank = whole(text)
        nodes = [node for node in self._nodes(name) if self.parts.sorts[node] == "xpu"]
        if rank is None or len(nodes) != 1:
            first = self.parts.names[self.parts.sorts.index("xpu")]
            raise InputError(
                f"{self.name}: rank {show(text)} of '{name}', expected a whole number of an xpu, e.g. of '{first}'"
            )
        other = self.found.ranks.setdefault(rank, nodes[0])
        if other != nodes[0]:
            raise InputError(f"{self.name}: '{self.parts.names[other]}' and '{name}' both have rank {rank}")

    def _edge(self, one: str, other: str, attributes: list[Attribute]) -> None:
        where = f"edge '{one}' to '{other}'"
        numbers = self._numbers(where, attributes)
        if numbers == (None, None):
            return
        ends = [self._nodes(each) for each in (one, other)]
        for name, nodes in zip((one, other), ends, strict=True):
            if not nodes:
                raise InputError(f"{self.name}: {where}: no node '{name}'{nearest(name, self.numbers)}")
        if len(ends[0]) * len(ends[1]) + len(self.found.pairs) > MOST_PARTS:
            raise InputError(f"{self.name}: {where}: more than {MOST_PARTS} pairs of nodes, expected fewer")
        for a in ends[0]:
            for b in ends[1]:
                self.found.pairs[min(a, b), max(a, b)] = numbers

    def _nodes(self, name: str) -> list[int]:
        """Return the nodes of ``host.0.xpu.3``, ``host[0].xpu[3]`` or ``host[0:2]xpu[0:3]``; none: there are none."""
        if name in self.numbers:
            return [self.numbers[name]]
        text = re.sub(r"\](?=[^\].])", "].", name)
        try:
            return self.parts.find(sliced(text), self.name).tolist()  # type: ignore[no-any-return]
        except InputError:
            return []

    def _numbers(self, where: str, attributes: Iterable[Attribute]) -> LinkNumbers:
        rate = latency = None
        for each in attributes:
            text, place = str(each.value), f"{self.name}: {where}: {each.attribute}"
            if each.attribute in _RATES:
                rate = _read(place, text + _RATES[each.attribute], _rate)
            elif each.attribute in _DELAYS:
                latency = _read(place, text + _DELAYS[each.attribute], parse_delay)
            else:
                self._other(each)
        return LinkNumbers(rate, latency)

    def _other(self, attribute: Attribute) -> None:
        if attribute.attribute in _LOSSES:
            self.lossy |= str(attribute.value).strip("0. ") != ""
        elif attribute.attribute not in _QUIET:
            self.unused[attribute.attribute[:40]] = None


def _rate(text: str) -> float:
    """Return ``112.5GBps``, ``400Gbps`` or ``32GT/s`` (of all lanes of a link) in bytes per ns."""
    if match := _TRANSFERS.fullmatch(text):
        return float(match[1]) * LANES / 8
    return parse_rate(text)


def _read(where: str, text: str, parse: Callable[[str], float]) -> float:
    try:
        value = parse(re.sub(r"\s", "", text))
    except ValueError as error:
        raise InputError(f"{where}: {str(error)[:200]}") from None
    # As large as the units of our own files allow.
    if value > 1e12:
        raise InputError(f"{where}: got {show(text)}, expected less than 10^12 bytes per ns, or ns")
    return value
