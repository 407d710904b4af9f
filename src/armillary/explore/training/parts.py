"""What a step consists of: seconds of the rank that finishes last, which add up to the step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import fsum
from typing import TYPE_CHECKING

import numpy as np

from armillary.engine.common.timeline import KINDS
from armillary.explore.training.constants import Constants
from armillary.explore.training.mean_step import checkpoint_seconds, moves_messages
from armillary.explore.training.step import (
    AFTER,
    Extent,
    Step,
    check_storage,
    extent,
    platform_of,
    simulated,
    trace_of,
)
from armillary.trace.attention import ATTENTION
from armillary.trace.gemm import GEMM

if TYPE_CHECKING:
    from armillary.engine.common.timeline import Timeline
    from armillary.trace import Trace

KERNELS = ("gemm", "attention", "other")
"""Kinds of kernels: GEMMs, fused attention, and what is bound by memory."""
PARTS = (*KERNELS, "communication", "issuing", "waiting", "memory", "outside")
"""Kernels by kind; exposed communication, apart from that during which the CPU issues kernels, which a faster CPU does
not shorten; exposed remote memory; waiting for other ranks, which in a pipeline is its bubble; and what a step takes
outside of kernels and communication."""
TITLES = {
    "gemm": "GEMMs",
    "attention": "attention",
    "other": "other kernels",
    "communication": "exposed communication",
    "issuing": "the same, while the CPU issues",
    "waiting": "waiting for other ranks",
    "memory": "exposed remote memory and storage",
    "outside": "outside of kernels",
    "checkpoint": "checkpoints",
}

MOST_NODES = 400_000
"""Nodes of the runs whose parts are looked at, about: some 0.4 s of work; a studio that answers ahead has no more."""
MOST_WHOLE = 4 * MOST_NODES
"""Nodes of a whole step that is looked at where shorter runs are not steady, about; one of 7,000,000 took 7 s and 2.6
GB, and its parts were 1.2 % of the step from those of its longest short runs."""
OFF = 0.05
"""Share of a step by which a part was off where it does not follow from the whole: see docs/validation/training.md."""
STEADY = 1e-9
"""Share by which a part may become less by rounding."""


def parts_of(step: Step, constants: Constants) -> dict[str, float]:
    """Return the seconds of each of `PARTS`, and of checkpoints if there are any: see `parts_and_note`."""
    return parts_and_note(step, constants)[0]


def parts_and_note(step: Step, constants: Constants) -> tuple[dict[str, float], str]:
    """Return the seconds of each of `PARTS`, of checkpoints if there are any, and which runs they are of.

    The latter is "" where they are of the whole step. The sum is what `armillary.explore.training.mean_step.seconds`
    says, to the millionth. Of a step of many microbatches it is what the last ones of a shorter run add, for as many as
    are left. The time of a round is steady long before its parts are (a CPU falls behind its device a little more with
    each): that run is as long as can be.

    Raises:
        InputError: the plan is impossible on the machine.
    """
    check_storage(step)
    more = checkpoint_seconds(step, constants)
    also = {"checkpoint": more} if more else {}
    note = ""
    for runs in _looks(step, constants):
        found, note = _parts(runs.first, constants), ""
        if runs.second is None:
            break
        second = _parts(runs.second, constants)
        # A part that becomes less with more to do changes still.
        steady = all(second[name] >= found[name] * (1 - STEADY) for name in PARTS)
        found = _prolonged(found, second, runs.share)
        note = _note(step, runs.first, runs.second)
        if steady:
            break
    return found | also, note


def _parts(step: Step, constants: Constants) -> dict[str, float]:
    return parts_of_run(simulated(step, constants, memory=False), trace_of(step, constants))


def _prolonged(first: Mapping[str, float], second: Mapping[str, float], share: float) -> dict[str, float]:
    """Return the parts of a step by those of two runs; none is less than nothing, and the sum is that of the step."""
    found = {name: first[name] + (second[name] - first[name]) * share for name in PARTS}
    total, kept = fsum(found.values()), {name: max(value, 0.0) for name, value in found.items()}
    scale = total / fsum(kept.values())
    return found if scale == 1 else {name: value * scale for name, value in kept.items()}


def _looks(step: Step, constants: Constants) -> Iterator[Extent]:
    """Yield what to look at: the longest runs of about `MOST_NODES` nodes together, some twice as long, the whole.

    A whole of more than `MOST_WHOLE` nodes is left out.
    """
    short = extent(step)
    if short.second is not None:
        _, count, stages = step.rounds()
        of_round = sum(graph.n_nodes for graph in trace_of(short.first, constants).graphs) / AFTER
        whole = of_round * count / stages
        # Where messages move, they are the work, and not nodes: runs are as short as can be.
        most = 0 if moves_messages(platform_of(step, constants)) else MOST_NODES
        if most < whole:
            after = max(AFTER, int(most / of_round - 1) // 2)
            yield extent(step, after=after)
            yield extent(step, after=2 * after + 1)
            if whole > MOST_WHOLE:
                return
    yield Extent(step)


def _note(step: Step, first: Step, second: Step) -> str:
    few, more, all_ = (each.rounds()[1] for each in (first, second, step))
    return (
        f"parts of the step: from runs of {few:,} and {more:,} of its {all_:,} microbatches; each part may be off by "
        f"{100 * OFF:.0f} % of the step, their sum is not"
    )


def limit(parts: Mapping[str, float]) -> tuple[str, float]:
    """Return the title of what takes most of a step, and its seconds: exposed communication counts whole."""
    joined = _moved(parts, "communication")
    name = max(joined, key=lambda each: joined[each])
    return TITLES[name], joined[name]


def shown(parts: Mapping[str, float]) -> dict[str, float]:
    """Return the parts of a table: communication while the CPU issues stands apart where communication takes most.

    So the rows of exposed communication add up to the share that `limit` tells.
    """
    apart = parts["issuing"] and limit(parts)[0] == TITLES["communication"]
    return {**parts} if apart else _moved(parts, "outside")


def _moved(parts: Mapping[str, float], to: str) -> dict[str, float]:
    """Return the parts with communication while the CPU issues as a piece of another one."""
    found = {name: value for name, value in parts.items() if name != "issuing"}
    found[to] += parts["issuing"]
    return found


def exposed(parts: Mapping[str, float]) -> float:
    """Return the share of a step that is exposed communication or waiting, not counting what the CPU issues beside.

    It is the share that spreads of software were fitted to.
    """
    return (parts["communication"] + parts["waiting"]) / fsum(parts.values())


def parts_of_run(timeline: Timeline, trace: Trace) -> dict[str, float]:
    """Return the seconds of each of `PARTS` of a run."""
    from armillary.report.time_breakdown import breakdown

    last = int(np.argmax(timeline.finish))
    found = breakdown(timeline, last)
    kernels = _kernels(timeline, trace, last)
    busy = fsum(kernels.values())
    # Kernels of a rank run one after the other; should they not, their shares are those of what was busy.
    scale = found.compute / busy if busy else 0.0
    ticks = {name: value * scale for name, value in kernels.items()} | {
        "communication": found.communication,
        "issuing": found.communication_beside_cpu,
        "waiting": found.waiting + found.idle,
        "memory": found.memory,
        "outside": found.cpu - found.communication_beside_cpu + timeline.total_ticks - found.finish,
    }
    return {name: float(ticks[name]) * 1e-9 for name in PARTS}


def _kernels(timeline: Timeline, trace: Trace, cls: int) -> dict[str, float]:
    graph = trace.graph(int(timeline.representative[cls]))
    table = timeline.table(cls)
    start, end = timeline.spans(cls)
    busy = np.where(table.kind == KINDS.index("compute"), end - start, 0)
    # Where messages are moved, nodes are added, and stand in another order.
    total = {
        name: busy[np.isin(table.node_id, graph.ids[graph.int_lists(shape)[0] >= 0])].sum()
        for name, shape in (("gemm", GEMM), ("attention", ATTENTION))
    }
    return {
        **{name: float(value) for name, value in total.items()},
        "other": float(busy.sum() - fsum(total.values())),
    }
