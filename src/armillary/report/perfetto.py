"""The timeline as Chrome trace events, to be opened in ui.perfetto.dev or chrome://tracing."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.engine.timeline import KINDS, OPERATIONS, Timeline
from armillary.errors import InputError
from armillary.files import replacing
from armillary.report.intervals import depth, lanes
from armillary.report.ranks import class_name, class_sizes

CLASSES_SHOWN = 64
_THREADS = {
    "compute": ("compute",),
    "cpu": ("cpu",),
    "communication": ("collective", "send", "recv"),
    "memory": ("memory",),
    "other": ("none",),
}
_EXACT_IN_JSON = 2**53


def write_perfetto(
    timeline: Timeline, path: str | os.PathLike[str], ranks: Sequence[int] | None = None
) -> None:
    """Write the timeline as Chrome trace-event JSON, compressed if `path` ends in ``.gz``.

    There is one process per rank, with a thread for each kind of node and for each network dimension
    (its chunk phases), more where slices overlap, and a counter of active chunks per dimension. Times
    are in µs to the ns; a finer tick is rounded.

    Args:
        timeline: What to write.
        path: The file, written complete or not at all.
        ranks: The ranks to show; by default one for each class, the slowest `CLASSES_SHOWN`.

    Raises:
        InputError: There is no such rank, or the file cannot be written.
    """
    for rank in ranks or ():
        if not 0 <= rank < timeline.n_ranks:
            raise InputError(f"rank {rank}: expected a rank from 0 to {timeline.n_ranks - 1}")
    shown = _slowest_classes(timeline) if ranks is None else _given(timeline, ranks)
    with replacing(path) as temporary, temporary.open("wb") as raw:
        if str(path).endswith(".gz"):
            # No time stamp and no name, so that the same timeline gives the same file.
            with gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=3, mtime=0) as packed:
                _write(timeline, shown, packed)
        else:
            _write(timeline, shown, raw)


def _slowest_classes(timeline: Timeline) -> list[tuple[int, int, str]]:
    """Return (rank, class, name) of the representatives to show, by rank."""
    sizes = class_sizes(timeline).tolist()
    slowest = np.argsort(-timeline.finish, kind="stable")[:CLASSES_SHOWN].tolist()
    return sorted(
        (int(timeline.representative[cls]), cls, class_name(timeline, cls, sizes[cls])) for cls in slowest
    )


def _given(timeline: Timeline, ranks: Iterable[int]) -> list[tuple[int, int, str]]:
    return [(rank, int(timeline.rank_class[rank]), f"rank {rank:,}") for rank in dict.fromkeys(ranks)]


def _write(timeline: Timeline, shown: list[tuple[int, int, str]], stream: Any) -> None:
    about = {
        "producer": "armillary",
        "profile": timeline.info.get("profile"),
        "npus": timeline.info.get("npus", timeline.n_ranks),
        "classes": len(timeline.finish),
        "classes_shown": len(shown),
    }
    stream.write(f'{{"displayTimeUnit":"ns","otherData":{json.dumps(about)},"traceEvents":[\n'.encode())
    before = ""
    batch: list[str] = []
    for event in _events(timeline, shown):
        batch.append(event)
        if len(batch) == 10_000:
            stream.write((before + ",\n".join(batch)).encode())
            before, batch = ",\n", []
    if batch:
        stream.write((before + ",\n".join(batch)).encode())
    stream.write(b"\n]}\n")


def _events(timeline: Timeline, shown: list[tuple[int, int, str]]) -> Iterator[str]:
    tid = 0
    for order, (rank, cls, name) in enumerate(shown):
        pid = rank + 1  # process 0 is the idle process to Perfetto
        yield _metadata(pid, 0, "process_name", {"name": name})
        yield _metadata(pid, 0, "process_sort_index", {"sort_index": order})
        for title, start, end, texts in _tracks(timeline, cls):
            lane = lanes(start, end)
            for number in range(int(lane.max(initial=-1)) + 1):
                tid += 1  # unique in the file: some readers ignore the process of a thread
                yield _metadata(
                    pid, tid, "thread_name", {"name": title if not number else f"{title} ({number + 1})"}
                )
                yield _metadata(pid, tid, "thread_sort_index", {"sort_index": tid})
                mine = np.flatnonzero(lane == number)
                mine = mine[np.lexsort((end[mine], start[mine]))]
                begins, ends = _in_ns(timeline, start[mine]), _in_ns(timeline, end[mine])
                for i, begin, stop in zip(mine.tolist(), begins, ends, strict=True):
                    yield (
                        f'{{"ph":"X","pid":{pid},"tid":{tid},"ts":{_micros(begin)},'
                        f'"dur":{_micros(stop - begin)},{texts[i]}}}'
                    )
        yield from _counters(timeline, cls, pid)


def _tracks(
    timeline: Timeline, cls: int
) -> Iterator[tuple[str, NDArray[np.int64], NDArray[np.int64], list[str]]]:
    """Yield (title, starts, ends, rest of the event as JSON) for each group of threads of a class."""
    table = timeline.table(cls)
    start, end = timeline.spans(cls)
    for title, kinds in _THREADS.items():
        nodes = np.flatnonzero(np.isin(table.kind, [KINDS.index(kind) for kind in kinds]) & (start >= 0))
        texts = []
        for node in nodes.tolist():
            label, size = str(table.label[node]), int(table.size[node])
            args: dict[str, Any] = {"node": _identifier(table.node_id[node])}
            args |= {"collective": label} if label else {}
            args |= {"bytes": size} if size else {}
            args |= {"flops": int(table.flops[node])} if table.flops[node] else {}
            texts.append(_rest(str(table.name[node]) or label or title, KINDS[table.kind[node]], args))
        if texts:
            yield title, start[nodes], end[nodes], texts
    for title, rows in _dimension_rows(timeline, cls):
        texts = []
        for node, chunk, phase, operation, sent in zip(
            timeline.phase_node[rows].tolist(),
            timeline.phase_chunk[rows].tolist(),
            timeline.phase_index[rows].tolist(),
            timeline.phase_operation[rows].tolist(),
            timeline.phase_bytes[rows].tolist(),
            strict=True,
        ):
            args = {"node": _identifier(table.node_id[node]), "chunk": chunk, "phase": phase, "bytes": sent}
            texts.append(_rest(f"{OPERATIONS[operation]} chunk {chunk}", "phase", args))
        yield title, timeline.phase_start[rows], timeline.phase_end[rows], texts


def _dimension_rows(timeline: Timeline, cls: int) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Yield (title, rows of the phase columns) for each dimension that a class used."""
    rows = timeline.phases(cls)
    described = timeline.info.get("dimensions", [])
    for dim in np.unique(timeline.phase_dim[rows]).tolist():
        title = "groups" if dim < 0 else f"dim {dim}"
        if 0 <= dim < len(described):
            title += f" {described[dim]['name']}"
        yield title, rows[timeline.phase_dim[rows] == dim]


