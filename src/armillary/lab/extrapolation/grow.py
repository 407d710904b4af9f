"""A trace on a grid with more or fewer ranks along one mesh dimension."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from armillary.base.errors import InputError
from armillary.lab.extrapolation.edit import bypassed
from armillary.lab.extrapolation.symbolic import ALONE
from armillary.trace import NodeType, Trace
from armillary.trace.axis_sets import grid_of
from armillary.trace.grid import RankGrid
from armillary.workload.layers.shard import near
from armillary.workload.plan.ranks import MOST


def mesh_dim_to_scale(grid: RankGrid, axis: str, size: int) -> tuple[int, int]:
    """Return which mesh dimension of an axis changes, and to what, so that the axis has `size` ranks.

    It is the outermost that the axis has for itself: groups inside stay as large as they are.

    Raises:
        InputError: the other mesh dimensions do not divide the size.
    """
    mesh_dims = grid.mesh_dims_of(axis)
    others = [other for other in ("ep", "tp", "pp", "cp") if other in grid.axes and other != axis]
    # Not the case of the error below: `experts_apart` moves experts to other ranks when cp grows.
    if axis == "cp" and "ep" in others:
        others.remove("ep")  # which of them are ranks of cp can change
    own = [mesh_dim for mesh_dim in mesh_dims if not any(mesh_dim in grid.axes[other] for other in others)]
    if not own:
        shared = next(other for other in others if set(grid.axes[other]) & set(mesh_dims))
        also = (
            "its experts have no replicas" if axis == "dp" and shared == "ep" else f"it lies within {shared}"
        )
        raise InputError(
            f"scale {axis}: all of its ranks are those of {shared}, too ({also}), so what {axis} alone does is not in "
            f"the trace; expected a trace with more of {axis}, or {shared} to be scaled instead"
        )
    # Mesh dimensions are innermost first: the last is the outermost.
    mesh_dim = own[-1]
    rest = prod(grid.sizes[d] for d in mesh_dims if d != mesh_dim)
    if size < 1 or size % rest:
        best = near(size, [rest * max(1, size // rest), rest * (size // rest + 1)])
        raise InputError(f"scale {axis}: got {size}, expected a multiple of {rest} (nearest: {best})")
    total = grid.n_ranks // grid.sizes[mesh_dim] * (size // rest)
    if total > MOST:
        raise InputError(f"scale {axis}: got {size}, which makes {total:,} ranks; expected at most {MOST:,}")
    return mesh_dim, size // rest


def with_size(trace: Trace, mesh_dim: int, size: int) -> Trace:
    """Return the trace with `size` ranks along a mesh dimension; coordinate c does what c modulo the old size did."""
    sizes = grid_of(trace).sizes
    return with_sizes(trace, tuple(size if d == mesh_dim else each for d, each in enumerate(sizes)))


def with_sizes(trace: Trace, sizes: tuple[int, ...]) -> Trace:
    """Return the trace with other sizes of all mesh dimensions, as `with_size`."""
    grid = grid_of(trace)
    graphs = trace.rank_graph.reshape(grid.sizes[::-1])
    for mesh_dim, size in enumerate(sizes):
        # Repeats the old coordinates: of 2 coordinates scaled to 4, 2 and 3 do what 0 and 1 did.
        graphs = np.take(graphs, np.arange(size) % grid.sizes[mesh_dim], axis=len(sizes) - 1 - mesh_dim)
    changed = RankGrid(sizes, grid.axes, grid.subsets)
    subsets = {}
    for name, (axis, places) in grid.subsets.items():
        # Subsets are the two ends of a pipeline, which move with its last stage.
        last = (0, changed.size(axis) - 1)
        subsets[name] = (axis, last if changed.size(axis) != grid.size(axis) else places)
    return replace(trace, rank_graph=graphs.ravel().astype(np.int32), grid=replace(changed, subsets=subsets))


def without_alone(trace: Trace) -> Trace:
    """Return the trace without collectives of groups that have become a single rank, which do nothing."""
    grid = grid_of(trace)
    graphs = []
    for graph in trace.graphs:
        codes, names = graph.strings("pg_name")
        # Those that were of one rank already were recorded: they stay for replicas that may be added.
        alone = [bool(name) and name != ALONE and not grid.mesh_dims(name) for name in names]
        drop = np.array([*alone, False], np.bool_)[codes]
        graphs.append(bypassed(graph, drop & (graph.types == NodeType.COMM_COLL_NODE)))
    return replace(trace, graphs=tuple(graphs))


def with_replicas(grid: RankGrid, count: int) -> RankGrid:
    """Return the grid with `count` replicas of experts that had one: a mesh dimension more, next to those of dp."""
    # Behind the mesh dimensions of dp: outside of the ranks of experts, so that these stay neighbours.
    at = grid.axes["dp"][-1] + 1
    axes = {
        axis: tuple(mesh_dim + (mesh_dim >= at) for mesh_dim in mesh_dims)
        for axis, mesh_dims in grid.axes.items()
        if axis != "edp"
    }
    # fsdp grows only where it shards over all replicas; with hsdp it is a part that stays.
    whole = tuple(sorted({*axes["dp"], *axes.get("cp", ())}))
    for axis in ("dp", "fsdp"):
        if axis in axes and (axis == "dp" or axes[axis] == whole):
            axes[axis] = (*axes[axis], at)
    sizes = (*grid.sizes[:at], count, *grid.sizes[at:])
    return RankGrid(sizes, axes | {"edp": (at,)}, grid.subsets)


def different_along(trace: Trace, mesh_dim: int) -> bool:
    """Say whether ranks along a mesh dimension do different things."""
    table = trace.rank_graph.reshape(grid_of(trace).sizes[::-1])
    return bool((table != np.take(table, [0], axis=table.ndim - 1 - mesh_dim)).any())
