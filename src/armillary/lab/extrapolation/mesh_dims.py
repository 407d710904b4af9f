"""The mesh dimensions that groups and messages of a trace show: stride between neighbours, and size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from armillary.base.errors import InputError
from armillary.trace.grid import RankGrid

MeshDim = tuple[int, int]
"""Distance between neighbours, and how many there are."""


def mesh_dims_of(members: Sequence[int]) -> tuple[MeshDim, ...] | None:
    """Return the mesh dimensions that a group spans, innermost first; None where its members form no grid."""
    ranks = sorted(members)
    found: list[MeshDim] = []
    while len(ranks) > 1:
        # Peels off the innermost dimension: the longest arithmetic progression from the first member.
        stride = ranks[1] - ranks[0]
        size = 1
        while size < len(ranks) and ranks[size] == ranks[0] + size * stride:
            size += 1
        # Dimensions nest: a stride is a multiple of the whole extent of the one inside.
        if found and stride % (found[-1][0] * found[-1][1]):
            return None
        if len(ranks) % size:
            return None
        rows = [ranks[at : at + size] for at in range(0, len(ranks), size)]
        if any(row != [row[0] + i * stride for i in range(size)] for row in rows):
            return None
        found.append((stride, size))
        # Each row is now one point, its first member: the next dimension is found among these.
        ranks = [row[0] for row in rows]
    return tuple(found)


def grid_of_mesh_dims(n_ranks: int, seen: Iterable[tuple[MeshDim, ...]], strides: Iterable[int]) -> RankGrid:
    """Return the coarsest grid in which groups of these mesh dimensions, and messages over these distances, are rules.

    Its axes are the mesh dimensions, by number.

    Raises:
        InputError: groups cut each other.
    """
    marks = {1, n_ranks, *strides}
    for mesh_dims in seen:
        marks |= {mark for stride, size in mesh_dims for mark in (stride, stride * size)}
    # Marks are numbers of neighbouring ranks at which a dimension begins or ends; each must divide the next,
    # or there is no mixed-radix numbering of the ranks.
    ordered = sorted(mark for mark in marks if mark)
    for a, b in pairwise(ordered):
        if b % a:
            raise InputError(
                f"groups of {a} and of {b} neighbouring ranks cut each other, expected one to be a multiple of the "
                f"other: this trace of {n_ranks} ranks has no grid that can be made larger"
            )
    sizes = tuple(b // a for a, b in pairwise(ordered)) or (1,)
    return RankGrid(sizes, {str(mesh_dim): (mesh_dim,) for mesh_dim in range(len(sizes))})


def mesh_dim_numbers(grid: RankGrid, mesh_dims: Iterable[MeshDim]) -> tuple[int, ...] | None:
    """Return which mesh dimensions of a grid these are; None: they are none of its."""
    found: list[int] = []
    start = 1
    bounds = []
    for number, size in enumerate(grid.sizes):
        bounds.append((number, start, start * size))
        start *= size
    for stride, size in mesh_dims:
        # One dimension of a group may cover several of the grid, where other groups divide it further.
        inside = [number for number, low, high in bounds if low >= stride and high <= stride * size]
        product = 1
        for number in inside:
            product *= grid.sizes[number]
        if product != size or (inside and bounds[inside[0]][1] != stride):
            return None
        found += inside
    return tuple(found)
