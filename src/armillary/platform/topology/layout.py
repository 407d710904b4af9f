"""Panels of a graph: switches in rows, dragonflies on a circle, hypercubes projected; large ones collapsed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from armillary.base.units import format_bandwidth, format_count, format_time
from armillary.platform.topology.graph import Floats, Ints, Topology
from armillary.platform.topology.levels import Level, levels_of, panels
from armillary.platform.topology.reach import distances
from armillary.platform.topology.sketch import Line, Mark, Panel, Place, circle, row, visible

MOST_NODES = 100
"""Nodes drawn one by one; beyond, parts of the machine are drawn as one."""
_ROW = 16
# `_hypercube` has five directions on the page; 32 corners are also about what one can read.
_BITS = 5


def draw(topology: Topology, *, part: int = 0, most: int = MOST_NODES, widest: int = 2 * _ROW) -> list[Panel]:
    """Return the panels of a topology.

    Args:
        topology: What to draw.
        part: The part of a large machine that is drawn in detail, a number of `Topology.block`.
        most: Nodes up to which every node is drawn.
        widest: Nodes drawn side by side.
    """
    if topology.name == "hypercube":
        return [_hypercube(topology)]
    # With one kind of link there are no dies or circuits to tell apart: the plain panels below fit.
    if topology.name in ("wafer-mesh", "optical-torus") and len(topology.kinds) > 1:
        return _nested_panels(topology)
    if topology.dimensions:
        return _level_panels(topology)
    everyone = np.arange(topology.nodes)
    # A large graph of less than two parts is drawn whole all the same: rows leave out what does not fit.
    if topology.nodes <= most or not (topology.block > 0).any():
        whole = Panel("all nodes", _legend(topology))
        _place(whole, topology, [[int(node)] for node in everyone], widest)
        return [whole]
    # Blocks are numbered without gaps; -1 (cores, spines) belongs to none and is drawn beside them.
    parts = [everyone[topology.block == block].tolist() for block in range(int(topology.block.max()) + 1)]
    loose = [[node] for node in everyone[topology.block < 0].tolist()]
    overview = Panel(f"{len(parts)} {_part(topology)}s", _legend(topology))
    _place(overview, topology, [*parts, *loose], widest)
    inside = parts[part]
    one = Panel(f"{_part(topology)} {part}", [_contents(topology, inside)])
    # Switches outside that the part is joined to, so that its uplinks end somewhere.
    around = {int(topology.head[link]) for node in inside for link in _out(topology, node)} - set(inside)
    shown = [*inside, *sorted(around)]
    if len(shown) > 2 * most:
        # NPUs are what can be left out: without its switches a part would have no links.
        one.notes.append(f"{2 * most} of {len(shown)} nodes shown")
        shown = sorted(shown, key=lambda node: node < topology.npus)[: 2 * most]
    _place(one, topology, [[node] for node in shown], widest)
    return [overview, one]


def _level_panels(topology: Topology) -> list[Panel]:
    """Return a panel for each level of dimensions; the switches of a level are its last member."""
    levels, below, axis = levels_of(topology.dimensions), 1, 0
    result = panels(levels)
    for panel, level in zip(result, levels, strict=True):
        size = math.prod(level.shape)
        # Position of each NPU in its level; switches get `size`, one past the last member.
        of = np.concatenate(
            [np.arange(topology.npus) // below % size, np.full(topology.nodes - topology.npus, size)]
        )
        names = {dimension.name for dimension in topology.dimensions[axis : axis + len(level.shape)]}
        # Links of this level only: kinds are named after dimensions.
        mine = np.isin(topology.kind, [i for i, name in enumerate(topology.kinds) if name in names])
        panel.ends = np.where(mine, of[np.stack([topology.tail, topology.head])], -1)
        below, axis = below * size, axis + len(level.shape)
    return result


def _nested_panels(topology: Topology) -> list[Panel]:
    """Return the panels of a wafer of dies or a torus of cubes."""
    levels = _nested(topology)
    result, rank = panels(levels), np.arange(topology.npus)
    inner, outer, below = np.zeros_like(rank), np.zeros_like(rank), 1
    first = blocks = 1
    # Split each coordinate into the one within its block and the one of its block, both as mixed-radix
    # numbers.
    for side, whole in zip(levels[0].shape, topology.shape, strict=True):
        at = rank // below % whole
        inner, outer = inner + at % side * first, outer + at // side * blocks
        below, first, blocks = below * whole, first * side, blocks * (whole // side)
    ends = np.stack([topology.tail, topology.head])
    # A link between blocks belongs to the outer panel only.
    within = outer[ends[0]] == outer[ends[1]]
    result[0].ends = np.where(within | (len(result) == 1), inner[ends], -1)
    if len(result) > 1:
        result[1].ends = outer[ends]
    return result


def _nested(topology: Topology) -> list[Level]:
    """Return the two levels of a wafer of dies or a torus of cubes."""
    counts = np.bincount(topology.block)
    # The extent of block 0 is the shape of all blocks.
    first = np.flatnonzero(topology.block == 0)
    strides = [math.prod(topology.shape[:axis]) for axis in range(len(topology.shape))]
    inner = tuple(int((first // s % n).max()) + 1 for s, n in zip(strides, topology.shape, strict=True))
    outer = tuple(n // side for n, side in zip(topology.shape, inner, strict=True))
    notes = _legend(topology)
    wafer = topology.name == "wafer-mesh"
    closed = "Mesh" if wafer else "Torus"
    # Only a twisted torus has no dimensions, see `optical_torus`.
    twist = "" if topology.dimensions else "twisted "
    return [
        Level("die" if wafer else "cube", "Mesh", inner, notes[0]),
        Level("wafer" if wafer else f"{twist}pod", closed, outer, notes[-1]),
    ][: 2 if len(counts) > 1 else 1]


def _hypercube(topology: Topology) -> Panel:
    order = len(topology.dimensions)
    shown = min(order, _BITS)
    # Offsets on the page per bit, chosen so that no two of the 32 corners and few edges coincide.
    steps = [(0.9, 0.0), (0.0, 0.9), (0.38, 0.26), (-0.42, 0.55), (0.22, -0.62)][:shown]
    raw = [
        (
            sum(steps[bit][0] for bit in range(shown) if node >> bit & 1),
            sum(steps[bit][1] for bit in range(shown) if node >> bit & 1),
        )
        for node in range(1 << shown)
    ]
    low = [min(place[axis] for place in raw) for axis in range(2)]
    span = max(max(place[axis] for place in raw) - low[axis] for axis in range(2)) or 1.0
    places = [((x - low[0]) / span * 1.6 - 0.8, (y - low[1]) / span * 1.6 - 0.8) for x, y in raw]
    panel = Panel(f"{order}-cube", [_legend(topology)[0]])
    if shown < order:
        panel.notes.append(f"{shown} of {order} bits shown, {format_count(topology.npus)} NPUs in all")
    # Corners beyond the bits shown are not drawn.
    of = np.where(np.arange(topology.npus) < len(places), np.arange(topology.npus), -1)
    panel.ends = of[np.stack([topology.tail, topology.head])]
    panel.marks = [Mark(place, "npu", str(node), f"npu {node}") for node, place in enumerate(places)]
    panel.lines = [
        Line(
            places[node],
            places[node | 1 << bit],
            "link",
            tip=f"{node} to {node | 1 << bit}",
            members=(node, node | 1 << bit),
        )
        for node in range(1 << shown)
        for bit in range(shown)
        if not node >> bit & 1
    ]
    return panel


def _place(panel: Panel, topology: Topology, items: Sequence[Sequence[int]], widest: int) -> None:
    """Draw each item, one node or a part of several, and the links between items."""
    of = np.full(topology.nodes, -1)
    # `of` maps nodes to the item that draws them, -1 for none.
    for number, nodes in enumerate(items):
        of[list(nodes)] = number
    # A dragonfly has no layers; a graph without switches has none either.
    if topology.name == "dragonfly" or topology.nodes == topology.npus:
        places = _around(panel, topology, items)
    else:
        places = _rows(panel, topology, items, widest)
    for number, place in places.items():
        nodes = list(items[number])
        node = nodes[0]
        if len(nodes) > 1:
            label, sort = str(int(topology.block[node])), "block"
            tip = f"{_part(topology)} {label}: {_contents(topology, nodes)}"
        else:
            sort, tip = topology.sort_of(node), topology.node_name(node)
            label = tip if topology.labels else tip.rpartition(" ")[2]
        panel.marks.append(Mark(place, sort, label, tip))
    panel.ends = of[np.stack([topology.tail, topology.head])]
    _lines(panel, topology, of, places)


def _lines(panel: Panel, topology: Topology, of: Ints, places: dict[int, Place]) -> None:
    a, b = of[topology.tail], of[topology.head]
    # Links within an item are hidden in it.
    drawn = np.flatnonzero((a >= 0) & (b >= 0) & (a != b))
    # Both directions and parallel links of one kind are drawn as one line.
    key = np.stack([np.minimum(a, b)[drawn], np.maximum(a, b)[drawn], topology.kind[drawn]])
    pairs, first, inverse = np.unique(key, axis=1, return_index=True, return_inverse=True)
    count = np.bincount(inverse.ravel(), minlength=pairs.shape[1])
    up = np.bincount(inverse.ravel(), weights=topology.bandwidth[drawn], minlength=pairs.shape[1])
    down = np.bincount(inverse.ravel(), weights=topology.bandwidth[drawn] == 0, minlength=pairs.shape[1])
    # 1e-9: all links may be down.
    thickest = max(up.max(), 1e-9) if len(up) else 1.0
    for i, (left, right, kind) in enumerate(pairs.T.tolist()):
        if left in places and right in places:
            # One link down colours the whole bundle: that is what a reader looks for.
            name = topology.kinds[kind] if not down[i] else "down"
            link = drawn[first[i]]
            # `up` sums both directions.
            tip = f"{topology.link_name(int(link))}: {_rate(up[i] / 2)} each way"
            # 2 are the two directions of one link.
            tip += f" in {count[i]} links" if count[i] > 2 else ""
            # Square root, so that a link 10 times slower is still visible.
            width = 0.6 + 1.6 * math.sqrt(up[i] / thickest)
            panel.lines.append(
                Line(places[left], places[right], name, 0.0, width, bool(down[i]), tip, (left, right))
            )


def _rows(panel: Panel, topology: Topology, items: Sequence[Sequence[int]], widest: int) -> dict[int, Place]:
    """Return places in rows by tier; parts go where their NPUs would."""
    height = _heights(topology)
    by_row: dict[float, list[int]] = {}
    for number, nodes in enumerate(items):
        level = 0.0 if len(nodes) > 1 else height[nodes[0]]
        by_row.setdefault(level, []).append(number)
    places: dict[int, Place] = {}
    levels = sorted(by_row)
    # Blocks are drawn wider than nodes.
    most = widest if all(len(nodes) == 1 for nodes in items) else widest // 2
    for position, level in enumerate(levels):
        # A single row stands in the middle; else rows spread from -0.8 to 0.8.
        y = -0.8 + 1.6 * (position + (0.5 if len(levels) == 1 else 0.0)) / max(len(levels) - 1, 1)
        members = by_row[level]
        name = _row_name(topology, items, members)
        panel.marks.append(Mark((-0.98, y), "row", name))
        shown = visible(len(members), most)
        for member, place in zip(shown, row(len(shown), y, 1.64, 0.16), strict=True):
            if member is None:
                # One of `shown` is the gap itself.
                panel.marks.append(Mark(place, "gap", "…", f"{len(members) - len(shown) + 1} more"))
            else:
                places[members[member]] = place
        if None in shown:
            panel.notes.append(f"{name}: {len(shown) - 1} of {len(members)} shown")
    return places


def _row_name(topology: Topology, items: Sequence[Sequence[int]], members: Sequence[int]) -> str:
    nodes = items[members[0]]
    if len(nodes) > 1:
        return _part(topology)
    if topology.labels:
        return topology.sort_of(nodes[0])
    return topology.node_name(nodes[0]).rpartition(" ")[0].replace("aggregation", "aggr.")


def _around(panel: Panel, topology: Topology, items: Sequence[Sequence[int]]) -> dict[int, Place]:
    """Return places on a circle, NPUs outside the switches they hang on."""
    # Routers, or groups drawn as one.
    hubs = [number for number, nodes in enumerate(items) if len(nodes) > 1 or nodes[0] >= topology.npus]
    inner = set(hubs)
    leaves = [number for number in range(len(items)) if number not in inner]
    # A direct network: NPUs themselves stand on the circle.
    if not hubs:
        hubs, leaves = leaves, []
    shown = visible(len(hubs), 40)
    places: dict[int, Place] = {}
    for member, place in zip(shown, circle(len(shown), 0.55 if leaves else 0.8), strict=True):
        if member is None:
            panel.marks.append(Mark(place, "gap", "…"))
            panel.notes.append(f"{len(shown) - 1} of {len(hubs)} shown")
        else:
            places[hubs[member]] = place
    of = {items[number][0]: number for number in places}
    below: dict[int, list[int]] = {}
    for number in leaves:
        # The first link of an NPU leads to its router.
        hub = of.get(int(topology.head[topology.first_link[items[number][0]]]))
        if hub is not None:
            below.setdefault(hub, []).append(number)
    for hub, members in below.items():
        # atan2(x, y), with the arguments swapped: `circle` turns clockwise from the top.
        turn = math.atan2(*places[hub])
        for i, number in enumerate(members):
            # 90 % of a hub's sector, so that the leaves of neighbouring hubs stay apart.
            wide = turn + (i - (len(members) - 1) / 2) * 0.9 * 2 * math.pi / max(len(hubs), 3) / len(members)
            places[number] = (0.9 * math.sin(wide), 0.9 * math.cos(wide))
    return places


def _heights(topology: Topology) -> Floats:
    """Return the row of each node: that of its tier, or links to the nearest NPU."""
    height = np.zeros(topology.nodes)
    if not topology.labels:
        for position, tier in enumerate(topology.tiers):
            # Host switches are drawn below the NPUs, network switches above.
            level = -1.0 if tier.name == "host switch" else float(position)
            height[tier.first : tier.first + tier.count] = level
        return height
    # Files give labels but no tiers: take the distance to the nearest NPU as the layer.
    far = distances(topology, np.arange(topology.npus))
    return np.where(far < 0, topology.nodes, far).astype(np.float64)


def _part(topology: Topology) -> str:
    names = {"rail-optimised": "host", "leaf-spine": "leaf", "dragonfly": "group", "fat-tree": "pod"}
    return names.get(topology.name, "part")


def _contents(topology: Topology, nodes: Iterable[int]) -> str:
    names = [topology.node_name(node).rpartition(" ")[0] for node in nodes]
    return ", ".join(f"{names.count(name)} {name}" for name in dict.fromkeys(names))


def _legend(topology: Topology) -> list[str]:
    """Return a line for each kind of link."""
    lines = []
    for number, name in enumerate(topology.kinds):
        links = topology.kind == number
        rates, delays = np.unique(topology.bandwidth[links]), np.unique(topology.latency[links])
        rate = " to ".join(dict.fromkeys(_rate(float(value)) for value in (rates[0], rates[-1])))
        delay = " to ".join(dict.fromkeys(format_time(float(value)) for value in (delays[0], delays[-1])))
        lines.append(f"{name}: {rate}, {delay}, {format_count(int(links.sum()))} links")
    return lines


def _rate(value: float) -> str:
    return format_bandwidth(value) if value else "down"


def _out(topology: Topology, node: int) -> range:
    return range(int(topology.first_link[node]), int(topology.first_link[node + 1]))
