"""Graphs of NPUs and switches as InfraGraph files."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

import numpy as np

from armillary.base.counts import check_count
from armillary.base.errors import InputError
from armillary.platform.files.infragraph_parts import MOST_PARTS
from armillary.platform.topology.graph import UNBOUNDED, Topology

_OTHER = re.compile(r"[^a-zA-Z0-9\-_]+")


def infragraph_of(topology: Topology) -> tuple[dict[str, Any], list[str]]:
    """Return a graph as what an InfraGraph file holds, and what of it such a file cannot say, a sentence each.

    NPUs are ``xpu`` of devices ``host``, or each of its own device; switches are devices of one switch, by their sorts.

    Raises:
        InputError: A link differs by direction, is down, or there are too many links.
    """
    check_count(topology.links / 2, MOST_PARTS, f"{topology.called}: links", "a smaller machine")
    links, pairs = _pairs(topology)
    per = topology.host or 1
    npu = "host" if topology.host else "npu"
    names = _tier_names(topology, npu)
    devices = [_device(npu, "xpu", per)]
    instances = [{"name": npu, "device": npu, "count": topology.npus // per}]
    for tier in topology.tiers[1:]:
        if tier.count:
            devices.append(_device(names[tier.first], "switch", 1))
            instances.append({"name": names[tier.first], "device": names[tier.first], "count": tier.count})
    edges = []
    for (head, link), tails in pairs.items():
        for first, last in _runs(topology, sorted(tails), per):
            ep1 = _end(topology, names, first, last, per, npu)
            edges.append(
                {
                    "ep1": ep1, "ep2": _end(topology, names, head, head, per, npu), "scheme": "many2many", "link": link,
                }
            )  # fmt: skip
    lost = []
    if (topology.buffer < UNBOUNDED).any():
        lost.append("buffers at the ends of links")
    if topology.labels:
        lost.append("names of nodes")
    infrastructure = {
        "name": _plain(topology.name), "devices": devices, "links": links, "instances": instances, "edges": edges,
    }  # fmt: skip
    return infrastructure, lost


def _pairs(topology: Topology) -> tuple[list[dict[str, Any]], dict[tuple[int, str], list[int]]]:
    """Return the sorts of links, and (node with the higher number, link) -> the lower nodes that it joins."""
    ends: dict[tuple[int, int, int, float], list[float]] = defaultdict(list)
    columns = (topology.tail, topology.head, topology.kind, topology.latency, topology.bandwidth)
    for tail, head, kind, latency, rate in zip(*(column.tolist() for column in columns), strict=True):
        if rate <= 0:
            name = topology.node_name
            raise InputError(
                f"{topology.called}: link {name(tail)} → {name(head)} is down, which InfraGraph cannot say"
            )
        ends[tail, head, kind, latency].append(rate)
    sorts: dict[tuple[int, float, float], str] = {}
    taken: set[str] = set()
    pairs: dict[tuple[int, str], list[int]] = defaultdict(list)
    for (tail, head, kind, latency), rates in ends.items():
        if sorted(ends.get((head, tail, kind, latency), [])) != sorted(rates):
            name = topology.node_name
            raise InputError(
                f"{topology.called}: link {name(tail)} → {name(head)} differs from the way back, which InfraGraph "
                "cannot say: expected equal bandwidths and latencies"
            )
        if tail > head:
            continue
        # Cables beside each other are one of their bandwidth together, as they are when read.
        rate = sum(rates)
        sort = (kind, rate, latency)
        if sort not in sorts:
            sorts[sort] = _free(_plain(topology.kinds[kind]), taken)
        pairs[head, sorts[sort]].append(tail)
    links = [
        {
            "name": name,
            "physical": {
                "bandwidth": {"choice": "gigabytes_per_second", "gigabytes_per_second": rate},
                "latency": {"choice": "ns", "ns": latency},
            },
        }
        for (_, rate, latency), name in sorts.items()
    ]
    return links, pairs


def _device(name: str, choice: str, count: int) -> dict[str, Any]:
    component = {"name": choice, "count": count, "choice": choice, choice: {}}
    # Nothing is linked inside, but the package `infragraph` refuses a device without these keys.
    return {"name": name, "components": [component], "links": [], "edges": []}


def _tier_names(topology: Topology, npu: str) -> dict[int, str]:
    taken = {npu}
    return {tier.first: _free(_plain(tier.name), taken) for tier in topology.tiers[1:] if tier.count}


def _plain(text: str) -> str:
    return _OTHER.sub("-", text)[:200].strip("-") or "part"


def _free(name: str, taken: set[str]) -> str:
    number, found = 1, name
    while found in taken:
        number += 1
        found = f"{name}-{number}"
    taken.add(found)
    return found


def _runs(topology: Topology, nodes: list[int], per: int) -> list[tuple[int, int]]:
    """Return the first and last of each run of nodes that one slice can name."""
    firsts = [tier.first for tier in topology.tiers]
    runs: list[tuple[int, int]] = []
    for node in nodes:
        if runs and runs[-1][1] == node - 1:
            begun = runs[-1][0]
            one_tier = np.searchsorted(firsts, node, "right") == np.searchsorted(firsts, begun, "right")
            if one_tier and (per == 1 or node >= topology.npus or node // per == begun // per):
                runs[-1] = (begun, node)
                continue
        runs.append((node, node))
    return runs


def _end(
    topology: Topology, names: dict[int, str], first: int, last: int, per: int, npu: str
) -> dict[str, str]:
    if first < topology.npus:
        if per == 1:
            return {"instance": f"{npu}[{first}:{last + 1}]", "component": "xpu"}
        return {"instance": f"{npu}[{first // per}]", "component": f"xpu[{first % per}:{last % per + 1}]"}
    tier = next(tier for tier in reversed(topology.tiers) if tier.first <= first and tier.count)
    return {
        "instance": f"{names[tier.first]}[{first - tier.first}:{last - tier.first + 1}]",
        "component": "switch",
    }
