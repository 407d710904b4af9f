"""What a run did over time, packed for a page: tracks of slices, and the use of links.

A million slices are 6 MB as three integers each, and far less when compressed, as steps repeat themselves. Should a run
not fit all the same, slices shorter than what a screen can show are joined with their neighbours, and the page says so.
"""

from __future__ import annotations

import base64
import itertools
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.text import on_one_line
from armillary.engine.common.timeline import KINDS, OPERATIONS, Timeline
from armillary.engine.transport.use import NetworkUse
from armillary.report.critical import Step, critical_path
from armillary.report.links import busiest, link_name
from armillary.report.plain import class_name, class_sizes, slowest
from armillary.report.time_breakdown import KINDS_OF, lanes

Ints = NDArray[np.int64]
MOST_TEXT = 3_600_000
"""Bytes of base64 that the slices of a page may take; the scripts of a page take 0.7 MB, the rest little."""
MOST_SLICES = 4_000_000
CLASSES_SHOWN = 64
LANES_SHOWN = 8
LINKS_SHOWN = 24
NAME = 100
_RESOLUTIONS = (1 << 18, 1 << 16, 1 << 14, 1 << 12)
"""Parts of the run below which slices are joined, tried in this order."""


@dataclass(frozen=True)
class _Track:
    """Slices in order, none of which overlap; `what` numbers texts, `count` slices that each stands for."""

    name: str
    kind: str
    start: Ints
    end: Ints
    what: Ints
    lit: NDArray[np.bool_]
    count: Ints


@dataclass(frozen=True)
class _Group:
    """Tracks of a class of so many ranks; 0: of none."""

    name: str
    ranks: int
    finish: int
    tracks: list[_Track]
    run: int = 0
    """Of several that are beside each other, which."""


class _Texts:
    """Distinct rows of texts, numbered as they come."""

    def __init__(self) -> None:
        self.rows: dict[tuple[Any, ...], int] = {}

    def number(self, row: tuple[Any, ...]) -> int:
        return self.rows.setdefault(row, len(self.rows))

    def joined(self) -> str:
        return "\n".join("\t".join(map(str, row)) for row in self.rows)


def tracks(timeline: Timeline) -> dict[str, Any]:
    """Return the tracks of a run as JSON values: its slowest classes, as long as their slices are not too many.

    The columns of slices are compressed, in base64.
    """
    texts = _Texts()
    groups = list(_groups(timeline, texts, CLASSES_SHOWN))
    links = _links(timeline.network) if timeline.network else []
    tick, end = float(timeline.info.get("tick_ns", 1)), timeline.total_ticks
    return _block("Timeline", groups, texts, tick, end, len(timeline.finish)) | {"links": links}


def tracks_beside(timelines: Mapping[str, Timeline]) -> dict[str, Any]:
    """Return the slowest class of each run, all in one picture that begins when they do.

    A page moves one along the other, so that a phase is below itself.
    """
    texts = _Texts()
    tick = min(float(each.info.get("tick_ns", 1)) for each in timelines.values())
    groups = []
    for run, (name, timeline) in enumerate(timelines.items()):
        scale = float(timeline.info.get("tick_ns", 1)) / tick
        for group in _groups(timeline, texts, 1):
            moved = [
                replace(each, start=_scaled(each.start, scale), end=_scaled(each.end, scale))
                for each in group.tracks
            ]
            finish = round(group.finish * scale)
            groups.append(replace(group, name=f"{name}: {group.name}", tracks=moved, finish=finish, run=run))
    end = max(group.finish for group in groups)
    return _block("The runs beside each other", groups, texts, tick, end, len(timelines)) | {"links": []}


def _scaled(ticks: Ints, scale: float) -> Ints:
    return ticks if scale == 1 else np.rint(ticks * scale).astype(np.int64)


def _block(
    title: str, groups: Sequence[_Group], texts: _Texts, tick_ns: float, end: int, classes: int
) -> dict[str, Any]:
    shown, columns, joined = _packed([track for group in groups for track in group.tracks], texts, end)
    return {
        "kind": "timeline",
        "title": title,
        "tick_s": tick_ns * 1e-9,
        "end": end,
        "classes": classes,
        "groups": [
            {
                "name": each.name,
                "ranks": each.ranks,
                "finish": each.finish,
                "tracks": len(each.tracks),
                "run": each.run,
            }
            for each in groups
        ],
        "tracks": [[track.name, track.kind, len(track.start)] for track in shown],
        "joined": joined,
        "slices": int(sum(track.count.sum() for track in shown)),
        **columns,
    }


