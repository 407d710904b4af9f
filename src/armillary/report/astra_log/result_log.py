"""The lines of a run, from its timeline: those for standard output, and those that only files get."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path

import numpy as np

from armillary.base.files import write_text
from armillary.base.text import json_text, on_one_line
from armillary.engine.common.timeline import Timeline
from armillary.platform.model import Platform
from armillary.report.astra_log.local_memory import Usage, events, format_bytes, usage
from armillary.report.astra_log.rings import group_ring, group_rings, world_rings
from armillary.report.astra_log.statistics import Kernel, Statistics, kernels, started, statistics
from armillary.report.time_breakdown import astra_exposed
from armillary.trace import Graph, NodeType, Trace

RANK = "\0"
"""Stands for the rank in the texts of a class: no name of a trace keeps it."""
Line = tuple[str, str, str]
"""Logger, level and message."""
RING, GROUP_RING, ENDED, ISSUED, FINISHED = range(5)
"""What comes first among lines of one rank and tick."""


@dataclass(frozen=True)
class LogText:
    """Lines as they are written: whether only files get them, and the text."""

    blocks: tuple[tuple[bool, str], ...]

    @cached_property
    def console(self) -> str:
        """The lines of standard output: all but those of level debug."""
        return "".join(text for debug, text in self.blocks if not debug)

    @cached_property
    def detail(self) -> str:
        """All lines, as files get them."""
        return "".join(text for _, text in self.blocks)


@dataclass(frozen=True)
class ResultLog:
    """What ASTRA-sim would say of a run.

    Attributes:
        timeline: The run.
        trace: What ran, every rank on its own.
        platform: On what.
        issues: Whether files get a line for each node that starts or ends (``trace-enabled``).
        memory: Prefix of the traces of local memory (``track-local-mem``); "": it is not tracked.
        memory_use: Use of local memory of each class of ranks, where it is tracked.
    """

    timeline: Timeline
    trace: Trace
    platform: Platform
    issues: bool = False
    memory: str = ""
    memory_use: tuple[Usage, ...] = ()
    _graphs: dict[int, Graph] = field(default_factory=dict, repr=False)

    @cached_property
    def statistics(self) -> list[Statistics]:
        """Statistics of each class of ranks (`Timeline.rank_class`)."""
        exposed = astra_exposed(self.timeline).tolist()
        machine = self.platform if self._roofline else None
        return [
            statistics(self.timeline, cls, self._graph(cls), exposed[cls], machine)
            for cls in range(len(self.timeline.finish))
        ]

    @property
    def warnings(self) -> list[str]:
        """What is odd in the lines."""
        below = sum(
            int((self.timeline.rank_class == cls).sum())
            for cls, each in enumerate(self.statistics)
            if each.overlap >= 2**63
        )
        if not below:
            return []
        return [
            f"the overlap of {below} ranks is below 0, as they have gaps; it is printed as a number of 64 bits without "
            "a sign, as in ASTRA-sim"
        ]

    def terse(self) -> str:
        """Return one line for each rank, by rank: when it finished, and what communication was exposed."""
        texts = [
            f"finished, {each.cycles} cycles, exposed communication {each.exposed} cycles.\n"
            for each in self.statistics
        ]
        of_rank = self.timeline.rank_class.tolist()
        return "".join(f"sys[{rank}] {texts[cls]}" for rank, cls in enumerate(of_rank))

    def text(self, now: datetime | None = None) -> LogText:
        """Return all lines as they are written; `now` is when."""
        return LogText(tuple(self._blocks(now)))

    def write_memory(self) -> None:
        """Write ``<memory>.<rank>.json`` of every rank, if local memory is tracked; for chrome://tracing.

        Raises:
            InputError: one cannot be written.
        """
        of_rank = self.timeline.rank_class.tolist()
        for rank, cls in enumerate(of_rank if self.memory else ()):
            found = {"traceEvents": events(self.memory_use[cls], rank)}
            write_text(Path(f"{self.memory}.{rank}.json"), json_text(found, indent=2) + "\n")

    @property
    def _roofline(self) -> bool:
        compute = self.platform.compute
        return compute.model == "roofline" and not compute.replay

    def _graph(self, cls: int) -> Graph:
        # What the representative ran: ranks of a class run equal graphs.
        if cls not in self._graphs:
            self._graphs[cls] = self.trace.graph(int(self.timeline.representative[cls]))
        return self._graphs[cls]

    def _blocks(self, now: datetime | None) -> Iterator[tuple[bool, str]]:
        """Yield whether only files get a text, and the text, in the order of the run."""
        stamp = (now or datetime.now()).isoformat(" ", "milliseconds")

        def written(lines: list[Line]) -> str:
            return "".join(f"[{stamp}] [{logger}] [{level}] {text}\n" for logger, level, text in lines)

        ring = "system::topology::RingTopology"
        yield False, written([(ring, "info", text) for text in world_rings(self.platform)])
        order = self.timeline.finish_order.tolist()
        place = {rank: at for at, rank in enumerate(order)}
        of_rank, finish = self.timeline.rank_class.tolist(), self.timeline.finish_ticks.tolist()
        finished = [written(self._finish(cls)) for cls in range(len(self.statistics))]
        # Only these may come between the ends of ranks: (tick, place of the rank, what, number, debug, text).
        between: list[tuple[int, int, int, int, bool, str]] = []
        for cls in range(len(self.statistics)):
            rings = group_rings(self.timeline, cls, self._graph(cls), self.platform)
            debug = self._debug(cls)
            if not rings and not debug:
                continue
            texts = [written([line]) for *_, line in debug]
            for rank in np.flatnonzero(self.timeline.rank_class == cls).tolist():
                for at, (tick, number, _) in enumerate(rings):
                    text = written([(ring, "info", group_ring(self.platform, number, rank))])
                    between.append((tick, place[rank], GROUP_RING, at, False, text))
                for at, ((tick, what, _), text) in enumerate(zip(debug, texts, strict=True)):
                    between.append((tick, place[rank], what, at, True, text.replace(RANK, str(rank))))
        if between:
            ends = (
                (finish[rank], at, FINISHED, 0, False, finished[of_rank[rank]].replace(RANK, str(rank)))
                for at, rank in enumerate(order)
            )
            yield from ((debug, text) for *_, debug, text in sorted([*between, *ends]))
        else:
            yield False, "".join(finished[of_rank[rank]].replace(RANK, str(rank)) for rank in order)
        yield False, written([("system", "warning", "Exiting")])

    def _finish(self, cls: int) -> list[Line]:
        """Return the lines of a rank of a class when it has finished."""
        found = self.statistics[cls]
        sys = f"sys[{RANK}]"
        said = [f"{sys}, Wall time: {found.wall}"]
        said += [f"{sys}, {name} time: {ticks}" for name, ticks in found.times]
        if found.overlap > 0:
            said.append(f"{sys}, Total compute-communication overlap: {found.overlap}")
        if mean := found.roofline:
            said += [
                f"{sys}, Compute bound percentage: {mean.bound:.3f}%",
                f"{sys}, Average compute utilization: {mean.compute:.3f}%",
                f"{sys}, Average memory utilization: {mean.memory:.3f}%",
                f"{sys}, Average operation intensity: {mean.intensity:.3f}",
            ]
        lines: list[Line] = [
            (
                "workload", "info",
                f"{sys} finished, {found.cycles} cycles, exposed communication {found.exposed} cycles.",
            ),
            ("statistics", "info", f"{sys}. Post statistics processing start."),
            ("statistics", "info", f"{sys}. Post statistics processing end."),
            *(("statistics", "info", text) for text in said),
        ]  # fmt: skip
        if self.memory:
            peak = format_bytes(self.memory_use[cls].peak)
            lines.append(("workload", "info", f"{sys} peak memory usage: {peak}"))
        return lines

    def _debug(self, cls: int) -> list[tuple[int, int, Line]]:
        """Return the lines of a rank of a class that only files get: tick, what, line."""
        graph = self._graph(cls)
        start, end = self.timeline.spans(cls)
        found: list[tuple[int, int, Line]] = []
        skipped = np.isin(graph.types, (NodeType.INVALID_NODE, NodeType.METADATA_NODE))
        model = kernels(graph, self.platform) if self._roofline else None
        if not self.issues and not model and not skipped.any():
            return found
        if model:
            skipped |= (graph.types == NodeType.COMP_NODE) & (graph.ints("tensor_size", 0) == 0)
        place = {node: at for at, node in enumerate(model.node.tolist())} if model else {}
        for node in started(graph, start).tolist():
            begin, last = int(start[node]), int(end[node])
            name = on_one_line(graph.name(node))
            about = f"node->id={graph.ids[node]}, node->name={name}, node->type={graph.types[node]}"
            if self.issues:
                issue = f"issue,sys->id={RANK}, tick={begin}, {about}"
                found.append((begin, ISSUED, ("workload", "debug", issue)))
            if model and node in place:
                text = _modelled(last - begin, model, place[node])
                found.append((begin, ISSUED, ("workload", "debug", text)))
            if self.issues or skipped[node]:
                callback = f"callback,sys->id={RANK}, tick={last}, {about}"
                found.append((last, ENDED, ("workload", "debug", callback)))
        return found


def _modelled(ticks: int, model: Kernel, at: int) -> str:
    return (
        f"operation_intensity={model.intensity[at]:g}, perf={model.performance[at]:g}, elapsed_time={ticks} "
        f"compute_utilization={model.compute[at]:g} memory_utilization={model.memory[at]:g} "
        f"tensor_size={model.size[at]} num_ops={model.ops[at]}"
    )


def result_log(
    timeline: Timeline, trace: Trace, platform: Platform, *, issues: bool = False, memory: str = ""
) -> ResultLog:
    """Return what ASTRA-sim would say of a run, see `ResultLog`.

    Raises:
        InputError: memory is to be tracked, and a node does not say what it reads and writes.
    """
    from armillary.trace.expand import expand_for

    made = ResultLog(timeline, expand_for(trace, "ASTRA-sim's log"), platform, issues, memory)
    if not memory:
        return made
    classes = range(len(timeline.finish))
    used = tuple(
        usage(made.trace.graph(int(timeline.representative[c])), *timeline.spans(c)) for c in classes
    )
    return replace(made, memory_use=used)
