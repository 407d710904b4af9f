"""The answer and its reasons on one screen of text."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.base.text import console as terminal_console
from armillary.base.units import format_bandwidth, format_bytes, format_count, format_flops, format_time
from armillary.engine.common.timeline import Timeline
from armillary.platform.kernels import term_words
from armillary.report.communication import collectives, dimensions
from armillary.report.critical import Late, contributors, critical_path, shares
from armillary.report.lower_bound import bound, bound_line
from armillary.report.plain import class_name, class_sizes, nanoseconds, plain_name, plain_table, slowest
from armillary.report.time_breakdown import TITLES, Breakdown, breakdown, waited_for

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


WIDTH = 100
ROWS_SHOWN = 5
_BAR = 30
_COLOURS = {
    "compute": "blue",
    "cpu": "cyan",
    "communication": "red",
    "waiting": "yellow",
    "memory": "magenta",
    "idle": "white",
}


def headline(timeline: Timeline) -> str:
    """Return the answer: "Step time 10.37 ms (10,366,400 ticks) on 4,096 NPUs"."""
    ticks = timeline.total_ticks
    npus = timeline.info.get("npus", timeline.n_ranks)
    unit, plural = "tick" if ticks == 1 else "ticks", "NPU" if npus == 1 else "NPUs"
    return f"Step time {format_time(nanoseconds(timeline, ticks))} ({ticks:,} {unit}) on {npus:,} {plural}"


def interval(timeline: Timeline) -> str:
    """Return "90 % interval 1.8 s to 2.07 s (355 rows of vTrain)", or "" if the uncertainty is unknown."""
    found = timeline.info.get("uncertainty")
    if not found:
        return ""
    step = nanoseconds(timeline, timeline.total_ticks)
    ends = (format_time(step * found[key]) for key in ("low_ratio", "high_ratio"))
    return f"90 % interval {' to '.join(ends)}" + (f" ({found['of']})" if found["of"] else "")


def assumed_of_input(timeline: Timeline) -> list[str]:
    """Return "Assumed: the roofline times 3 nodes without a recorded time", a line for each such assumption."""
    return [f"Assumed: {text}" for text in timeline.info.get("assumptions", ())]


def first_lines(timeline: Timeline) -> list[str]:
    """Return what to know before any number of a result: whether it fits into memory, and what it assumes."""
    fit, _ = _fit(timeline)
    return [*filter(None, [fit]), *assumed_of_input(timeline), *roofline_alone(timeline)]


def _fit(timeline: Timeline) -> tuple[str, bool]:
    """Return whether the workload fits into memory, in words, "" if unknown; and whether it is known not to fit."""
    if "memory" not in timeline.info:
        return "", False
    from armillary.report.memory_fit import does_not_fit, fit_line

    return fit_line(timeline), does_not_fit(timeline)


def _serving(timeline: Timeline) -> list[str]:
    if not timeline.info.get("serving"):
        return []
    from armillary.report.serving import serving_lines

    return serving_lines(timeline)


def print_summary(timeline: Timeline, console: Console | None = None, *, brief: bool = False) -> None:
    """Print step time, breakdown, collectives, dimensions, critical path and warnings, in 100 columns.

    Args:
        timeline: What to report.
        console: Where to print; by default standard output, in colour only on a terminal.
        brief: Only memory, time and what it assumes, and warnings.
    """
    on_console(lambda target, unicode: _print(timeline, target, unicode, brief), console)


def on_console(body: Callable[[Console, bool], None], console: Console | None = None) -> None:
    """Call `body` with a console and whether it may print more than ASCII; see `print_summary`."""
    if console is None:
        console = terminal_console()
        # A pipe has no width: 100 columns keep tables equal everywhere.
        console.width = min(console.width, WIDTH) if console.is_terminal else WIDTH
    unicode = console.encoding.lower().startswith("utf")
    # Only a terminal is printed to directly; elsewhere the text is made first, without trailing
    # blanks and, if need be, in ASCII.
    if console.is_terminal and unicode:
        body(console, unicode)
        return
    with console.capture() as captured:
        body(console, unicode)
    text = "\n".join(line.rstrip() for line in captured.get().splitlines())
    if not unicode:
        text = text.replace("µ", "u").encode(console.encoding, "replace").decode(console.encoding)
    console.out(text, highlight=False)


def _print(timeline: Timeline, console: Console, unicode: bool, brief: bool) -> None:
    from rich.text import Text

    def line(text: str, style: str = "") -> None:
        console.print(Text(text, style))

    # Before the time: a step that does not fit into memory does not exist.
    fit, too_much = _fit(timeline)
    if fit:
        line(fit, "bold red" if too_much else "")
    line(headline(timeline), "bold")
    for text in (interval(timeline), *assumed_of_input(timeline)):
        if text:
            line(text)
    if not brief:
        _print_rest(timeline, console, unicode, line)
    for warning in timeline.info.get("warnings", []):
        line(f"warning: {warning}", "yellow")


def _print_rest(timeline: Timeline, console: Console, unicode: bool, line: Callable[..., None]) -> None:
    """Print what is behind an answer."""
    line(about(timeline))
    known = (
        bound_line(timeline, bound(timeline)),
        _rate(timeline),
        assumed(timeline),
        assumed_sequence(timeline),
    )
    for text in filter(None, (*known, *terms_lines(timeline), *_serving(timeline))):
        line(text)
    cls = slowest(timeline)
    if cls is not None:
        name = class_name(timeline, cls, int(class_sizes(timeline)[cls]))
        late = Late(timeline)
        found = breakdown(timeline, cls, late)
        line(f"\nTime of the slowest, {name}", "bold")
        console.print(_breakdown_table(timeline, found, unicode))
        if found.waiting:
            line(_waited(timeline, cls, late))
        _print_communication(timeline, console, cls)
    if timeline.network:
        # Tables of links need the graph of the network, which most runs do not have.
        from armillary.report.link_tables import print_links

        print_links(timeline.network, console)
    if cls is not None:
        _print_path(timeline, console, cls)


def about(timeline: Timeline) -> str:
    """Return profile, network model and folding, and the spread of the finish over ranks if there is one."""
    classes, ranks = len(timeline.finish), timeline.n_ranks
    words = [f"{timeline.info.get('profile', 'unknown')} profile"]
    words.append(f"{timeline.info.get('network_model', 'unknown')} network")
    words.append(f"{ranks:,} {'rank' if ranks == 1 else 'ranks'}")
    if classes < ranks:
        words[-1] += f" simulated as {classes:,} {'class' if classes == 1 else 'classes'}"
    text = ", ".join(words)
    if classes > 1 and timeline.finish.min() < timeline.finish.max():
        order = np.argsort(timeline.finish, kind="stable")
        reach = np.cumsum(class_sizes(timeline)[order])
        # The median over ranks, not over classes.
        median = order[np.searchsorted(reach, (ranks + 1) // 2)]
        low, middle, high = (_time(timeline, int(timeline.finish[i])) for i in (order[0], median, order[-1]))
        text += f"\nRanks finish at {low} (first), {middle} (median), {high} (last)"
    return text


def _rate(timeline: Timeline) -> str:
    """Return "Compute rate 250 TFLOP/s per NPU, 128 PFLOP/s in all, 40.1 % of the peak (MFU)" if known."""
    if not any(timeline.table(cls).flops.any() for cls in range(len(timeline.finish))):
        return ""
    from armillary.report.flop_rate import flops, peak_text

    found = flops(timeline)
    if found is None:
        return ""
    text = f"Compute rate {format_flops(found.rate_per_npu)} per NPU, {format_flops(found.rate)} in all"
    if found.above_peak:
        return f"{text}, more than the peak of this machine: recorded or overridden times are not its own (no MFU)"
    if found.utilisation is None:
        return text
    # Precisions have peaks of their own, so there is no one peak to name.
    several = len(found.by_precision) > 1 and "peaks_flops_per_ns" in timeline.info
    return f"{text}, {peak_text(found, 'their peaks' if several else 'the peak')}"


def assumed(timeline: Timeline) -> str:
    """Return "Compute times assumed: roofline at 45 % of the peak, 80 % of the memory bandwidth" where one was used."""
    used, model = timeline.info.get("roofline"), timeline.info.get("compute_model")
    if model and not used:
        return f"Compute times assumed: {_model(model)}"
    if not used:
        return ""
    shares = [100 * used[f"{what}_efficiency"] for what in ("compute", "memory")]
    text = f"Compute times assumed: roofline at {shares[0]:g} % of the peak, {shares[1]:g} % of the memory bandwidth"
    overhead = used["kernel_overhead_ns"]
    text += f", {format_time(overhead)} per kernel" if overhead else ""
    return text.replace("roofline", f"{_model(model)}, else roofline", 1) if model else text


def roofline_alone(timeline: Timeline) -> list[str]:
    """Return the line of `assumed` where no model of a device times kernels, else none."""
    only = "roofline" in timeline.info and "compute_model" not in timeline.info
    return [assumed(timeline)] if only else []


def assumed_sequence(timeline: Timeline) -> str:
    """Return "Sequence assumed: 131,072 tokens, the model's own" if the plan gives none."""
    length = timeline.info.get("sequence_assumed")
    return f"Sequence assumed: {length:,} tokens, the model's own" if length else ""


def _model(model: dict[str, Any]) -> str:
    """Return "table h100.csv, 2 overrides"."""
    count = model["overrides"]
    parts = [" ".join(filter(None, (model["name"], model.get("file"), model.get("note"))))]
    return ", ".join(parts + ([f"{count} override{'s' * (count > 1)}"] if count else []))


def _breakdown_table(timeline: Timeline, found: Breakdown, unicode: bool) -> Table:
    from rich.text import Text

    table = plain_table("", "", "", "", left=2)
    for part, ticks in found.parts().items():
        # Parts that every reader looks for, even at 0.
        if ticks or part in ("compute", "communication", "idle"):
            bar = Text(_bar(ticks, found.finish, unicode), _COLOURS[part])
            table.add_row(TITLES[part], bar, _time(timeline, ticks), _percent(ticks, found.finish))
    if found.communication_hidden:
        hidden = found.communication_hidden
        table.add_row(
            "hidden communication",
            Text("(inside compute and CPU)", "dim"),
            _time(timeline, hidden),
            _percent(hidden, found.finish),
        )
    return table


def _waited(timeline: Timeline, cls: int, late: Late) -> str:
    """Return in words the classes that a class waited for."""
    sizes = class_sizes(timeline)
    whom = [
        f"{class_name(timeline, other, int(sizes[other]))} {_time(timeline, ticks)}"
        for other, ticks in waited_for(timeline, cls, late, limit=3)
    ]
    return f"Waiting for: {', '.join(whom)}"


def _print_communication(timeline: Timeline, console: Console, cls: int) -> None:
    from rich.text import Text

    rows = collectives(timeline, cls)
    if rows:
        most = f" ({ROWS_SHOWN} of {len(rows):,}, the most time first)" if len(rows) > ROWS_SHOWN else ""
        console.print(Text(f"\nCollectives, time and bandwidth of the transfer{most}", "bold"))
        table = plain_table(
            "collective", "size", "NPUs", "calls", "transfer", "waiting", "total", "algorithm", "bus"
        )
        for row in rows[:ROWS_SHOWN]:
            table.add_row(
                plain_name(row.label or "collective"),
                format_bytes(row.size),
                "-" if row.group_size is None else f"{row.group_size:,}",
                format_count(row.count),
                format_time(nanoseconds(timeline, row.transfer) / row.count),
                format_time(nanoseconds(timeline, row.waiting) / row.count),
                _time(timeline, row.time),
                _bandwidth(row.algorithm_bandwidth),
                _bandwidth(row.bus_bandwidth),
            )
        console.print(table)
    used = dimensions(timeline, cls)
    if any(row.phases for row in used):
        console.print(Text("\nNetwork dimensions with utilisation when busy and of the whole run", "bold"))
        titles = ("topology", "NPUs", "sent/NPU", "busy", "capacity", "when busy", "of run")
        table = plain_table("dimension", *titles, left=2, widest=18)
        for dim in used:
            table.add_row(
                plain_name(dim.name),
                dim.topology,
                "-" if dim.size is None else f"{dim.size:,}",
                format_bytes(dim.bytes),
                _time(timeline, dim.busy),
                _bandwidth(dim.capacity),
                _ratio(dim.utilisation_busy),
                _ratio(dim.utilisation_run),
            )
        console.print(table)
        # A real link cannot exceed 100 %, so readers need the reason.
        if max((dim.utilisation_busy or 0.0) for dim in used) > 1:
            note = "over 100 %: in this profile messages that are in flight together each get a whole link"
            console.print(Text(note, "yellow"))


def _print_path(timeline: Timeline, console: Console, cls: int) -> None:
    from rich.text import Text

    steps = critical_path(timeline, cls)
    total = int(timeline.finish[cls])
    if not total:
        return
    parts = [f"{kind} {_percent(ticks, total)}" for kind, ticks in shares(timeline, steps).items() if ticks]
    ranks = len({step.cls for step in steps})
    across = f" across {ranks:,} classes of ranks" if ranks > 1 else ""
    count = "1 step" if len(steps) == 1 else f"{len(steps):,} steps"
    console.print(Text(f"\nCritical path, {count}{across}", "bold"))
    console.print(Text(", ".join(parts)))
    table = plain_table("", "", "", "", widest=70)
    for name, ticks, times in contributors(timeline, steps, ROWS_SHOWN):
        table.add_row(plain_name(name), f"x {times:,}", _time(timeline, ticks), _percent(ticks, total))
    console.print(table)


def _bar(part: int, whole: int, unicode: bool) -> str:
    filled = round(_BAR * part / whole) if whole else 0
    full, rest = ("█", "░") if unicode else ("#", ".")
    return full * filled + rest * (_BAR - filled)


def _time(timeline: Timeline, ticks: int) -> str:
    return format_time(nanoseconds(timeline, ticks))


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:,.1f} %"


def _bandwidth(value: float | None) -> str:
    return "-" if value is None else format_bandwidth(value)


def terms_lines(timeline: Timeline) -> list[str]:
    """Return "Collectives timed by fit a100-sxm" and "Terms: launch 5 µs, straggler 2 %", as far as there are any."""
    fit, terms = timeline.info.get("collective_fit"), timeline.info.get("terms")
    lines = [f"Collectives timed by fit {'; '.join([fit['name'], *fit['notes']])}"] if fit else []
    return [*lines, f"Terms: {term_words(terms)}"] if terms else lines


def terms_json(timeline: Timeline) -> dict[str, Any]:
    """Return the same for programs; values that the timeline lacks are None."""
    return {name: timeline.info.get(name) for name in ("collective_fit", "terms", "host_ns")}