def _groups(timeline: Timeline, texts: _Texts, most: int) -> Iterator[_Group]:
    """Yield the critical path, which stands for no rank, and the slowest classes."""
    cls = slowest(timeline)
    if cls is None:
        return
    path = critical_path(timeline, cls)
    named = cache(lambda of: _named(timeline, of, texts))
    along = _along(timeline, path, named, texts)
    yield _Group("critical path", 0, int(timeline.finish[cls]), [along])
    sizes, total = class_sizes(timeline), 0
    for each in np.argsort(-timeline.finish, kind="stable")[:most].tolist():
        found = list(_of_class(timeline, each, texts, path, named(each)))
        total += sum(len(track.start) for track in found)
        # The first is always shown: a page without any says nothing.
        if total > MOST_SLICES and each != cls:
            return
        size = int(sizes[each])
        yield _Group(class_name(timeline, each, size), size, int(timeline.finish[each]), found)


def _along(timeline: Timeline, path: Sequence[Step], named: Callable[[int], Ints], texts: _Texts) -> _Track:
    """Return the critical path as a track of its own."""
    waiting = texts.number(("waiting", "", "", "none", 0, 0))
    rows = [
        (step.start, step.end, int(named(step.cls)[step.node]) if step.node >= 0 else waiting)
        for step in path
        if step.end > step.start
    ]
    start, end, what = np.array(rows, np.int64).reshape(-1, 3).T
    ones = np.ones(len(start), np.int64)
    return _Track("critical path", "path", start, end, what, ones.astype(np.bool_), ones)


def _of_class(
    timeline: Timeline, cls: int, texts: _Texts, path: Sequence[Step], what: Ints
) -> Iterator[_Track]:
    table, (start, end) = timeline.table(cls), timeline.spans(cls)
    on_path = np.zeros(len(start), np.bool_)
    on_path[[step.node for step in path if step.cls == cls and step.node >= 0]] = True
    for kind, names in (*KINDS_OF.items(), ("other", ("none",))):
        nodes = np.flatnonzero(np.isin(table.kind, [KINDS.index(name) for name in names]) & (end > start))
        streams = np.unique(table.stream[nodes]).tolist()
        for stream in streams:
            mine = nodes[table.stream[nodes] == stream]
            name = kind.replace("cpu", "CPU") + (
                f", stream {stream}" if len(streams) > 1 and stream >= 0 else ""
            )
            yield from _in_lanes(name, kind, start[mine], end[mine], what[mine], on_path[mine])
    rows = timeline.phases(cls)
    described = timeline.info.get("dimensions", [])
    for dim in np.unique(timeline.phase_dim[rows]).tolist():
        mine = rows[timeline.phase_dim[rows] == dim]
        name = str(described[dim]["name"]) if 0 <= dim < len(described) else "groups"
        operation, sizes = timeline.phase_operation[mine].astype(np.int64), timeline.phase_bytes[mine]
        keys, of = np.unique(
            np.stack((operation, sizes, timeline.phase_chunk[mine])), axis=1, return_inverse=True
        )
        numbers = np.array(
            [
                texts.number((f"{OPERATIONS[op]} chunk {chunk}", "", name, "phase", size, 0))
                for op, size, chunk in keys.T.tolist()
            ],
            np.int64,
        )
        begin, stop = timeline.phase_start[mine], timeline.phase_end[mine]
        yield from _in_lanes(
            f"{on_one_line(name)[:NAME]} (chunks)", "network", begin, stop, numbers[of.ravel()],
            np.zeros(len(mine), np.bool_),
        )  # fmt: skip


def _named(timeline: Timeline, cls: int, texts: _Texts) -> Ints:
    """Return the number of the text of each node of a class."""
    table = timeline.table(cls)
    if not len(table.kind):
        return np.empty(0, np.int64)
    names, name = np.unique(table.name, return_inverse=True)
    labels, label = np.unique(table.label, return_inverse=True)
    keys, of = np.unique(
        np.stack((name, label, table.kind.astype(np.int64), table.size, table.flops)),
        axis=1,
        return_inverse=True,
    )
    clean = [on_one_line(str(each))[:NAME] for each in names.tolist()]
    tidy = [on_one_line(str(each))[:NAME] for each in labels.tolist()]
    numbers = [
        texts.number((clean[n], tidy[at], "", KINDS[kind], size, flops))
        for n, at, kind, size, flops in keys.T.tolist()
    ]
    return np.array(numbers, np.int64)[of.ravel()]


