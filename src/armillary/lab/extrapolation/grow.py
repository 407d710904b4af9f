"""A trace on a grid with more or fewer ranks along one digit."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from armillary.base.errors import InputError
from armillary.lab.extrapolation.edit import bypassed
from armillary.lab.extrapolation.symbolic import ALONE
from armillary.trace import NodeType, Trace
from armillary.trace.families import grid_of
from armillary.trace.grid import RankGrid
from armillary.workload.layers.shard import near
from armillary.workload.plan.ranks import MOST


def digit_to_scale(grid: RankGrid, axis: str, size: int) -> tuple[int, int]:
    """Return which digit of an axis changes, and to what, so that the axis has `size` ranks.

    It is the outermost that the axis has for itself: groups inside stay as large as they are.

    Raises:
        InputError: the other digits do not divide the size.
    """
    digits = grid.digits_of(axis)
    others = [other for other in ("ep", "tp", "pp", "cp") if other in grid.axes and other != axis]
    if axis == "cp" and "ep" in others:
        others.remove("ep")  # which of them are ranks of cp can change
    own = [digit for digit in digits if not any(digit in grid.axes[other] for other in others)]
    if not own:
        shared = next(other for other in others if set(grid.axes[other]) & set(digits))
        also = (
            "its experts have no replicas" if axis == "dp" and shared == "ep" else f"it lies within {shared}"
        )
        raise InputError(
            f"scale {axis}: all of its ranks are those of {shared}, too ({also}), so what {axis} alone does is not in "
            f"the trace; expected a trace with more of {axis}, or {shared} to be scaled instead"
        )
    digit = own[-1]
    rest = prod(grid.sizes[d] for d in digits if d != digit)
    if size < 1 or size % rest:
        best = near(size, [rest * max(1, size // rest), rest * (size // rest + 1)])
        raise InputError(f"scale {axis}: got {size}, expected a multiple of {rest} (nearest: {best})")
    total = grid.n_ranks // grid.sizes[digit] * (size // rest)
    if total > MOST:
        raise InputError(f"scale {axis}: got {size}, which makes {total:,} ranks; expected at most {MOST:,}")
    return digit, size // rest


def with_size(trace: Trace, digit: int, size: int) -> Trace:
    """Return the trace with `size` ranks along a digit; coordinate c does what c modulo the old size did."""
    sizes = grid_of(trace).sizes
    return with_sizes(trace, tuple(size if d == digit else each for d, each in enumerate(sizes)))


def with_sizes(trace: Trace, sizes: tuple[int, ...]) -> Trace:
    """Return the trace with other sizes of all digits, as `with_size`."""
    grid = grid_of(trace)
    graphs = trace.rank_graph.reshape(grid.sizes[::-1])
    for digit, size in enumerate(sizes):
        graphs = np.take(graphs, np.arange(size) % grid.sizes[digit], axis=len(sizes) - 1 - digit)
    changed = RankGrid(sizes, grid.axes, grid.subsets)
    subsets = {}
    for name, (axis, places) in grid.subsets.items():
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
        alone = [bool(name) and name != ALONE and not grid.digits(name) for name in names]
        drop = np.array([*alone, False], np.bool_)[codes]
        graphs.append(bypassed(graph, drop & (graph.types == NodeType.COMM_COLL_NODE)))
    return replace(trace, graphs=tuple(graphs))


def with_replicas(grid: RankGrid, count: int) -> RankGrid:
    """Return the grid with `count` replicas of experts that had one: a digit more, next to those of dp."""
    at = grid.axes["dp"][-1] + 1
    axes = {
        axis: tuple(digit + (digit >= at) for digit in digits)
        for axis, digits in grid.axes.items()
        if axis != "edp"
    }
    whole = tuple(sorted({*axes["dp"], *axes.get("cp", ())}))
    for axis in ("dp", "fsdp"):
        if axis in axes and (axis == "dp" or axes[axis] == whole):
            axes[axis] = (*axes[axis], at)
    sizes = (*grid.sizes[:at], count, *grid.sizes[at:])
    return RankGrid(sizes, axes | {"edp": (at,)}, grid.subsets)


def different_along(trace: Trace, digit: int) -> bool:
    """Say whether ranks along a digit do different things."""
    table = trace.rank_graph.reshape(grid_of(trace).sizes[::-1])
    return bool((table != np.take(table, [0], axis=table.ndim - 1 - digit)).any())