def _counters(timeline: Timeline, cls: int, pid: int) -> Iterator[str]:
    for title, rows in _dimension_rows(timeline, cls):
        at, active = depth(timeline.phase_start[rows], timeline.phase_end[rows])
        name = json.dumps(f"{title}: active")  # readers add the name of the series, "chunks"
        for tick, count in zip(_in_ns(timeline, at), active.tolist(), strict=True):
            yield (
                f'{{"ph":"C","pid":{pid},"tid":0,"ts":{_micros(tick)},'
                f'"name":{name},"args":{{"chunks":{count}}}}}'
            )


def _metadata(pid: int, tid: int, name: str, args: dict[str, Any]) -> str:
    return f'{{"ph":"M","pid":{pid},"tid":{tid},"name":"{name}","args":{json.dumps(args)}}}'


def _rest(name: str, category: str, args: dict[str, Any]) -> str:
    return f'"name":{json.dumps(name)},"cat":"{category}","args":{json.dumps(args)}'


def _identifier(node_id: np.uint64) -> int | str:
    """Return a node id as a number, or as text where a reader of JSON would round it."""
    number = int(node_id)
    return number if number <= _EXACT_IN_JSON else str(number)


def _in_ns(timeline: Timeline, ticks: NDArray[np.int64]) -> list[int]:
    tick_ns = timeline.info.get("tick_ns", 1)
    if tick_ns == 1:
        values: list[int] = ticks.tolist()
        return values
    return [round(tick * tick_ns) for tick in ticks.tolist()]


def _micros(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"
