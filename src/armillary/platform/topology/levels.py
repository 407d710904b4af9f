"""Panels of nested building blocks: one for each level, its members drawn as what the level before made."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from armillary.base.units import format_bandwidth, format_count, format_time
from armillary.platform.network import TOPOLOGIES, Dimension, links_per_npu, port
from armillary.platform.topology.sketch import Line, Mark, Panel, Place, circle, grid, row, visible

_MOST = {1: 14, 2: 8, 3: 4}
"""Members shown along an axis, by the number of axes."""


@dataclass(frozen=True)
class Level:
    """One level of a machine: `shape` members in a building block."""

    name: str
    topology: str
    shape: tuple[int, ...]
    note: str


def levels_of(dimensions: Sequence[Dimension]) -> list[Level]:
    """Return the levels of dimensions; the axes of one Torus or Mesh are one level."""
    result = []
    # Consecutive dimensions of one family are axes of one torus or mesh.
    for (name, topology, *_), group in itertools.groupby(dimensions, _family):
        parts = list(group)
        # A grid has at most three axes on paper; further ones become the next panel.
        for first in range(0, len(parts), 3):
            some = parts[first : first + 3]
            result.append(Level(str(name), str(topology), tuple(d.size for d in some), _note(parts[0])))
    return result


def panels(levels: Sequence[Level]) -> list[Panel]:
    """Return a panel for each level, innermost first."""
    result, below = [], 1
    for level in levels:
        size = math.prod(level.shape)
        shape = " x ".join(map(str, level.shape))
        panel = Panel(f"{level.name}: {level.topology} of {shape}", [level.note])
        if below > 1:
            panel.notes.append(
                f"each square is {format_count(below)} NPUs; {format_count(size * below)} in all"
            )
        _draw(panel, level, "npu" if below == 1 else "block", below)
        result.append(panel)
        below *= size
    return result


def _family(dimension: Dimension) -> tuple[object, ...]:
    # "pod.0", "pod.1": axes of one shape, as the reader of study files names them.
    name, _, axis = dimension.name.rpartition(".")
    if axis.isdecimal() and TOPOLOGIES[dimension.topology].shaped:
        return name, dimension.topology, dimension.bandwidth, dimension.latency
    if TOPOLOGIES[dimension.topology].shaped:
        return "grid", dimension.topology, dimension.bandwidth, dimension.latency
    # id: two equal switches one inside the other are still two levels.
    return dimension.name, dimension.topology, id(dimension)


def _note(dimension: Dimension) -> str:
    both = port(dimension)
    rate = f"{format_bandwidth(dimension.bandwidth)} per link"
    if links_per_npu(dimension.topology, dimension.size) > 1:
        rate += f", {format_bandwidth(both.out)} per NPU"
    if both.out != both.into:
        rate = f"{format_bandwidth(both.out)} up and {format_bandwidth(both.into)} down per NPU"
    return f"{rate}, {format_time(dimension.latency)} per hop"


def _draw(panel: Panel, level: Level, sort: str, below: int) -> None:
    if level.topology == "Switch":
        _star(panel, level, sort, below)
    # A torus of one axis is a ring and drawn as a circle; a mesh of one axis is a line.
    elif not TOPOLOGIES[level.topology].shaped or (len(level.shape) == 1 and level.topology != "Mesh"):
        _round(panel, level, sort, below)
    else:
        _grid(panel, level, sort, below)


def _mark(at: Place, sort: str, member: int | None, below: int) -> Mark:
    if member is None:
        return Mark(at, "gap", "…")
    tip = (
        f"npu {member}"
        if below == 1
        else f"NPUs {member * below} to {(member + 1) * below - 1} of this level"
    )
    return Mark(at, sort, str(member), tip)


def _star(panel: Panel, level: Level, sort: str, below: int) -> None:
    members = visible(level.shape[0], _MOST[1])
    hub = (0.0, 0.55)
    for member, place in zip(members, row(len(members), -0.55), strict=True):
        panel.marks.append(_mark(place, sort, member, below))
        if member is not None:
            # The switch is the member after the last, see `_level_panels`.
            panel.lines.append(Line(place, hub, level.name, tip=level.note, members=(member, level.shape[0])))
    panel.marks.append(Mark(hub, "switch", "switch", f"switch of {level.shape[0]} ports"))


def _round(panel: Panel, level: Level, sort: str, below: int) -> None:
    size = math.prod(level.shape)
    members = visible(size, _MOST[1] if level.topology == "FullyConnected" else 16)
    places = circle(len(members))
    panel.marks += [_mark(place, sort, member, below) for member, place in zip(members, places, strict=True)]
    whole = level.topology == "FullyConnected"
    topology = TOPOLOGIES[level.topology]
    # Rings and full meshes follow from the positions alone; other topologies say who is joined.
    joined = None if whole or topology.loop else topology.neighbours(size)
    for i, j in itertools.combinations(range(len(members)), 2):
        # Neighbours on the circle, which closes.
        beside = j - i == 1 or (i == 0 and j == len(members) - 1)
        if joined is not None:
            ends = (_number(members[i]), _number(members[j]))
            if -1 not in ends and ends[1] in joined[:, ends[0]]:
                panel.lines.append(Line(places[i], places[j], level.name, tip=level.note, members=ends))
            continue
        if (whole or beside) and (beside or None not in (members[i], members[j])):
            dashed = None in (members[i], members[j])
            # In a full mesh the gap has no lines: they would suggest a single link.
            if not (whole and dashed):
                ends = (_number(members[i]), _number(members[j]))
                panel.lines.append(
                    Line(places[i], places[j], level.name, dashed=dashed, tip=level.note, members=ends)
                )


def _grid(panel: Panel, level: Level, sort: str, below: int) -> None:
    axes = [visible(size, _MOST[len(level.shape)]) for size in level.shape]
    places = grid([len(axis) for axis in axes])
    closed = level.topology == "Torus"
    stride = [math.prod(level.shape[:a]) for a in range(len(axes))]

    def number(spot: tuple[int, ...]) -> int | None:
        members = [axis[i] for axis, i in zip(axes, spot, strict=True)]
        if None in members:
            return None
        return sum(m * s for m, s in zip(members, stride, strict=True) if m is not None)

    for spot, place in places.items():
        panel.marks.append(_mark(place, sort, number(spot), below))
        for neighbour, around, axis in _neighbours(spot, axes):
            # Around the edge: not in a mesh, and a ring of 2 would double its link.
            if around and not (closed and level.shape[axis] > 2):
                continue
            ends = (_number(number(spot)), _number(number(neighbour)))
            # Bends up or sideways, away from the links that run straight between.
            bend = 0.0 if not around else (0.16 if axis != 1 else -0.16)
            panel.lines.append(
                Line(
                    place,
                    places[neighbour],
                    f"{level.name}, around" if around else level.name,
                    bend,
                    0.6 if around else 1.0,
                    -1 in ends,
                    level.note,
                    ends,
                )
            )


def _number(member: int | None) -> int:
    return -1 if member is None else member


def _neighbours(
    spot: tuple[int, ...], axes: list[list[int | None]]
) -> Iterator[tuple[tuple[int, ...], bool, int]]:
    """Yield (next place along an axis, whether that is around the edge, axis)."""
    for axis, members in enumerate(axes):
        ahead = (spot[axis] + 1) % len(members)
        if len(members) > 1:
            # One direction per axis: the other one is found from the neighbour.
            yield (*spot[:axis], ahead, *spot[axis + 1 :]), ahead == 0, axis
