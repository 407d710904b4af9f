"""The timeline for ui.perfetto.dev, in its own format or, for chrome://tracing, too, as Chrome trace events."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.base.text import json_text
from armillary.engine.common.timeline import KINDS, OPERATIONS, Timeline
from armillary.engine.transport.layout import PS
from armillary.engine.transport.use import NetworkUse
from armillary.report import chrome_trace, track_event
from armillary.report.links import busiest, link_name
from armillary.report.plain import class_name, class_sizes
from armillary.report.time_breakdown import depth, lanes
from armillary.report.track_event import Counter, Slices, Texts

if TYPE_CHECKING:
    from armillary.engine.multi_job import JobsResult

CLASSES_SHOWN = 64
_THREADS = {
    "compute": ("compute",),
    "cpu": ("cpu",),
    "communication": ("collective", "send", "recv"),
    "memory": ("memory",),
    "other": ("none",),
}


@dataclass(frozen=True)
class Process:
    """A rank as it is drawn.

    Attributes:
        pid: Its number, above 0.
        order: Its place among the processes.
        name: What it is called.
        note: What else there is to say, or "".
        threads: Its title and its slices, none of which overlap, for each thread.
        counters: Its counters.
    """

    pid: int
    order: int
    name: str
    note: str
    threads: Iterable[tuple[str, Slices]]
    counters: Iterable[Counter]


def write_perfetto(
    timeline: Timeline, path: str | os.PathLike[str], ranks: Sequence[int] | None = None
) -> None:
    """Write the timeline for Perfetto.

    A `path` that ends in ``.pftrace`` or ``.perfetto-trace`` gets Perfetto's own format, any other Chrome trace-event
    JSON; either is compressed as a whole if ``.gz`` follows. Perfetto's own is always compressed inside, a tenth of the
    size of JSON, and written several times faster.

    There is one process per rank, with a thread for each kind of node and for each network dimension
    (its chunk phases), more where slices overlap, and a counter of active chunks per dimension. Where
    links were simulated, one more process has the utilisation and the queue of the busiest. Times are in
    ns (JSON: in µs to the ns); a finer tick is rounded.

    Args:
        timeline: What to write.
        path: The file, written complete or not at all.
        ranks: The ranks to show; by default one for each class, the slowest `CLASSES_SHOWN`, with a note (in Perfetto's
            own format) of the ranks that it stands for.

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
    links = _links(timeline.network, timeline.n_ranks + 1, len(shown))
    _write(path, about, itertools.chain(_processes(timeline, shown), links))


