"""A smaller grid whose ranks have the same communication errors as those of the whole one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from armillary.trace.axis_sets import AxisSets, grid_of, routes_of
from armillary.trace.grid import RankGrid
from armillary.trace.trace import Trace

KEPT = 2
"""Ranks kept along a mesh dimension; a single one would merge groups that are distinct."""


def cut(trace: Trace) -> tuple[Trace, str]:
    """Return a trace with a grid of fewer ranks that has the same errors, and a description of what was cut.

    Shifted along a mesh dimension on which neither graphs nor messages depend, every rank does the same as before with
    shifted partners. What ranks wait for therefore has a circle, or groups that disagree, in the whole grid
    exactly if it has in the one with `KEPT` of them.
    """
    grid = grid_of(trace)
    fixed = _fixed(trace, grid)
    table = trace.rank_graph.reshape(grid.sizes[::-1])
    sizes = list(grid.sizes)
    for mesh_dim, size in enumerate(grid.sizes):
        # `reshape` puts the innermost mesh dimension last.
        along = len(grid.sizes) - 1 - mesh_dim
        first = np.take(table, [0], axis=along)
        # Cut only where the class of a rank does not depend on its coordinate.
        if size > KEPT and mesh_dim not in fixed and bool((table == first).all()):
            table = np.repeat(first, KEPT, axis=along)
            sizes[mesh_dim] = KEPT
    changed = [f"{a} of {b}" for a, b in zip(sizes, grid.sizes, strict=True) if a != b]
    smaller = Trace(trace.graphs, table.ravel(), replace(grid, sizes=tuple(sizes)))
    return smaller, ", ".join(changed)


def _fixed(trace: Trace, grid: RankGrid) -> set[int]:
    """Return the mesh dimensions along which the behaviour of a rank depends on its coordinate."""
    fixed = {mesh_dim for axis, _ in grid.subsets.values() for mesh_dim in grid.mesh_dims_of(axis)}
    axis_sets = AxisSets(trace)
    for graph in trace.graphs:
        # An absolute peer depends on every coordinate, a step along an axis on those of the axis.
        for route in routes_of(graph, grid)[1]:
            fixed |= set(grid.mesh_dims_of(route.axis) if route.axis else range(len(grid.sizes)))
        # Uneven splits list a size per member, so the number of members must not change.
        if "comm_splits" in graph.attr_names:
            codes, names = graph.strings("pg_name")
            for code in np.unique(codes[graph.has("comm_splits")]).tolist():
                axis_set = axis_sets.all[axis_sets.find(names[code] if code >= 0 else "")]
                fixed |= set(grid.mesh_dims(axis_set.name) if axis_set.base else range(len(grid.sizes)))
    return fixed
