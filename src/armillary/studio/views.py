"""What a step does when, what it holds, and how it uses the network: the simulation itself, as pictures need it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from armillary.base.document import Document
from armillary.base.json_text import parse_json
from armillary.engine.common.timeline import KINDS, Timeline
from armillary.explore.training.step import extent, simulated, trace_of
from armillary.explore.training.train import step_of
from armillary.report.communication import collectives, dimensions
from armillary.report.critical import Late
from armillary.report.memory_tables import TITLES
from armillary.report.plain import class_name, class_sizes, nanoseconds
from armillary.report.time_breakdown import Ticks, union
from armillary.studio import dropped
from armillary.studio.answers import find
from armillary.studio.question import Question, read_question
from armillary.trace import Trace
from armillary.trace.attention import ATTENTION
from armillary.trace.gemm import GEMM
from armillary.workload.generate import replica_layers
from armillary.workload.memory.advice import advise
from armillary.workload.plan.request import keys_of

Tell = Callable[[dict[str, Any]], None]
CLASSES = 32
"""Most classes of ranks that are shown."""
SPANS = 600
"""Most spans of a lane that are told one by one: of more, how much of each piece of the time they take."""
BINS_OF_LANE = 400
"""Pieces of the time of a lane."""
POINTS = 600
"""Points of a curve."""
COLLECTIVES = 30
"""Most kinds of collectives that are listed."""
BINS = 96
"""Pieces of time of the heat map of the network."""
TIMES = ("from", "to")
"""Keys of a question about a part of the time, in s."""


class Run(NamedTuple):
    """A simulated step, or its first microbatches: which, `said` says in words."""

    timeline: Timeline
    trace: Trace
    said: str
    shown: list[int]


def _run(data: Mapping[str, Any]) -> Run:
    if "trace" in data:
        ran = dropped.find(data)
        return Run(ran.result.run, ran.loaded.trace, "the whole trace", _shown(ran.result.run))
    return _kept(json.dumps(vars(read_question(data)), sort_keys=True))


@lru_cache(maxsize=4)
def _kept(text: str) -> Run:
    found = find(Question(**parse_json(text, "question")))
    step = found.step
    one = step_of(found.model, step.machine, keys_of(step.plan))
    constants, runs = step.software.fitted.constants, extent(one)
    said = "the whole step"
    if runs.second is not None:
        few, count = runs.first.rounds()[1], one.rounds()[1]
        said = f"a step of {few} microbatches; this one has {count}, whose middle repeats itself"
    timeline = simulated(runs.first, constants)
    return Run(timeline, trace_of(runs.first, constants), said, _shown(timeline))


def _shown(timeline: Timeline) -> list[int]:
    """Return the classes that are shown: of many, the first and the last are among them."""
    classes = len(timeline.finish)
    found: list[int] = np.unique(
        np.linspace(0, classes - 1, min(classes, CLASSES)).round().astype(int)
    ).tolist()
    return found


def timeline(data: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """Return what each class of ranks does when: spans, or where there are too many shares of pieces of the time.

    With `TIMES` it is that of a part of the time, in more detail.
    """
    document = Document("question", dict(data))
    run = _run({key: value for key, value in data.items() if key not in TIMES})
    total = nanoseconds(run.timeline, run.timeline.total_ticks) * 1e-9
    low, high = (
        document.number((key,), data.get(key, usual), "a time in s", low=0)
        for key, usual in zip(TIMES, (0.0, total), strict=True)
    )
    tick = run.timeline.info.get("tick_ns", 1) * 1e-9
    window = (round(min(low, total) / tick), round(min(max(high, low), total) / tick))
    sizes, late = class_sizes(run.timeline), Late(run.timeline)
    return {
        "said": run.said, "total_s": total, "from_s": window[0] * tick, "to_s": window[1] * tick,
        "left_out": len(run.timeline.finish) - len(run.shown),
        "classes": [
            {
                "name": class_name(run.timeline, cls, int(sizes[cls])),
                "ranks": int(sizes[cls]),
                "finish_s": int(run.timeline.finish[cls]) * tick,
                "lanes": list(_lanes(run, cls, late, window, tick)),
            }
            for cls in run.shown
        ],
    }  # fmt: skip


def _lanes(run: Run, cls: int, late: Late, window: tuple[int, int], tick: float) -> Iterator[dict[str, Any]]:
    """Yield what a class does in a part of the time: kernels, communication, and the CPU, a lane each."""
    table = run.timeline.table(cls)
    start, end = run.timeline.spans(cls)
    graph = run.trace.graph(int(run.timeline.representative[cls]))
    gemm, attention = graph.int_lists(GEMM)[0] >= 0, graph.int_lists(ATTENTION)[0] >= 0

    def of(*names: str) -> Any:
        return np.isin(table.kind, [KINDS.index(name) for name in names])

    compute, moves = of("compute"), of("collective", "send", "recv")
    waiting, until, _ = late.waits(cls)
    active = start.copy()
    active[waiting] = until
    lanes: Mapping[str, Mapping[str, tuple[Any, Ticks, Ticks]]] = {
        "kernels": {
            "GEMMs": (compute & gemm, start, end),
            "attention": (compute & attention, start, end),
            "other kernels": (compute & ~gemm & ~attention, start, end),
        },
        "communication": {
            "communication": (moves, active, end),
            "waiting for other ranks": (moves, start, active),
        },
        "CPU": {"CPU and remote memory": (of("cpu", "memory"), start, end)},
    }
    for name, kinds in lanes.items():
        inside = {
            kind: np.flatnonzero(
                chosen & (start >= 0) & (stop > begin) & (stop > window[0]) & (begin < window[1])
            )
            for kind, (chosen, begin, stop) in kinds.items()
        }
        held: dict[str, Any] = {"name": name, "kinds": [kind for kind, nodes in inside.items() if len(nodes)]}
        if not held["kinds"]:
            continue
        if sum(map(len, inside.values())) <= SPANS:
            held["spans"] = [
                [
                    int(begin[node]) * tick,
                    int(stop[node]) * tick,
                    held["kinds"].index(kind),
                    str(table.name[node])[:80],
                ]
                for kind, (_, begin, stop) in kinds.items()
                for node in inside[kind].tolist()
            ]
        else:
            edges = np.linspace(*window, BINS_OF_LANE + 1)
            held["shares"] = [
                _shares(kinds[kind][1][inside[kind]], kinds[kind][2][inside[kind]], edges)
                for kind in held["kinds"]
            ]
        yield held


def _shares(start: Ticks, end: Ticks, edges: Any) -> list[float]:
    """Return the share of each piece of time in which at least one of some spans ran."""
    start, end = union(start, end)
    before = np.concatenate(([0], np.cumsum(end - start)))
    at = np.searchsorted(start, edges, side="right") - 1
    now = np.clip(edges - start[np.maximum(at, 0)], 0, (end - start)[np.maximum(at, 0)])
    covered = np.where(at < 0, 0.0, before[np.maximum(at, 0)] + now)
    found: list[float] = (np.diff(covered) / max(edges[1] - edges[0], 1e-9)).round(4).tolist()
    return found


def network(data: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """Return how the collectives of each class use each dimension, over the step and over time, and which they are."""
    run = _run(data)
    timeline = run.timeline
    tick, last = timeline.info.get("tick_ns", 1) * 1e-9, int(np.argmax(timeline.finish))
    rows, sizes = [], class_sizes(timeline)
    for cls in run.shown:
        name = class_name(timeline, cls, int(sizes[cls]))
        rows += [
            {
                "ranks": name, "dimension": each.name, "bytes": each.bytes, "busy_s": each.busy * tick,
                "capacity_bytes_per_s": each.capacity * 1e9 if each.capacity else None,
                "utilisation": each.utilisation_run, "utilisation_busy": each.utilisation_busy,
            }
            for each in dimensions(timeline, cls)
        ]  # fmt: skip
    return {
        "said": run.said,
        "total_s": timeline.total_ticks * tick,
        "of": class_name(timeline, last, int(sizes[last])),
        "dimensions": rows,
        "heat": _heat(timeline, last),
        "collectives": [
            {
                "label": each.label, "members": each.group_size, "bytes": each.size, "count": each.count,
                "time_s": each.time * tick, "waiting_s": each.waiting * tick,
                "bus_bytes_per_s": each.bus_bandwidth * 1e9 if each.bus_bandwidth else None,
            }
            for each in collectives(timeline, last)[:COLLECTIVES]
        ],
    }  # fmt: skip


def _heat(timeline: Timeline, cls: int) -> dict[str, Any]:
    """Return the share of each dimension's port that a class sends by, in `BINS` pieces of the time."""
    edges = np.linspace(0, max(timeline.total_ticks, 1), BINS + 1)
    rows, names, shares = timeline.phases(cls), [], []
    for each in dimensions(timeline, cls):
        mine = rows[timeline.phase_dim[rows] == each.index]
        start, end = timeline.phase_start[mine].astype(float), timeline.phase_end[mine].astype(float)
        rate = timeline.phase_bytes[mine] / np.maximum(end - start, 1)
        # Bytes before each edge: a phase sends evenly while it lasts.
        inside = np.clip(edges[:, None], start, np.maximum(end, start + 1)) - start
        sent = np.diff((inside * rate).sum(axis=1)) if len(mine) else np.zeros(BINS)
        capacity = (each.capacity or 0) * (edges[1] - edges[0]) * timeline.info.get("tick_ns", 1)
        names.append(each.name)
        shares.append((sent / capacity).round(5).tolist() if capacity else None)
    return {"dimensions": names, "shares": shares}


def memory(data: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """Return what the fullest rank holds at its peak, and in the course of a step."""
    found = find(read_question(data))
    step = found.step
    held = advise(step.plan, 2**62, partial(replica_layers, found.model)).footprint
    points = len(held.task)
    # The peak is among the points that are kept.
    kept = np.unique(np.append(np.linspace(0, points - 1, min(points, POINTS)).round().astype(int), held.at))
    return {
        "stage": held.stage,
        "where": held.where,
        "capacity_bytes": step.memory.capacity_bytes,
        "needed_bytes": step.memory.needed_bytes,
        "at_peak_bytes": held.at_peak,
        "titles": TITLES,
        "points": [held.name(int(each)) for each in kept],
        "at": int(np.flatnonzero(kept == held.at)[0]),
        "bytes": {name: each[kept].tolist() for name, each in held.timeline.items()},
    }