def _in_lanes(
    name: str, kind: str, start: Ints, end: Ints, what: Ints, lit: NDArray[np.bool_]
) -> Iterator[_Track]:
    """Yield tracks without overlaps; of many at a time the first `LANES_SHOWN`, which the name says."""
    real = end > start
    order = np.flatnonzero(real)[np.lexsort((end[real], start[real]))]
    if not len(order):
        return
    start, end, what, lit = start[order], end[order], what[order], lit[order]
    lane = lanes(start, end)
    count = int(lane.max()) + 1
    for number in range(min(count, LANES_SHOWN)):
        mine = lane == number
        title = name if not number else f"{name} ({number + 1})"
        if number == LANES_SHOWN - 1 and count > LANES_SHOWN:
            title += f", {count - LANES_SHOWN:,} more not drawn"
        ones = np.ones(int(mine.sum()), np.int64)
        yield _Track(title, kind, start[mine], end[mine], what[mine], lit[mine], ones)


def _packed(found: Sequence[_Track], texts: _Texts, end: int) -> tuple[list[_Track], dict[str, Any], float]:
    """Return the tracks as they are shown, their columns, and the ticks below which slices are joined (0: none)."""
    shown, joined = list(found), 0.0
    for parts in (0, *_RESOLUTIONS):
        if parts:
            joined = max(end / parts, 1.0)
            shown = [_joined(track, joined) for track in found]
        columns = _columns(shown, texts)
        if len(columns["data"]) <= MOST_TEXT:
            break
    return shown, columns, joined


def _joined(track: _Track, ticks: float) -> _Track:
    """Return a track in which neighbours within `ticks`, each shorter than that, are one slice."""
    short = track.end - track.start < ticks
    cell = (track.start / ticks).astype(np.int64)
    # A long slice begins a group of its own, and ends it.
    new = np.ones(len(cell), np.bool_)
    new[1:] = (cell[1:] != cell[:-1]) | ~short[1:] | ~short[:-1]
    first = np.flatnonzero(new)
    last = np.append(first[1:], len(new)) - 1
    return _Track(
        track.name, track.kind, track.start[first], track.end[last], track.what[first],
        np.logical_or.reduceat(track.lit, first) if len(first) else track.lit,
        np.add.reduceat(track.count, first) if len(first) else track.count,
    )  # fmt: skip


def _columns(found: Sequence[_Track], texts: _Texts) -> dict[str, Any]:
    """Return the texts and columns of tracks one after the other: compressed, in base64, with their widths in bytes."""
    before = [np.concatenate(([0], track.end[:-1])) if len(track.end) else track.end for track in found]
    columns = {
        "gap": [track.start - each for track, each in zip(found, before, strict=True)],
        "length": [track.end - track.start for track in found],
        "what": [track.what for track in found],
        "count": [track.count for track in found],
        "lit": [track.lit.astype(np.int64) for track in found],
    }
    head = texts.joined().encode("utf-8", "replace")
    pieces, widths = [head], {}
    for name, parts in columns.items():
        values = np.concatenate(parts) if parts else np.empty(0, np.int64)
        width = next(each for each in (1, 2, 4, 8) if int(values.max(initial=0)) < 1 << min(8 * each, 63))
        widths[name] = width
        # All first bytes, then all second ones: equal bytes side by side compress better.
        planes = values.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :width]
        pieces.append(np.ascontiguousarray(planes.T).tobytes())
    # Quick for much, thorough for little.
    level = 9 if sum(map(len, pieces)) < 8_000_000 else 6
    data = base64.b64encode(zlib.compress(b"".join(pieces), level)).decode("ascii")
    return {"text_bytes": len(head), "widths": widths, "data": data}


def _links(network: NetworkUse) -> list[dict[str, Any]]:
    """Return the busiest links: the share of bandwidth in use of each bin of time, in thousandths, and what waited."""
    series = network.series
    return [
        {
            "name": on_one_line(link_name(network.topology, link))[:NAME],
            "bin_s": network.use.bin * 1e-12,
            "share": np.rint(np.clip(series[link], 0, 1) * 1000).astype(int).tolist(),
            "mean": float(network.mean[link]),
            "waiting": int(network.use.depth[link]),
        }
        for link in itertools.islice(busiest(network, LINKS_SHOWN), LINKS_SHOWN)
    ]
