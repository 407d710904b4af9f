"""Memory of the ranks of a pipeline stage in inference."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import numpy as np

from armillary.workload.layers.layer import Layer
from armillary.workload.memory.footprint import FRAGMENTATION, Footprint, messages
from armillary.workload.memory.outside import Outside
from armillary.workload.memory.outside import outside as outside_of
from armillary.workload.pipeline.tasks import Task
from armillary.workload.plan.numbers import stored, stores
from armillary.workload.plan.ranks import microbatches, rank_grid
from armillary.workload.plan.schema import Plan

CATEGORIES = ("weights", "cache", "working", "communication")


def serving(
    stages: Sequence[Sequence[Layer]],
    plan: Plan,
    stage: int,
    batches: int = 1,
    *,
    fragmentation: float = FRAGMENTATION,
    outside: Outside | None = None,
) -> Footprint:
    """Return the footprint of one pipeline stage in inference: weights, and the keys and values of `batches`."""
    pp, virtual = plan.parallel.pp, plan.pipeline.virtual
    chunks = [list(stages[chunk * pp + stage]) for chunk in range(virtual)]
    layers = [layer for mine in chunks for layer in mine]
    line = {category: np.zeros(len(layers), np.int64) for category in CATEGORIES}
    line["weights"][:] = weights_of(layers, plan)
    line["cache"][:] = batches * sum(layer.cache for layer in layers)
    line["working"][:] = [layer.working for layer in layers]
    line["communication"][:] = messages(chunks, plan, training=False)
    # One forward pass stands for all: a step of inference holds nothing for later but the cache.
    order = tuple(Task("F", 0, chunk) for chunk in range(virtual))
    return Footprint(
        stage,
        order,
        np.repeat(np.arange(virtual), [len(mine) for mine in chunks]),
        tuple(layer.name for layer in layers),
        line,
        fragmentation,
        outside_of(plan, rank_grid(plan)) if outside is None else outside,
    )


def weights_of(layers: Sequence[Layer], plan: Plan, experts: float | None = None, copies: float = 1.0) -> int:
    """Return the bytes of the weights of layers on a rank.

    Args:
        layers: They.
        plan: Of inference.
        experts: Bits of a weight of routed experts, if all others are in the precision of GEMMs; None: all are as the
            plan says.
        copies: Routed experts on all ranks, for each of the model.
    """
    kept, total = stores(plan), 0
    usual = kept.weights if experts is None else plan.numbers.compute
    for layer in layers:
        # Quantised models often leave the two tables in bf16.
        precision = kept.embeddings if layer.name in ("embedding", "head") else usual
        for axes, count in layer.parameters.items():
            routed = axes == "edp"
            held = ceil(count * copies) if routed else count
            total += ceil(held * experts / 8) if routed and experts is not None else stored(held, precision)
    return total


def worst_serving(
    stages: Sequence[Sequence[Layer]],
    plan: Plan,
    *,
    fragmentation: float = FRAGMENTATION,
    outside: Outside | None = None,
) -> Footprint:
    """Return the footprint of the pipeline rank that needs most, with the keys and values of all microbatches."""
    count = microbatches(plan)
    found = [
        serving(stages, plan, stage, count, fragmentation=fragmentation, outside=outside)
        for stage in range(plan.parallel.pp)
    ]
    return max(found, key=lambda each: each.needed)
