"""Where in a captured program its time goes: by module, by line, and which communication it waits for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.units import format_bytes, format_count, format_time
from armillary.capture.nodes import BACKWARD, LINE, MODULE
from armillary.engine.common.timeline import KINDS, Timeline
from armillary.report.critical import Late
from armillary.report.plain import class_name, class_sizes, nanoseconds, plain_name, plain_table, slowest
from armillary.report.time_breakdown import KINDS_OF, Spans, union

if TYPE_CHECKING:
    from rich.console import Console

    from armillary.trace import Graph, Trace

NOWHERE = "(no module)"
"""Optimizers, losses and data are of no module."""
ROWS = 6
"""Rows of a printed table."""
WRAPPERS = re.compile(r"(^|\.)(_checkpoint_wrapped_module|_orig_mod|_fsdp_wrapped_module|module)(?=\.|$)")
"""What wraps a module and is no part of its name."""
MOST_JSON = 10_000
"""Rows of each list of a JSON report."""


@dataclass(frozen=True)
class Place:
    """What a module or a line takes on one rank, in ticks.

    Attributes:
        name: Path of the module, or file and line.
        kernels: How many it runs.
        forward: Time of those of the forward pass; of an optimizer, all.
        backward: Time of those of the backward pass.
        exposed: Time in which communication that it issued is open and no kernel runs, waiting for others included.
    """

    name: str
    kernels: int
    forward: int
    backward: int
    exposed: int

    @property
    def ticks(self) -> int:
        """All of its time."""
        return self.forward + self.backward + self.exposed


@dataclass(frozen=True)
class Exposed:
    """Communication of one kind that one line issues.

    Attributes:
        type: Collective with its group, or ``send`` or ``recv``.
        line: File and line.
        module: Path of the module, numbers of layers replaced.
        backward: Whether the backward pass issues it.
        calls: How many.
        bytes: Of all.
        ticks: Time in which they are open.
        exposed: Of which no kernel runs.
    """

    type: str
    line: str
    module: str
    backward: bool
    calls: int
    bytes: int
    ticks: int
    exposed: int


def layers(module: str) -> str:
    """Return the path of a module with ``*`` for the numbers of layers, and without wrappers."""
    return re.sub(r"(?<=\.)\d+(?=\.|$)|^\d+(?=\.|$)", "*", WRAPPERS.sub("", module).lstrip("."))


def exposed_ticks(timeline: Timeline, cls: int) -> NDArray[np.int64]:
    """Return (nodes) ticks in which communication of a class is open and neither kernel nor CPU runs.

    A tick in which several are open counts for the one that was open first, so they add up to exposed communication
    and waiting. O(n log n).
    """
    spans = Spans(timeline, cls, Late(timeline))
    busy = [spans.of(part) for part in ("compute", "cpu")]
    start, end = union(*(np.concatenate(sides) for sides in zip(*busy, strict=True)))
    kinds = [KINDS.index(kind) for kind in KINDS_OF["communication"]]
    nodes = np.flatnonzero(np.isin(spans.kind, kinds) & (spans.end > spans.start))
    nodes = nodes[np.argsort(spans.start[nodes], kind="stable")]
    found = np.zeros(len(spans.kind), np.int64)
    if not len(nodes):
        return found
    last = spans.end[nodes]
    before = np.concatenate(([0], np.maximum.accumulate(last)[:-1]))
    first = np.minimum(np.maximum(spans.start[nodes], before), last)
    # Busy ticks up to a tick: those of whole intervals, and of the one that it is in.
    total = np.concatenate(([0], np.cumsum(end - start)))

    def busy_until(tick: NDArray[np.int64]) -> NDArray[np.int64]:
        at = np.searchsorted(start, tick, "right")
        inside = np.minimum(tick, np.append(end, 0)[at - 1]) - np.append(start, 0)[at - 1]
        result: NDArray[np.int64] = total[at] - np.where(
            at > 0, np.append(end - start, 0)[at - 1] - inside, 0
        )
        return result

    found[nodes] = (last - first) - (busy_until(last) - busy_until(first))
    return found


class Places:
    """What one rank of a captured program takes, by place.

    Attributes:
        cls: Class of the rank: the one that ends last.
    """

    def __init__(self, timeline: Timeline, trace: Trace) -> None:
        """Take a run of a trace whose nodes have modules and lines."""
        self.timeline = timeline
        self.cls = slowest(timeline) or 0
        graph: Graph = trace.graph(int(timeline.representative[self.cls]))
        table = timeline.table(self.cls)
        start, end = timeline.spans(self.cls)
        self._took = np.where(end >= start, end - start, 0)
        self._kernel = table.kind == KINDS.index("compute")
        self._backward = graph.ints(BACKWARD, 0) > 0
        self._exposed = exposed_ticks(timeline, self.cls)
        self._of = {name: graph.strings(name) for name in (MODULE, LINE)}
        self._table = table

    def modules(self) -> list[Place]:
        """Return the modules, most time first."""
        return self._by(MODULE, False)

    def kinds_of_modules(self) -> list[Place]:
        """Return the same with all layers of a kind together."""
        return self._by(MODULE, True)

    def lines(self) -> list[Place]:
        """Return the lines, most time first."""
        return self._by(LINE, False)

    def exposed(self) -> list[Exposed]:
        """Return communication by the line that issued it, most exposed first."""
        modules, lines = (
            [texts[code] if code >= 0 else "" for code in codes.tolist()]
            for codes, texts in self._of.values()
        )
        kinds = [KINDS.index(kind) for kind in KINDS_OF["communication"]]
        groups: dict[tuple[str, str, str, bool], list[int]] = {}
        for node in np.flatnonzero(np.isin(self._table.kind, kinds)).tolist():
            label = str(self._table.label[node]) or KINDS[int(self._table.kind[node])]
            key = (label, lines[node], layers(modules[node]), bool(self._backward[node]))
            groups.setdefault(key, []).append(node)
        found = [
            Exposed(
                *key, len(nodes), int(self._table.size[nodes].sum()), int(self._took[nodes].sum()),
                int(self._exposed[nodes].sum()),
            )
            for key, nodes in groups.items()
        ]  # fmt: skip
        return sorted(found, key=lambda each: (-each.exposed, -each.ticks))

    def _by(self, key: str, together: bool) -> list[Place]:
        codes, texts = self._of[key]
        names = [WRAPPERS.sub("", text).lstrip(".") for text in texts] if key == MODULE else list(texts)
        names = [layers(name) for name in names] if together else names
        # Names may fall together; the last number is of nodes without a name.
        every = sorted({*names, ""})
        number = np.array([every.index(name) for name in names] + [every.index("")], np.int64)[codes]

        def total(values: NDArray[Any]) -> list[int]:
            # Exact: sums of int64, not of floats.
            sums = np.zeros(len(every), np.int64)
            np.add.at(sums, number, values.astype(np.int64))
            return [int(each) for each in sums]

        kernels = np.where(self._kernel, self._took, 0)
        forward, backward = np.where(self._backward, 0, kernels), np.where(self._backward, kernels, 0)
        columns = zip(*map(total, (self._kernel, forward, backward, self._exposed)), strict=True)
        empty = NOWHERE if key == MODULE else "(PyTorch)"
        found = [Place(name or empty, *row) for name, row in zip(every, columns, strict=True) if any(row)]
        return sorted(found, key=lambda each: -each.ticks)


def places_json(places: Places, memory: Sequence[tuple[str, str, int]]) -> dict[str, Any]:
    """Return it as plain JSON values, times in ns; `memory` is what is alive at the peak, as a log has it."""
    timeline = places.timeline

    def times(each: Any, names: Sequence[str]) -> dict[str, Any]:
        return {f"{name}_ns": nanoseconds(timeline, getattr(each, name)) for name in names}

    def rows(key: str, found: Sequence[Place]) -> list[dict[str, Any]]:
        return [
            {key: each.name, "kernels": each.kernels} | times(each, ("forward", "backward", "exposed"))
            for each in found[:MOST_JSON]
        ]

    return {
        "rank": int(timeline.representative[places.cls]),
        "modules": rows("module", places.modules()),
        "lines": rows("line", places.lines()),
        "communication": [
            {
                "type": each.type, "line": each.line, "module": each.module, "backward": each.backward,
                "calls": each.calls, "total_bytes": each.bytes, **times(each, ("ticks", "exposed")),
            }
            for each in places.exposed()[:MOST_JSON]
        ],
        "memory": [{"what": what, "module": whose, "peak_bytes": size} for what, whose, size in memory[:MOST_JSON]],
    }  # fmt: skip


def print_places(places: Places, memory: Sequence[tuple[str, str, int]], console: Console) -> None:
    """Print the largest rows: modules, lines, exposed communication, and memory at the peak."""
    from rich.text import Text

    timeline = places.timeline
    whole = int(timeline.finish[places.cls])
    name = class_name(timeline, places.cls, int(class_sizes(timeline)[places.cls]))

    def time(ticks: int) -> str:
        return format_time(nanoseconds(timeline, ticks)) if ticks else "-"

    def part(ticks: int) -> str:
        return f"{100 * ticks / whole:.1f} %" if whole else "-"

    def heading(text: str, rows: int) -> None:
        most = f" ({ROWS} of {rows:,}, the most first)" if rows > ROWS else ""
        console.print(Text(f"\n{text}{most}", "bold"))

    for title, found in (("module", places.kinds_of_modules()), ("line", places.lines())):
        heading(f"Time of {name} by {title}", len(found))
        table = plain_table(title, "kernels", "forward", "backward", "exposed", "of the step", widest=50)
        for each in found[:ROWS]:
            shown = (time(each.forward), time(each.backward), time(each.exposed), part(each.ticks))
            table.add_row(plain_name(each.name), format_count(each.kernels), *shown)
        console.print(table)
    calls = [each for each in places.exposed() if each.exposed]
    if calls:
        heading("Exposed communication by the line that issued it", len(calls))
        table = plain_table(
            "line", "module", "collective", "calls", "bytes", "exposed", "of", left=2, widest=30
        )
        for call in calls[:ROWS]:
            module = f"{call.module}{' (backward)' if call.backward else ''}" or "-"
            table.add_row(
                plain_name(call.line or "(PyTorch)"), plain_name(module[-30:]), plain_name(call.type), str(call.calls),
                format_bytes(call.bytes), time(call.exposed), time(call.ticks),
            )  # fmt: skip
        console.print(table)
    total: dict[tuple[str, str], int] = {}
    for what, whose, size in memory:
        key = what, layers(whose)
        total[key] = total.get(key, 0) + size
    if total:
        ranked = sorted(total.items(), key=lambda pair: -pair[1])
        heading(f"Memory at the peak, {format_bytes(sum(total.values()))}", len(ranked))
        table = plain_table("what", "module or line", "bytes", "of the peak", left=2, widest=12)
        for (what, whose), size in ranked[:ROWS]:
            share = f"{100 * size / sum(total.values()):.1f} %"
            table.add_row(plain_name(what), plain_name(whose or NOWHERE), format_bytes(size), share)
        console.print(table)
