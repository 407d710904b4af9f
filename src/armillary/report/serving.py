"""Serving metrics of a run of inference: time to first token, time per output token, tokens per second."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.units import format_time
from armillary.engine.common.timeline import KINDS, Timeline
from armillary.report.plain import class_sizes, nanoseconds

Ticks = NDArray[np.int64]


@dataclass(frozen=True)
class Bounds:
    """Shares of the time of a phase on the last pipeline stage, which add up to 1.

    Attributes:
        memory: Kernels whose bytes take longer than their operations.
        compute: The other kernels.
        others: No kernel ran: communication, and waiting for other stages.
        memory_kernels: Of all kernels, the share that memory bounds.
    """

    memory: float
    compute: float
    others: float
    memory_kernels: float


@dataclass(frozen=True)
class ServingTimes:
    """Times of tokens over all microbatches of all replicas, in ns.

    Attributes:
        first: From the start to the first token: of the first microbatch that has it, the median (the lower one
            of two), and the last; None in a run of decode alone.
        each: Mean time from one token of a sequence to the next, of all but the first; None in a run of prefill alone.
            Waiting while other microbatches read their prompts counts, too.
        last: The same of the last token, whose keys and values are most.
        rate: Tokens of answers per second, of all NPUs.
        rate_per_npu: The same, the mean over all NPUs of the machine.
        prompt_rate: Tokens of prompts per second until the last first token; None as for `first`.
        prefill: Shares of the time until the last first token; None if there is none, or no roofline model.
        decode: Shares of the time from there on; likewise.
    """

    first: tuple[float, float, float] | None
    each: float | None
    last: float | None
    rate: float
    rate_per_npu: float
    prompt_rate: float | None
    prefill: Bounds | None
    decode: Bounds | None


def serving_times(timeline: Timeline) -> ServingTimes | None:
    """Return the serving metrics of a generated run of inference (`Plan.serve`).

    All prompts arrive at the start; a token is complete when the kernel that chooses it ends on the last pipeline
    stage. In a run of decode alone times between tokens count from the first that is made; with one token for each
    sequence, from the start.

    Returns:
        None for a run of anything else.
    """
    run = timeline.info.get("serving")
    classes = _last_stage(timeline, run) if run else []
    total = float(nanoseconds(timeline, timeline.total_ticks)) / 1e9
    if not run or not classes or not total:
        return None
    sizes = class_sizes(timeline)
    # Ranks of a class stand for as many replicas, or members of one: each counts.
    weight = np.repeat(sizes[[cls for cls, _, _ in classes]], run["microbatches"])
    # (tokens of a sequence, microbatches of all classes)
    ends = np.concatenate([each for _, _, each in classes], axis=1)
    first = each = last = prompts = prefill = decode = None
    # Shares of a phase are those of the replica that answers last.
    slowest, nodes, of_slowest = max(classes, key=lambda found: int(found[2].max()))
    begun, split = 0, 0
    if run["phase"] != "decode":
        # Prefill ends with the last first token, in time and in the order of nodes.
        begun, split = int(of_slowest[0].max()), int(nodes[0].max()) + 1
        at = ends[0].min(), _median(ends[0], weight), ends[0].max()
        first = (_ns(timeline, at[0]), _ns(timeline, at[1]), _ns(timeline, at[2]))
        prompts = run["batch"] * run["prompt"] / (first[2] / 1e9)
        prefill = _bounds(timeline, slowest, slice(0, split), begun)
    if run["phase"] != "prefill" and (len(ends) > 1 or run["phase"] == "decode"):
        # With one token per sequence the time from the start is all there is.
        gaps = np.diff(ends, axis=0) if len(ends) > 1 else ends
        means = gaps.mean(axis=0), gaps[-1]
        each, last = (_ns(timeline, float(np.average(values, weights=weight))) for values in means)
        decode = _bounds(timeline, slowest, slice(split, None), int(of_slowest.max()) - begun)
    rate = run["batch"] * len(ends) / total
    npus = int(timeline.info.get("npus", timeline.n_ranks)) or 1
    return ServingTimes(first, each, last, rate, rate / npus, prompts, prefill, decode)


def serving_lines(timeline: Timeline) -> list[str]:
    """Return the same for people; nothing for a run of anything else."""
    found = serving_times(timeline)
    if found is None:
        return []
    lines = []
    if found.first:
        low, middle, high = map(format_time, found.first)
        more = "" if low == high else f" (first microbatch), {middle} (median), {high} (last)"
        lines.append(f"Time to first token {low}{more}")
    if found.each is not None and found.last is not None:
        lines.append(
            f"Time per output token {format_time(found.each)} (mean), {format_time(found.last)} (last token)"
        )
    text = f"Throughput {_rounded(found.rate)} output tokens/s, {_rounded(found.rate_per_npu)} per NPU"
    if found.prompt_rate:
        text += f"; prompts read at {_rounded(found.prompt_rate)} tokens/s"
    lines.append(text)
    for name, bounds in (("Prefill", found.prefill), ("Decode", found.decode)):
        if bounds:
            shares = sorted(
                [("memory", bounds.memory), ("compute", bounds.compute)], key=lambda pair: -pair[1]
            )
            words = ", ".join(f"bound by {kind} {100 * share:.1f} %" for kind, share in shares)
            lines.append(f"{name}: {words}, communication and waiting {100 * bounds.others:.1f} %")
    return lines


def serving_json(timeline: Timeline) -> dict[str, Any] | None:
    """Return the same as plain values; the last part of a key is the unit of its number."""
    found = serving_times(timeline)
    if found is None:
        return None
    first = found.first or (None, None, None)
    names = ("first_microbatch", "median_microbatch", "last_microbatch")
    return {
        "time_to_first_token": {f"{name}_ns": time for name, time in zip(names, first, strict=True)},
        "time_per_output_token": {"mean_ns": found.each, "last_ns": found.last},
        "output_tokens_per_s": found.rate,
        "npu_output_tokens_per_s": found.rate_per_npu,
        "prompt_tokens_per_s": found.prompt_rate,
        **{
            phase: bounds
            and {
                "memory_bound_ratio": bounds.memory,
                "compute_bound_ratio": bounds.compute,
                "others_ratio": bounds.others,
                "memory_bound_kernels_ratio": bounds.memory_kernels,
            }
            for phase, bounds in (("prefill", found.prefill), ("decode", found.decode))
        },
    }


def _last_stage(timeline: Timeline, run: dict[str, Any]) -> list[tuple[int, Ticks, Ticks]]:
    """Return (class, nodes that choose tokens, their ends), (tokens, microbatches) each; [] if one is missing."""
    from armillary.workload.emit.serving import FIRST, NEXT

    found = []
    for cls in range(len(timeline.finish)):
        nodes = np.flatnonzero(np.isin(timeline.table(cls).name, (FIRST, NEXT)))
        if not len(nodes):
            continue
        ends = timeline.spans(cls)[1][nodes]
        if len(nodes) != run["microbatches"] * run["tokens"] or (ends < 0).any():
            return []
        shape = (run["tokens"], run["microbatches"])
        found.append((cls, nodes.reshape(shape), ends.reshape(shape)))
    return found


def _bounds(timeline: Timeline, cls: int, part: slice, whole: int) -> Bounds | None:
    """Return the shares of `whole` ticks, in which the nodes of a part of a graph ran."""
    bandwidth, used = timeline.info.get("memory_bytes_per_ns"), timeline.info.get("roofline")
    if not bandwidth or not used or whole <= 0:
        return None
    table, (start, end) = timeline.table(cls), timeline.spans(cls)
    kernels = (table.kind[part] == KINDS.index("compute")) & (start[part] >= 0)
    times = (end - start)[part][kernels]
    # ns by FLOPs and by bytes; the larger one bounds the kernel, as in the roofline model.
    operations = table.flops[part] / (timeline.peaks(cls)[part] * used["compute_efficiency"])
    moved = table.moved[part] / (bandwidth * used["memory_efficiency"])
    memory = (moved > operations)[kernels]
    by_memory, by_compute = int(times[memory].sum()), int(times[~memory].sum())
    # Kernels on several streams may sum to more than the phase.
    others = max(0, whole - by_memory - by_compute)
    return Bounds(by_memory / whole, by_compute / whole, others / whole, float(memory.mean()))


def _median(values: Ticks, weight: NDArray[np.int64]) -> int:
    order = np.argsort(values, kind="stable")
    # Weighted lower median: the first value at which half of the ranks is reached.
    reach = np.cumsum(weight[order])
    return int(values[order][np.searchsorted(reach, (reach[-1] + 1) // 2)])


def _ns(timeline: Timeline, ticks: float) -> float:
    return float(ticks) * float(timeline.info.get("tick_ns", 1))


def _rounded(number: float) -> str:
    value = float(f"{number:.4g}")
    return f"{value:,.0f}" if value >= 1000 else f"{value:g}"
