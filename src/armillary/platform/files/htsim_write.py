"""A graph as a topology of htsim (``.topo``): the fat tree of two or three tiers that it is, if it is one.

What joins only NPUs of one host (NVLink switches) htsim does not have; a NIC, which passes messages
on from one link to one other, becomes part of the link.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import NamedTuple, TypeVar

from armillary.base.errors import InputError
from armillary.platform.topology.graph import UNBOUNDED, Topology

_Same = TypeVar("_Same")
_TIERS = ("the switches at the NPUs", "those above", "the third tier")


class _Link(NamedTuple):
    """One direction of a cable: bytes per ns, ns, bytes that fit at its end."""

    rate: float
    latency: float
    room: int


_Graph = dict[int, dict[int, list[_Link]]]
"""Node -> neighbour -> links to it."""


def write_htsim(topology: Topology) -> tuple[str, list[str]]:
    """Return a topology as text, and what of it htsim's format does not say.

    Raises:
        InputError: it is no fat tree with equal switches and links in each tier and ranks in order.
    """
    graph, lost = _without_hosts(topology)
    return _tree(topology, _joined(topology, graph)), lost


def _without_hosts(topology: Topology) -> tuple[_Graph, list[str]]:
    graph: _Graph = defaultdict(lambda: defaultdict(list))
    columns = (topology.tail, topology.head, topology.bandwidth, topology.latency, topology.buffer)
    for tail, head, rate, latency, room in zip(*(column.tolist() for column in columns), strict=True):
        if rate > 0:
            graph[tail][head].append(_Link(rate, latency, room))
    npus, host = topology.npus, topology.host
    inside = [
        node
        for node, near in graph.items()
        if node >= npus
        and host
        and host < npus
        and max(near) < npus
        and len({npu // host for npu in near}) == 1
    ]
    for node in inside:
        for npu in graph.pop(node):
            del graph[npu][node]
    lost = ["links within hosts"] if inside else []
    if topology.labels:
        lost.append("names of nodes")
    return graph, lost


def _joined(topology: Topology, graph: _Graph) -> _Graph:
    """Return the graph without what stands between an NPU and its switch; it becomes part of their link."""
    found: _Graph = defaultdict(lambda: defaultdict(list))
    passed: set[int] = set()
    edge: Iterable[int] = range(topology.npus)
    while edge := {
        node for before in edge for node in graph[before]
        if node >= topology.npus and node not in passed
        and len(graph[node]) == 2 and all(len(links) == 1 for links in graph[node].values())
    }:  # fmt: skip
        passed |= edge
    for tail, near in graph.items():
        if tail in passed:
            continue
        for head, links in near.items():
            for link in links:
                before, at, whole = tail, head, link
                while at in passed:
                    (after,) = graph[at].keys() - {before}
                    (more,) = graph[at][after]
                    whole = _Link(
                        min(whole.rate, more.rate), whole.latency + more.latency, min(whole.room, more.room)
                    )
                    before, at = at, after
                found[tail][at].append(whole)
    return found


def _tree(topology: Topology, graph: _Graph) -> str:
    npus = topology.npus
    tiers = _tiers(topology, graph)
    level = {node: at for at, nodes in enumerate([list(range(npus)), *tiers]) for node in nodes}
    up: list[set[_Link]] = [set() for _ in tiers]
    down: list[set[_Link]] = [set() for _ in tiers]
    under: dict[int, dict[int, list[_Link]]] = defaultdict(dict)
    for tail, near in graph.items():
        for head, links in near.items():
            if abs(level[tail] - level[head]) != 1:
                raise _no_tree(topology, "links stay in a tier or leave one out")
            if level[tail] > level[head]:
                under[tail][head] = links
            (up if level[tail] < level[head] else down)[min(level[tail], level[head])].update(links)
    # (tiers) neighbours below a switch, and links to each of them.
    below = [_one(topology, at, {len(under[node]) for node in nodes}) for at, nodes in enumerate(tiers)]
    cables = [
        _one(topology, at, {len(links) for node in nodes for links in under[node].values()})
        for at, nodes in enumerate(tiers)
    ]
    pods = _pods(topology, under, tiers, cables[0] * below[0])
    middle, above = len(tiers[1]) // len(pods), len(tiers[-1])
    radix_up = (middle * cables[1], above // middle * cables[-1])
    lines = [f"Nodes {npus}", f"Tiers {len(tiers)}", f"Podsize {npus // len(pods)}"]
    before = 0.0
    for at in range(len(tiers)):
        rise, fall = _one(topology, at, up[at]), _one(topology, at, down[at])
        # A switch's own latency is part of the links that lead to it.
        latency = fall.latency - before
        before = rise.latency - latency
        if at and rise.room < UNBOUNDED:
            lines.append(f"Queue_Up {rise.room}")
        lines += [f"Tier {at}", f"Downlink_speed_Gbps {_whole(topology, fall.rate * 8, 'Gb/s')}"]
        lines.append(f"Radix_Down {below[at] * cables[at]}")
        if at < len(tiers) - 1:
            lines.append(f"Radix_Up {radix_up[at]}")
        lines += [f"Bundle {cables[at]}"] * (at > 0)
        lines.append(f"Downlink_Latency_ns {_whole(topology, latency, 'ns')}")
        lines += [f"Switch_Latency_ns {_whole(topology, before, 'ns')}"] * (before != 0)
        lines += [f"Queue_Down {fall.room}"] * (fall.room < UNBOUNDED)
    return "\n".join([*lines, ""])


def _tiers(topology: Topology, graph: _Graph) -> list[list[int]]:
    """Return the switches of each tier, by their distance from the NPUs."""
    tiers: list[list[int]] = []
    seen = set(range(topology.npus))
    edge: Iterable[int] = range(topology.npus)
    while edge := sorted({other for node in edge for other in graph[node]} - seen):
        seen |= set(edge)
        tiers.append(edge)
    if not 2 <= len(tiers) <= 3:
        raise _no_tree(topology, f"{len(tiers)} tiers of switches, expected 2 or 3")
    if any(len(graph[npu]) != 1 for npu in range(topology.npus)):
        raise _no_tree(topology, "NPUs have links to several switches, expected one")
    return tiers


def _pods(
    topology: Topology, under: dict[int, dict[int, list[_Link]]], tiers: list[list[int]], hosts: int
) -> list[tuple[int, ...]]:
    """Return the switches at the NPUs of each pod: those that the same switches of the second tier join."""
    first = {tor: min(under[tor]) for tor in tiers[0]}
    if any(sorted(under[tor]) != list(range(at, at + hosts)) or at % hosts for tor, at in first.items()):
        raise _no_tree(topology, "ranks of a switch are not consecutive")
    joined = Counter(tuple(sorted(under[node], key=first.__getitem__)) for node in tiers[1])
    pods = sorted(joined, key=lambda pod: first[pod[0]])
    if [tor for pod in pods for tor in pod] != sorted(tiers[0], key=first.__getitem__):
        raise _no_tree(topology, "switches of the second tier join other switches each")
    _one(topology, 1, set(joined.values()))
    _one(topology, 1, {len(pod) for pod in pods})
    if len(tiers) == 2:
        if len(pods) > 1:
            raise _no_tree(topology, "nothing joins its parts")
        return pods
    # Which pods a switch of the second tier is of, and for each set of those that the third tier joins, how often.
    pod_of = {node: pods.index(tuple(sorted(under[node], key=first.__getitem__))) for node in tiers[1]}
    planes = Counter(frozenset(under[node]) for node in tiers[2])
    _one(topology, 2, set(planes.values()))
    every = list(range(len(pods)))
    if any(sorted(pod_of[node] for node in plane) != every for plane in planes) or sum(
        map(len, planes)
    ) != len(tiers[1]):
        raise _no_tree(topology, "switches of the third tier do not join one of each pod")
    return pods


def _one(topology: Topology, at: int, found: set[_Same]) -> _Same:
    """Return what is alike all over a tier."""
    if len(found) != 1:
        raise _no_tree(topology, f"{_TIERS[at]} or their links differ")
    return next(iter(found))


def _whole(topology: Topology, value: float, unit: str) -> int:
    if abs(value - round(value)) > 1e-6 or value < 0:
        raise _no_tree(topology, f"htsim has whole {unit}, and a link has {value:g} {unit}")
    return round(value)


def _no_tree(topology: Topology, why: str) -> InputError:
    return InputError(f"{topology.called}: no fat tree that htsim's topologies can say: {why}")