def write_jobs_perfetto(result: JobsResult, path: str | os.PathLike[str]) -> None:
    """Write the timelines of several jobs as `write_perfetto`, each rank of each job as a process "JOB, rank R".

    Raises:
        InputError: The file cannot be written.
    """
    most = max(1, CLASSES_SHOWN // len(result.jobs))
    about = {"producer": "armillary", "profile": "physical", "jobs": [job.name for job in result.jobs]}
    _write(path, about, _job_processes(result, most))


def _write(path: str | os.PathLike[str], about: dict[str, Any], processes: Iterable[Process]) -> None:
    if str(path).removesuffix(".gz").endswith(track_event.ENDINGS):
        track_event.write(path, _packets(processes))
    else:
        chrome_trace.write(path, about, _events(processes))


def _job_processes(result: JobsResult, most: int) -> Iterator[Process]:
    before = 0
    for job in result.jobs:
        own = job.timeline
        moved: dict[str, Any] = {
            # -1 marks what never happened and must not be moved.
            name: np.where(getattr(own, name) >= 0, getattr(own, name) + job.arrival, -1)
            for name in ("node_start", "node_end", "phase_start", "phase_end")
        }
        shown = [replace(each, name=f"{job.name}, {each.name}") for each in _slowest_classes(own, most)]
        yield from _processes(replace(own, **moved), shown, before)
        # Processes of jobs are numbered one after the other.
        before += own.n_ranks
    yield from _links(result.timeline.network, before + 1, before)


@dataclass(frozen=True)
class Shown:
    """A rank to show, its class, and name and note of its `Process`."""

    rank: int
    cls: int
    name: str
    note: str = ""


def _slowest_classes(timeline: Timeline, most: int = CLASSES_SHOWN) -> list[Shown]:
    """Return the representatives to show, by rank."""
    sizes = class_sizes(timeline).tolist()
    slowest = np.argsort(-timeline.finish, kind="stable")[:most].tolist()
    found = []
    for cls in sorted(slowest, key=lambda cls: int(timeline.representative[cls])):
        note = (
            f"stands for ranks {_runs(np.flatnonzero(timeline.rank_class == cls))}" if sizes[cls] > 1 else ""
        )
        rank = int(timeline.representative[cls])
        found.append(Shown(rank, cls, class_name(timeline, cls, sizes[cls]), note))
    return found


def _runs(ranks: NDArray[np.int64]) -> str:
    """Return ascending ranks as text, such as "0-3, 8"; no more than 8 runs of them."""
    ends = np.flatnonzero(np.append(np.diff(ranks) > 1, True))
    first = np.append(0, ends[:-1] + 1)
    pairs = zip(ranks[first].tolist(), ranks[ends].tolist(), strict=True)
    runs = [f"{one}-{last}" if last > one else f"{one}" for one, last in itertools.islice(pairs, 8)]
    return ", ".join(runs + ["…"] * (len(ends) > len(runs)))


def _given(timeline: Timeline, ranks: Iterable[int]) -> list[Shown]:
    return [Shown(rank, int(timeline.rank_class[rank]), f"rank {rank:,}") for rank in dict.fromkeys(ranks)]


def _processes(timeline: Timeline, shown: Iterable[Shown], before: int = 0) -> Iterator[Process]:
    """Yield a process for each rank shown; they are numbered from `before`."""
    for order, each in enumerate(shown, before):
        threads, counters = _threads(timeline, each.cls), _counters(timeline, each.cls)
        # Perfetto takes process 0 for the idle process.
        yield Process(before + each.rank + 1, order, each.name, each.note, threads, counters)


def _packets(processes: Iterable[Process]) -> Iterator[bytes]:
    writer = track_event.Writer()
    for process in processes:
        yield from writer.process(process.pid, process.name, [process.note] if process.note else [])
        for title, slices in process.threads:
            yield from writer.thread(process.pid, title, slices)
        for counter in process.counters:
            yield from writer.counter(counter)


def _events(processes: Iterable[Process]) -> Iterator[str]:
    tids = itertools.count(1)
    for process in processes:
        pid = process.pid
        yield chrome_trace.metadata(pid, 0, "process_name", {"name": process.name})
        yield chrome_trace.metadata(pid, 0, "process_sort_index", {"sort_index": process.order})
        for title, slices in process.threads:
            tid = next(tids)  # unique in the file: some readers ignore the process of a thread
            yield chrome_trace.metadata(pid, tid, "thread_name", {"name": title})
            yield chrome_trace.metadata(pid, tid, "thread_sort_index", {"sort_index": tid})
            for begin, end, text in zip(
                slices.start.tolist(), slices.end.tolist(), _rest(slices), strict=True
            ):
                yield chrome_trace.slice_(pid, tid, begin, end, text)
        for counter in process.counters:
            # Readers add the name of the series. Perfetto does not undo the escapes of counter names.
            begin = f'{{"ph":"C","pid":{pid},"tid":0,"ts":'
            rest = f',"name":{json_text(counter.name)},"args":{{"{counter.unit}":'
            for at, value in zip(counter.at.tolist(), counter.value.tolist(), strict=True):
                yield f"{begin}{chrome_trace.micros(at)}{rest}{value}}}}}"


def _rest(slices: Slices) -> Iterator[str]:
    """Yield the part of the event of each slice apart from its time."""
    names, categories = slices.name.distinct, slices.category.distinct
    columns = [
        (key, [values.distinct[at] for at in values.code] if isinstance(values, Texts) else values.tolist())
        for key, values, _ in slices.args
    ]
    given = np.stack([given for _, _, given in slices.args]).T.tolist()
    for row, (name, category) in enumerate(
        zip(slices.name.code.tolist(), slices.category.code.tolist(), strict=True)
    ):
        args = {
            key: chrome_trace.identifier(values[row]) if key == "node" else values[row]
            for (key, values), known in zip(columns, given[row], strict=True)
            if known
        }
        yield chrome_trace.rest(names[name], categories[category], args)


def _threads(timeline: Timeline, cls: int) -> Iterator[tuple[str, Slices]]:
    """Yield title and slices of each thread of a class."""
    for title, slices in itertools.chain(_node_tracks(timeline, cls), _phase_tracks(timeline, cls)):
        # Readers expect the slices of a thread in order.
        slices = slices[np.lexsort((slices.end, slices.start))]
        # A thread cannot show slices that overlap without nesting.
        lane = lanes(slices.start, slices.end)
        in_lanes = slices[np.argsort(lane, kind="stable")]
        ends = np.cumsum(np.bincount(lane)).tolist()
        for number, (first, last) in enumerate(zip([0, *ends], ends, strict=False)):
            mine = in_lanes[np.arange(first, last)]
            timed = replace(mine, start=_in_ns(timeline, mine.start), end=_in_ns(timeline, mine.end))
            yield title if not number else f"{title} ({number + 1})", timed


def _node_tracks(timeline: Timeline, cls: int) -> Iterator[tuple[str, Slices]]:
    """Yield title and slices, in ticks, of the nodes of a class, by kind."""
    table = timeline.table(cls)
    start, end = timeline.spans(cls)
    for title, kinds in _THREADS.items():
        nodes = np.flatnonzero(np.isin(table.kind, [KINDS.index(kind) for kind in kinds]) & (start >= 0))
        if not len(nodes):
            continue
        label = Texts.of(table.label[nodes].tolist())
        labelled = np.array([bool(text) for text in label.distinct], np.bool_)[label.code]
        name = Texts.of(
            [name or label or title for name, label in zip(
                table.name[nodes].tolist(), table.label[nodes].tolist(), strict=True
            )]
        )  # fmt: skip
        size, flops = table.size[nodes], table.flops[nodes]
        args: list[tuple[str, Any, NDArray[np.bool_]]] = [
            ("node", table.node_id[nodes], np.ones(len(nodes), np.bool_)),
            ("collective", label, labelled),
            ("bytes", size, size != 0),
            ("flops", flops, flops != 0),
        ]
        kind = Texts(KINDS, table.kind[nodes].astype(np.int64))
        yield title, Slices(start[nodes], end[nodes], name, kind, args)


def _phase_tracks(timeline: Timeline, cls: int) -> Iterator[tuple[str, Slices]]:
    """Yield title and slices, in ticks, of the chunk phases of a class, by dimension."""
    ids = timeline.table(cls).node_id
    for title, rows in _dimension_rows(timeline, cls):
        chunk, operation = timeline.phase_chunk[rows], timeline.phase_operation[rows]
        numbers = operation.astype(np.int64) << 32 | chunk
        distinct, code = np.unique(numbers, return_inverse=True)
        name = Texts(
            [f"{OPERATIONS[each >> 32]} chunk {each & 0xFFFFFFFF}" for each in distinct.tolist()],
            code.ravel(),
        )
        always = np.ones(len(rows), np.bool_)
        args: list[tuple[str, Any, NDArray[np.bool_]]] = [
            ("node", ids[timeline.phase_node[rows]], always),
            ("chunk", chunk, always),
            ("phase", timeline.phase_index[rows], always),
            ("bytes", timeline.phase_bytes[rows], always),
        ]
        kind = Texts(("phase",), np.zeros(len(rows), np.int64))
        yield title, Slices(timeline.phase_start[rows], timeline.phase_end[rows], name, kind, args)


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


def _counters(timeline: Timeline, cls: int) -> Iterator[Counter]:
    for title, rows in _dimension_rows(timeline, cls):
        at, active = depth(timeline.phase_start[rows], timeline.phase_end[rows])
        yield Counter(f"{title}: active", "chunks", _in_ns(timeline, at), active)


def _in_ns(timeline: Timeline, ticks: NDArray[np.int64]) -> NDArray[np.int64]:
    tick_ns = timeline.info.get("tick_ns", 1)
    return ticks if tick_ns == 1 else np.rint(ticks * tick_ns).astype(np.int64)


LINKS_SHOWN = 64
PROCESS = "network links"


def _links(network: NetworkUse | None, pid: int, order: int) -> Iterator[Process]:
    """Yield a process with counters of the busiest links: utilisation, and waiting bytes if there were any.

    Args:
        network: The recorded use of links, if there is one.
        pid: Number of the process.
        order: Its place among processes.
    """
    if network:
        yield Process(pid, order, PROCESS, "", (), _link_counters(network))


def _link_counters(network: NetworkUse) -> Iterator[Counter]:
    use, series = network.use, network.series
    starts = np.arange(series.shape[1]) * use.bin
    for link in busiest(network, LINKS_SHOWN):
        name = link_name(network.topology, link)
        percent = np.array([round(100 * share, 2) for share in series[link].tolist()], np.float64)
        yield _changes(f"{name}: utilisation", "percent", starts, percent, network.end)
        if use.depth[link]:
            yield _changes(f"{name}: queue", "bytes", starts, use.depths[link], network.end)


def _changes(name: str, unit: str, starts: NDArray[np.int64], values: NDArray[Any], end: int) -> Counter:
    """Return a counter where its value changes, in ps; it ends with 0."""
    at = np.append(starts, max(end, int(starts[-1]) + 1 if len(starts) else 0))
    values = np.append(values, values.dtype.type(0))
    # The first is always written.
    changed = np.append(True, values[1:] != values[:-1])
    return Counter(name, unit, np.rint(at[changed] / PS).astype(np.int64), values[changed])
