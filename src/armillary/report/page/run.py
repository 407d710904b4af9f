"""The blocks of one run: the answer, why, what it did over time, and what each part of the machine was used."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from armillary.base.text import on_one_line
from armillary.base.units import format_flops, format_time
from armillary.engine.common.timeline import Timeline
from armillary.report.communication import collectives, dimensions
from armillary.report.critical import Late, contributors, critical_path
from armillary.report.flop_rate import flops, peak_text
from armillary.report.links import hot_spot_line, kind_rows
from armillary.report.lower_bound import bound, bound_line
from armillary.report.memory_fit import does_not_fit, fit_line
from armillary.report.page.blocks import Block, bars, headline, sentences, table
from armillary.report.page.tracks import tracks
from armillary.report.plain import class_name, class_sizes, nanoseconds, slowest
from armillary.report.reasons import explain
from armillary.report.serving import serving_lines
from armillary.report.summary import (
    about,
    assumed,
    assumed_of_input,
    assumed_sequence,
    interval,
    terms_lines,
)
from armillary.report.time_breakdown import PARTS, TITLES, breakdown

CLASSES_SHOWN = 12
ROWS_SHOWN = 200


def run_blocks(timeline: Timeline) -> list[Block]:
    """Return the blocks of a run."""
    return [answer(timeline), *reasons_of(timeline), *details_of(timeline)]


def answer(timeline: Timeline) -> Block:
    """Return the step time with its interval, memory, rates, and what they assume."""
    npus = int(timeline.info.get("npus", timeline.n_ranks))
    lines = [
        f"on {npus:,} {'NPU' if npus == 1 else 'NPUs'}, {timeline.total_ticks:,} ticks",
        interval(timeline),
    ]
    found = flops(timeline)
    if found is not None:
        rate = f"{format_flops(found.rate_per_npu)} per NPU"
        if found.utilisation is not None:
            rate += f", {peak_text(found)}"
        lines.append(rate)
    fit = fit_line(timeline) if "memory" in timeline.info else ""
    alarm = fit if does_not_fit(timeline) else ""
    lines += ["" if alarm else fit, about(timeline).replace("\n", ". "), *serving_lines(timeline)]
    assumptions = [text.removeprefix("Assumed: ") for text in assumed_of_input(timeline)]
    # They stand under a title that says so.
    notes = [text.replace(" assumed:", ":", 1) for text in (assumed(timeline), assumed_sequence(timeline))]
    notes += terms_lines(timeline)
    notes += [f"warning: {text}" for text in timeline.info.get("warnings", [])]
    step = f"Step {format_time(nanoseconds(timeline, timeline.total_ticks))}"
    return headline(step, lines, alarm=alarm, notes=[*assumptions, *filter(None, notes)])


def reasons_of(timeline: Timeline) -> Iterator[Block]:
    """Yield where the time goes, why, and what the bound says."""
    order = np.argsort(-timeline.finish, kind="stable")[:CLASSES_SHOWN].tolist()
    if not order:
        return
    sizes, late = class_sizes(timeline), Late(timeline)
    rows = []
    for cls in order:
        parts = breakdown(timeline, cls, late).parts()
        name = class_name(timeline, cls, int(sizes[cls]))
        rows.append((name, {part: _seconds(timeline, parts[part]) for part in PARTS}))
    title = "Where the time goes"
    if len(timeline.finish) > len(order):
        title += f" ({len(order)} slowest of {len(timeline.finish):,} classes of ranks)"
    yield bars(title, rows, TITLES)
    found = explain(timeline)
    if found:
        yield sentences(
            "Why it takes so long", [(one.text, one.help) for one in found], "On the slowest rank."
        )
    least = bound(timeline)
    if least.ticks:
        titles = (("limit", "text"), ("at least", "time"), ("before it", "time"), ("after it", "time"))
        parts_of = [
            [
                on_one_line(part.name),
                *(_seconds(timeline, ticks) for ticks in (part.ticks, part.before, part.after)),
            ]
            for part in least.parts
        ]
        note = f"{bound_line(timeline, least)}. No run of this workload on this machine can be faster."
        yield table("What the bound says", titles, parts_of, note)


def details_of(timeline: Timeline) -> Iterator[Block]:
    """Yield the timeline, the critical path, the machine, and collectives."""
    cls = slowest(timeline)
    if cls is None:
        return
    yield tracks(timeline)
    steps = critical_path(timeline, cls)
    total = int(timeline.finish[cls])
    yield table(
        "The critical path",
        (("what", "text"), ("times", "count"), ("time", "time"), ("of the step", "share")),
        [
            [on_one_line(name), count, _seconds(timeline, ticks), ticks / total if total else None]
            for name, ticks, count in contributors(timeline, steps, 20)
        ],
        f"What determines the finish, one after the other: {len(steps):,} in all. Below the largest contributors.",
    )
    yield machine(timeline, cls)
    if timeline.network:
        yield table(
            "Links",
            (
                ("kind", "text"), ("links", "count"), ("used", "count"), ("carried", "size"), ("mean use", "share"),
                ("of the busiest", "share"), ("most waiting", "size"),
            ),
            [
                [on_one_line(r.kind), r.links, r.used, r.size, r.mean, r.most, r.depth]
                for r in kind_rows(timeline.network)
            ],
            f"{hot_spot_line(timeline.network)}.",
        )  # fmt: skip
    rows = collectives(timeline, cls)
    if rows:
        columns = (
            ("collective", "text"), ("size", "size"), ("NPUs", "count"), ("calls", "count"), ("transfer", "time"),
            ("waiting", "time"), ("total", "time"), ("algorithm", "rate"), ("bus", "rate"),
        )  # fmt: skip
        note = "Of the slowest rank; transfer and waiting of a call, on average."
        if len(rows) > ROWS_SHOWN:
            note += f" The {ROWS_SHOWN} that take most of {len(rows):,}."
        yield table(
            "Collectives", columns,
            [
                [
                    on_one_line(row.label) or "collective", row.size, row.group_size, row.count,
                    _seconds(timeline, row.transfer) / row.count, _seconds(timeline, row.waiting) / row.count,
                    _seconds(timeline, row.time), _rate(row.algorithm_bandwidth), _rate(row.bus_bandwidth),
                ]
                for row in rows[:ROWS_SHOWN]
            ],
            note,
        )  # fmt: skip


def machine(timeline: Timeline, cls: int) -> Block:
    """Return the dimensions of the network, innermost first, and how much a class of ranks used each."""
    return {
        "kind": "machine",
        "title": "The machine and its use",
        "npus": int(timeline.info.get("npus", timeline.n_ranks)),
        "dimensions": [
            {
                "name": on_one_line(row.name), "topology": row.topology, "npus": row.size,
                "capacity": _rate(row.capacity), "sent": row.bytes, "busy": _seconds(timeline, row.busy),
                "use": row.utilisation_run, "use_busy": row.utilisation_busy,
            }
            for row in dimensions(timeline, cls)
        ],
        "over": any((row.utilisation_busy or 0) > 1 for row in dimensions(timeline, cls)),
    }  # fmt: skip


def _seconds(timeline: Timeline, ticks: int) -> float:
    return float(nanoseconds(timeline, ticks)) * 1e-9


def _rate(bytes_per_ns: float | None) -> float | None:
    return None if bytes_per_ns is None else bytes_per_ns * 1e9
