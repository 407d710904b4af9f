"""The timeline as Chrome trace events, to be opened in ui.perfetto.dev or chrome://tracing."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.base.text import json_text
from armillary.engine.common.timeline import KINDS, OPERATIONS, Timeline
from armillary.engine.transport.layout import PS
from armillary.engine.transport.use import NetworkUse
from armillary.report import chrome_trace
from armillary.report.links import busiest, link_name
from armillary.report.plain import class_name, class_sizes
from armillary.report.time_breakdown import depth, lanes

if TYPE_CHECKING:
    from armillary.engine.common.multi_job import JobsResult

CLASSES_SHOWN = 64
_THREADS = {
    "compute": ("compute",),
    "cpu": ("cpu",),
    "communication": ("collective", "send", "recv"),
    "memory": ("memory",),
    "other": ("none",),
}


def write_perfetto(
    timeline: Timeline, path: str | os.PathLike[str], ranks: Sequence[int] | None = None
) -> None:
    """Write the timeline as Chrome trace-event JSON, compressed if `path` ends in ``.gz``.

    There is one process per rank, with a thread for each kind of node and for each network dimension
    (its chunk phases), more where slices overlap, and a counter of active chunks per dimension. Where
    links were simulated, one more process has the utilisation and the queue of the busiest. Times are in
    µs to the ns; a finer tick is rounded.

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
    about = {
        "producer": "armillary",
        "profile": timeline.info.get("profile"),
        "npus": timeline.info.get("npus", timeline.n_ranks),
        "classes": len(timeline.finish),
        "classes_shown": len(shown),
    }
    chrome_trace.write(path, about, _events(timeline, shown))


