"""Bytes of weights, gradients and optimizer states that one rank holds for a layer."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod

from armillary.trace.grid import RankGrid
from armillary.workload.layers.layer import Layer
from armillary.workload.plan.numbers import MOMENTS, gradient, state, weight
from armillary.workload.plan.scaling import recipe_of
from armillary.workload.plan.schema import Plan

LAYERWISE = ("zero-3", "fsdp", "hsdp")
"""Shardings that gather the weights of a layer for each use."""
# FSDP2 keeps its shards in fp32 and casts them as they are gathered.
_MASTERS = ("fsdp", "hsdp")
CACHED = {"fp8": 2.0, "fp4": 2 * (0.5 + 1 / 16)}
"""Bytes of a weight in the precision of its GEMMs, as it is and transposed, with a scale of 8 bits per 16 in fp4.

Transformer Engine keeps both from the first microbatch on. FSDP casts what it has gathered, and keeps nothing.
"""


@dataclass(frozen=True)
class States:
    """Bytes of a layer's parameters and what belongs to them.

    Attributes:
        weights: Held all the time.
        gradients: Held from the first backward pass to the optimizer step.
        optimizer: Master copy and moments.
        gathered: Weights of the whole layer while it is computed, where a rank keeps a shard.
        reduced: Gradients of the whole layer on their way to the ranks that keep them.
    """

    weights: int
    gradients: int
    optimizer: int
    gathered: int
    reduced: int


def states(layer: Layer, plan: Plan, grid: RankGrid) -> States:
    """Return the bytes that a rank holds for the parameters of a layer.

    Mixed precision with Adam takes 2 bytes of weights, 4 or 2 of gradients and 12 of optimizer states per parameter:
    fp32 master, momentum, variance (ZeRO, arXiv 1910.02054, §3.1). What `plan.data` shards is divided by the ranks of
    the axis set that the layer names. FSDP keeps its shard in fp32, the master copy (PyTorch FSDP2). Workers of
    parameter servers have no optimizer. Rows of tables, in no axis set, are updated after each microbatch and keep no
    gradients. Offloaded shares are taken off.
    """
    sharding, element, each = plan.data.sharding, weight(plan), gradient(plan)
    kept = 4 if sharding in _MASTERS else element
    # Where the shard that is kept is the master copy, the optimizer has none of its own.
    optimizer = 4 * MOMENTS[plan.optimizer] if sharding in _MASTERS else state(plan)
    layerwise = sharding in LAYERWISE and plan.data.reshard
    if sharding == "parameter-server":
        optimizer = 0
    total = {"weights": 0, "gradients": 0, "optimizer": 0}
    whole = 0
    trained = 0
    for axis_set, count in layer.frozen.items():
        whole += count
        # Nothing updates them, so that no master copy stands for them.
        total["weights"] += element * (
            -(-count // shards(plan, grid, axis_set)) if sharding in LAYERWISE else count
        )
    for axis_set, count in layer.parameters.items():
        shard = -(-count // shards(plan, grid, axis_set))
        whole += count
        trained += count
        total["weights"] += kept * (shard if sharding in LAYERWISE else count)
        if axis_set:
            total["gradients"] += each * (shard if layerwise or sharding == "zero-2" else count)
        total["optimizer"] += optimizer * (count if sharding == "ddp" else shard)
    if sharding in LAYERWISE and not layerwise:
        # Without resharding the gathered weights stay beside the shard for the whole step.
        total["weights"] += element * whole
    if sharding not in _MASTERS:
        recipe = recipe_of(plan)
        copies = 2 * float(recipe.element) if recipe else CACHED.get(plan.numbers.compute, 0.0)
        total["weights"] += ceil(layer.low * copies)
    return States(
        weights=left(total["weights"], plan.offload.weights),
        gradients=total["gradients"],
        optimizer=left(total["optimizer"], plan.offload.optimizer),
        gathered=element * whole if layerwise or plan.offload.weights else 0,
        reduced=(element + each) * trained if layerwise else 0,
    )


def shards(plan: Plan, grid: RankGrid, axis_set: str) -> int:
    """Return over how many ranks a sharding divides the parameters of an axis set."""
    mesh_dims = set(grid.mesh_dims(axis_set)) if axis_set else set()
    if plan.data.sharding == "hsdp":
        # HSDP shards within groups of `shard` ranks and replicates across them.
        mesh_dims &= set(grid.mesh_dims("fsdp"))
    return prod(grid.sizes[mesh_dim] for mesh_dim in mesh_dims)


def left(size: int, share: float | None) -> int:
    """Return what stays of `size` bytes when a share of them is offloaded."""
    return size if share is None else ceil(size * (1 - share))
