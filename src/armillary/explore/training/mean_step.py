"""The mean time of a step: what checkpoints add to each, as all of them end after so many steps."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import ceil

import numpy as np

from armillary.explore.training.constants import Constants
from armillary.explore.training.step import (
    NEUTRAL,
    Step,
    check_storage,
    extent,
    plain_seconds,
    platform_of,
    simulated,
    texts,
    trace_of,
)
from armillary.platform.model import Platform
from armillary.trace.columns import NodeType
from armillary.trace.graph import Graph
from armillary.trace.storage import storage_nodes

MOST_BESIDE = 2
"""Steps that are simulated beside a checkpoint; one that takes longer slows the others alike."""


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint of a step's weights and optimizer states.

    Attributes:
        largest: Bytes that a device writes at most.
        total: Bytes of all.
        lasts: s from its begin until it is complete.
        adds: s by which it prolongs training.
    """

    largest: int
    total: int
    lasts: float
    adds: float


def seconds(step: Step, constants: Constants = NEUTRAL, *, steady: bool = True) -> float:
    """Return the mean time of a step in s, with its share of checkpoints.

    Raises:
        InputError: the plan is impossible on the machine.
    """
    return plain_seconds(step, constants, steady=steady) + checkpoint_seconds(step, constants)


def on_machine(step: Step, constants: Constants, platform: Platform | None = None) -> tuple[Platform, float]:
    """Return a machine, by default that of the step with the constants of its software, and the time on it in s.

    Raises:
        InputError: the plan is impossible on the machine.
    """
    from armillary.engine import simulate

    found = platform or platform_of(step, constants)
    runs = extent(step)
    first = simulate(trace_of(runs.first, constants), found).total_ticks
    second = simulate(trace_of(runs.second, constants), found).total_ticks if runs.second else first
    return found, (first + (second - first) * runs.share) * 1e-9 + checkpoint_seconds(step, constants)


def checkpoint_seconds(step: Step, constants: Constants = NEUTRAL) -> float:
    """Return what checkpoints add to a step on average, in s."""
    found = checkpoint(step, constants)
    return found.adds / step.plan["checkpoint_every"] * step.plan.get("iterations", 1) if found else 0.0


def checkpoint(step: Step, constants: Constants = NEUTRAL) -> Checkpoint | None:
    """Return the checkpoints of a step; None if it has none.

    Raises:
        InputError: nothing says how fast the storage of the machine is.
    """
    every = step.plan.get("checkpoint_every")
    if not every:
        return None
    check_storage(step)
    platform, beside = platform_of(step), bool(step.plan.get("checkpoint_async"))
    storage = platform.storage
    assert storage is not None
    # What is saved does not depend on the batch: the smallest that fills the pipeline has it.
    unit, _, stages = step.rounds()
    few = {"batch": 2 * unit * stages, "iterations": 1, "checkpoint_every": 1}
    largest, total = _saved(_run(replace(step, plan={**step.plan, **few}), NEUTRAL))
    alone = (storage.latency + largest / storage.rate(step.npus)) * 1e-9
    if storage.at and moves_messages(platform):
        return Checkpoint(largest, total, *_among_messages(step, constants, alone, every, beside))
    if not beside:
        return Checkpoint(largest, total, alone, alone)
    # Nothing slows training but the checkpoint before that is not complete.
    between = every * plain_seconds(step, constants) / step.plan.get("iterations", 1)
    return Checkpoint(largest, total, alone, max(0.0, alone - between))


def moves_messages(platform: Platform) -> bool:
    """Return whether messages move over the network of a machine, so that storage may share links with them."""
    return platform.topology is not None or platform.network_model.name not in ("", "analytical")


@dataclass(frozen=True)
class _Run:
    """A run that is kept; its texts are all that its result follows from."""

    texts: tuple[str, str, str]
    step: Step = field(compare=False)
    constants: Constants = field(compare=False)


def _run(step: Step, constants: Constants) -> _Run:
    return _Run(texts(step, constants, True), step, constants)


@lru_cache(maxsize=4096)
def _saved(run: _Run) -> tuple[int, int]:
    """Return the bytes that a rank writes at most, and those of all ranks."""
    trace = trace_of(run.step, run.constants, checkpoints=True)
    sizes = np.array([_written(graph) for graph in trace.graphs])
    return int(sizes.max()), int(sizes[trace.rank_graph].sum())


def _written(graph: Graph) -> int:
    at, sizes, _ = storage_nodes(graph)
    return int(sizes[graph.types[at] == NodeType.CHECKPOINT_NODE].sum())


def _among_messages(
    step: Step, constants: Constants, alone: float, every: int, beside: bool
) -> tuple[float, float]:
    """Return how long a checkpoint takes that shares links with messages, and by how much it prolongs training, in s.

    Args:
        step: The step; its first microbatches are simulated.
        constants: Of its software.
        alone: s that the checkpoint takes at the rate of the storage.
        every: Steps between checkpoints.
        beside: Whether training goes on.
    """
    part = extent(step).first
    if not beside:
        one = replace(part, plan={**part.plan, "iterations": 1, "checkpoint_every": 1})
        plain, _, complete, begun = _ends(_run(one, constants))
        return complete - begun, complete - plain
    short = plain_seconds(part, constants, steady=False) / part.plan.get("iterations", 1)
    after = min(every, MOST_BESIDE, 1 + ceil(1.5 * alone / short))
    # One checkpoint: after as many steps as follow it, and one.
    some = replace(
        part,
        plan={
            **part.plan,
            "iterations": 2 * after + 1,
            "checkpoint_every": after + 1,
            "checkpoint_async": True,
        },
    )
    plain, trained, complete, begun = _ends(_run(some, constants))
    lasts, slower = complete - begun, trained - plain
    if complete <= trained:
        return lasts, slower
    if after == every:
        # The step after the last waits for it.
        return lasts, complete - plain
    return lasts, slower * lasts / max(trained - begun, 1e-9)


@lru_cache(maxsize=256)
def _ends(run: _Run) -> tuple[float, float, float, float]:
    """Return in s the end of a run without checkpoints, that of its training with one, and its end and begin."""
    plain = simulated(run.step, run.constants).total_ticks
    timeline = simulated(run.step, run.constants, checkpoints=True)
    trace = trace_of(run.step, run.constants, checkpoints=True)
    trained, complete, begun = 0, 0, timeline.total_ticks
    for cls, rank in enumerate(timeline.representative.tolist()):
        graph, (start, end) = trace.graph(int(rank)), timeline.spans(cls)
        written = np.isin(timeline.table(cls).node_id, graph.ids[graph.types == NodeType.CHECKPOINT_NODE])
        trained = max(trained, int(end[~written].max(initial=0)))
        complete = max(complete, int(end[written].max(initial=0)))
        begun = min(begun, int(start[written].min(initial=begun)))
    return plain * 1e-9, trained * 1e-9, complete * 1e-9, begun * 1e-9