def write_jobs_perfetto(result: JobsResult, path: str | os.PathLike[str]) -> None:
    """Write the timelines of several jobs as `write_perfetto`, each rank of each job as a process "JOB, rank R".

    Raises:
        InputError: The file cannot be written.
    """
    most = max(1, CLASSES_SHOWN // len(result.jobs))
    about = {"producer": "armillary", "profile": "physical", "jobs": [job.name for job in result.jobs]}
    chrome_trace.write(path, about, _job_events(result, most))


def _job_events(result: JobsResult, most: int) -> Iterator[str]:
    tids, before = itertools.count(1), 0
    for job in result.jobs:
        own = job.timeline
        moved: dict[str, Any] = {
            # -1 marks what never happened and must not be moved.
            name: np.where(getattr(own, name) >= 0, getattr(own, name) + job.arrival, -1)
            for name in ("node_start", "node_end", "phase_start", "phase_end")
        }
        shown = [(rank, cls, f"{job.name}, {name}") for rank, cls, name in _slowest_classes(own, most)]
        yield from _events(replace(own, **moved), shown, before, tids)
        # Processes of jobs are numbered one after the other.
        before += own.n_ranks
    if result.timeline.network:
        yield from counters(result.timeline.network, before + 1, before)


def _slowest_classes(timeline: Timeline, most: int = CLASSES_SHOWN) -> list[tuple[int, int, str]]:
    """Return (rank, class, name) of the representatives to show, by rank."""
    sizes = class_sizes(timeline).tolist()
    slowest = np.argsort(-timeline.finish, kind="stable")[:most].tolist()
    return sorted(
        (int(timeline.representative[cls]), cls, class_name(timeline, cls, sizes[cls])) for cls in slowest
    )


def _given(timeline: Timeline, ranks: Iterable[int]) -> list[tuple[int, int, str]]:
    return [(rank, int(timeline.rank_class[rank]), f"rank {rank:,}") for rank in dict.fromkeys(ranks)]


def _events(
    timeline: Timeline, shown: list[tuple[int, int, str]], before: int = 0, tids: Iterator[int] | None = None
) -> Iterator[str]:
    """Yield all events; processes are numbered from `before`, threads from `tids`."""
    tids = tids or itertools.count(1)
    for order, (rank, cls, name) in enumerate(shown, before):
        pid = before + rank + 1  # Perfetto takes process 0 for the idle process
        yield chrome_trace.metadata(pid, 0, "process_name", {"name": name})
        yield chrome_trace.metadata(pid, 0, "process_sort_index", {"sort_index": order})
        for title, start, end, texts in _tracks(timeline, cls):
            # A thread cannot show slices that overlap without nesting.
            lane = lanes(start, end)
            for number in range(int(lane.max(initial=-1)) + 1):
                tid = next(tids)  # unique in the file: some readers ignore the process of a thread
                yield chrome_trace.metadata(
                    pid, tid, "thread_name", {"name": title if not number else f"{title} ({number + 1})"}
                )
                yield chrome_trace.metadata(pid, tid, "thread_sort_index", {"sort_index": tid})
                mine = np.flatnonzero(lane == number)
                # Readers expect the slices of a thread in order.
                mine = mine[np.lexsort((end[mine], start[mine]))]
                begins, ends = _in_ns(timeline, start[mine]), _in_ns(timeline, end[mine])
                for i, begin, stop in zip(mine.tolist(), begins, ends, strict=True):
                    yield chrome_trace.slice_(pid, tid, begin, stop, texts[i])
        yield from _counters(timeline, cls, pid)
    if timeline.network:
        yield from counters(timeline.network, timeline.n_ranks + 1, len(shown))


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
            args: dict[str, Any] = {"node": chrome_trace.identifier(int(table.node_id[node]))}
            args |= {"collective": label} if label else {}
            args |= {"bytes": size} if size else {}
            args |= {"flops": int(table.flops[node])} if table.flops[node] else {}
            texts.append(
                chrome_trace.rest(str(table.name[node]) or label or title, KINDS[table.kind[node]], args)
            )
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
            args = {
                "node": chrome_trace.identifier(int(table.node_id[node])),
                "chunk": chunk,
                "phase": phase,
                "bytes": sent,
            }
            texts.append(chrome_trace.rest(f"{OPERATIONS[operation]} chunk {chunk}", "phase", args))
        yield title, timeline.phase_start[rows], timeline.phase_end[rows], texts


def _dimension_rows(timeline: Timeline, cls: int) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Yield (title, rows of the phase columns) for each dimension that a class used."""
    rows = timeline.phases(cls)
    described = timeline.info.get("dimensions", [])
    for dim in np.unique(timeline.phase_dim[rows]).tolist():
        # -1: a ring over a sub-group or over all NPUs, which belongs to no dimension.
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
                f'{{"ph":"C","pid":{pid},"tid":0,"ts":{chrome_trace.micros(tick)},'
                f'"name":{name},"args":{{"chunks":{count}}}}}'
            )


def _in_ns(timeline: Timeline, ticks: NDArray[np.int64]) -> list[int]:
    tick_ns = timeline.info.get("tick_ns", 1)
    if tick_ns == 1:
        values: list[int] = ticks.tolist()
        return values
    return [round(tick * tick_ns) for tick in ticks.tolist()]


LINKS_SHOWN = 64
PROCESS = "network links"


def counters(network: NetworkUse, pid: int, order: int) -> Iterator[str]:
    """Yield a process with counters of the busiest links: utilisation, and waiting bytes if there were any.

    Args:
        network: The recorded use of links.
        pid: Number of the process.
        order: Its place among processes.
    """
    yield chrome_trace.metadata(pid, 0, "process_name", {"name": PROCESS})
    yield chrome_trace.metadata(pid, 0, "process_sort_index", {"sort_index": order})
    use, series = network.use, network.series
    starts = np.arange(series.shape[1]) * use.bin
    for link in busiest(network, LINKS_SHOWN):
        name = link_name(network.topology, link)
        percent = [round(100 * share, 2) for share in series[link].tolist()]
        yield from _counter(pid, f"{name}: utilisation", "percent", starts.tolist(), percent, network.end)
        if use.depth[link]:
            depths = use.depths[link].tolist()
            yield from _counter(pid, f"{name}: queue", "bytes", starts.tolist(), depths, network.end)


def _counter(
    pid: int, name: str, unit: str, starts: list[int], values: list[int] | list[float], end: int
) -> Iterator[str]:
    """Yield the events of a counter where its value changes; it ends with 0."""
    # Perfetto does not undo the escapes of counter names.
    begin = f'{{"ph":"C","pid":{pid},"tid":0,"ts":'
    rest = f',"name":{json_text(name)},"args":{{"{unit}":'
    # A value below all others, so that the first is always written.
    before: int | float = -1
    for at, value in zip([*starts, max(end, starts[-1] + 1 if starts else 0)], [*values, 0], strict=True):
        if value != before:
            yield f"{begin}{chrome_trace.micros(round(at / PS))}{rest}{value}}}}}"
        before = value
