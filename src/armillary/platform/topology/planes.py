"""Networks in several planes: the NIC of every NPU has a port in each, and planes meet in NPUs only.

So are the two planes of HPN (Qian et al., SIGCOMM 2024), the planes of NICs with four or eight ports, and the switches
of an NVLink domain, to each of which every GPU has a link. A message is spread evenly: each plane carries its part, and
the message has arrived when all its parts have. A part stays in the plane in which it left. Where a plane does not lead
to its destination, for a port has failed, later parts take the next plane that does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from armillary.base.errors import InputError
from armillary.platform.topology.graph import Ints, Tier, Topology, check_size
from armillary.platform.topology.routing import Ecmp, Paths, Routing

MOST_PLANES = 64
"""More than any NIC has ports; 18 are the switches of an NVLink domain of 72."""
OVER_PLANES = ("ecmp", "adaptive", "rail", "shortest", "widest", "minimal")
"""Routings that keep to a plane: others go by way of a node of another one, or name their next nodes."""


def in_planes(topology: Topology, planes: int) -> Topology:
    """Return the network outside of hosts `planes` times, each with an even share of the bandwidth of every link.

    What is inside of hosts stays as it is. Switches of a sort are numbered plane by plane: of 8 leaves in 2 planes,
    leaf 8 is the first of the second plane.

    Raises:
        InputError: There are too many planes, or NPUs are joined without switches.
    """
    if not 1 <= planes <= MOST_PLANES:
        raise InputError(f"{topology.name}: planes: got {planes}, expected 1 to {MOST_PLANES}")
    if planes == 1:
        return topology
    check_size(topology.name, topology.links * planes)
    nodes, inner = np.arange(topology.nodes), _inside(topology)
    own = (nodes >= topology.npus) & ~inner
    # (planes, nodes) the number of each node in each plane.
    number, tiers, block = np.tile(nodes, (planes, 1)), [topology.tiers[0]], [topology.block[: topology.npus]]
    for tier in topology.tiers[1:]:
        here = slice(tier.first, tier.first + tier.count)
        copies = planes if own[here].all() and tier.count else 1
        first = tiers[-1].first + tiers[-1].count
        tiers.append(Tier(tier.name, first, tier.count * copies))
        number[:, here] = (
            first + np.arange(tier.count) + (tier.count * np.arange(planes)[:, None] if copies > 1 else 0)
        )
        block += [topology.block[here]] * copies
    outer = own[topology.tail] | own[topology.head]
    if not outer.any():
        raise InputError(f"{topology.name}: planes: nothing outside of hosts, expected a network of switches")
    repeat = np.concatenate([np.flatnonzero(~outer), np.tile(np.flatnonzero(outer), planes)])
    plane = np.concatenate([np.full((~outer).sum(), -1), np.repeat(np.arange(planes), outer.sum())])
    tail, head = (number[np.maximum(plane, 0), ends[repeat]] for ends in (topology.tail, topology.head))
    order = np.lexsort((head, tail))
    repeat, plane, tail, head = repeat[order], plane[order], tail[order], head[order]
    count = tiers[-1].first + tiers[-1].count
    forwards = np.ones(count, np.bool_)
    forwards[: topology.npus] = topology.forwards[: topology.npus]
    return dataclasses.replace(
        topology,
        first_link=np.concatenate([[0], np.cumsum(np.bincount(tail, minlength=count))]),
        head=head,
        bandwidth=topology.bandwidth[repeat] / np.where(plane >= 0, planes, 1),
        latency=topology.latency[repeat],
        buffer=topology.buffer[repeat],
        kind=topology.kind[repeat],
        tiers=tuple(tiers),
        forwards=forwards,
        block=np.concatenate(block),
        planes=planes,
        plane=plane,
    )


def _inside(topology: Topology) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return (nodes) which switches join the NPUs of one host only."""
    inside = np.zeros(topology.nodes, np.bool_)
    if topology.host:
        # Builders of hosts give their inner switches the number of the host as block, and no block to those outside.
        inside[topology.npus :] = topology.block[topology.npus :] >= 0
    return inside


def parts_of(routing: Routing, again: Callable[[Topology], Routing] | None = None) -> list[Routing]:
    """Return the routing of each part of a message, over its plane alone; none where there is one plane.

    Args:
        routing: Over all planes.
        again: Makes it for another topology; None: a `Shortest` or one of its kind, with its seed.
    """
    topology = routing.topology
    if topology.planes == 1:
        return []
    make = again or (
        lambda alone: type(routing)(alone, *([routing.seed] if isinstance(routing, Ecmp) else []))
    )
    # Links of other planes count as down, so that every routing keeps to what is left; numbers of links stay.
    return [
        make(
            dataclasses.replace(
                topology,
                bandwidth=np.where((topology.plane < 0) | (topology.plane == p), topology.bandwidth, 0.0),
            )
        )
        for p in range(topology.planes)
    ]


def part_paths(
    parts: Sequence[Routing], source: ArrayLike, target: ArrayLike, flow: ArrayLike | None = None
) -> list[Paths]:
    """Return the ways of each part of messages; a part whose plane does not lead there takes the next that does.

    Raises:
        InputError: no plane leads there.
    """
    source, target = (np.atleast_1d(ends) for ends in np.broadcast_arrays(source, target))
    try:
        return [part.paths(source, target, flow) for part in parts]
    except InputError:
        # Slow, message by message, but only where a failure cuts off a port.
        numbers = np.zeros(len(source), np.int64) if flow is None else np.broadcast_to(flow, source.shape)
        ways = [
            _ways(parts, *message)
            for message in zip(source.tolist(), target.tolist(), numbers.tolist(), strict=True)
        ]
        return [joined([way[p] for way in ways]) for p in range(len(parts))]


def _ways(parts: Sequence[Routing], source: int, target: int, flow: int) -> list[Ints]:
    found: dict[int, Ints] = {}
    lost: InputError | None = None
    for p, part in enumerate(parts):
        try:
            found[p] = part.paths([source], [target], [flow]).link
        except InputError as error:
            lost = error
    if lost is not None and not found:
        raise lost
    turns = range(len(parts))
    return [found[next(q for q in ((p + step) % len(parts) for step in turns) if q in found)] for p in turns]


def joined(ways: Sequence[Ints]) -> Paths:
    """Return ways, one for each message, as one value."""
    first = np.concatenate([[0], np.cumsum([len(way) for way in ways])]).astype(np.int64)
    return Paths(first, np.concatenate([np.zeros(0, np.int64), *ways]))


def side_by_side(parts: Sequence[Paths]) -> Paths:
    """Return the ways of all parts of the first message, then those of the second, and so on."""
    return joined([part[message] for message in range(len(parts[0].first) - 1) for part in parts])
