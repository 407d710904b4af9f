"""Recognises the axes of a trace: groups and peers become rules, and each axis gets its role."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from math import prod
from operator import mul

import numpy as np

from armillary.base.errors import InputError, nearest, one_of
from armillary.base.json_text import json_within
from armillary.lab.extrapolation.mesh_dims import mesh_dim_numbers, mesh_dims_of
from armillary.lab.extrapolation.roles import ROLES, Evidence, named
from armillary.lab.extrapolation.symbolic import ALONE, from_one_rank, groups_of_trace, symbolic
from armillary.trace import Graph, Trace
from armillary.trace.axis_sets import grid_of
from armillary.trace.grid import RankGrid
from armillary.trace.trace import definitions, recorded_rank, recorded_world

Known = Mapping[int, tuple[int, ...]]


def recognise(
    trace: Trace,
    *,
    axes: Mapping[str, int] | None = None,
    groups: Mapping[str, int] | None = None,
    given: Known | None = None,
) -> tuple[Trace, tuple[Evidence, ...]]:
    """Return the symbolic trace with named axes, and the evidence for the role of each.

    Args:
        trace: A graph for every rank, or one with a grid.
        axes: Sizes of all axes by role, neighbouring ranks first, where they are known.
        groups: Role -> number of a group along it.
        given: Ranks of groups that the trace does not define.

    Raises:
        InputError: the ranks are no grid, a role cannot be found, or what is told does not fit.
    """
    made = symbolic(trace, given, _marks(trace.n_ranks, axes))
    return _named(made, axes, groups, groups_of_trace(trace, given) if groups else {})


def recognise_one(
    graph: Graph,
    rank: int,
    n_ranks: int,
    *,
    axes: Mapping[str, int] | None = None,
    groups: Mapping[str, int] | None = None,
    given: Known | None = None,
) -> tuple[Trace, tuple[Evidence, ...]]:
    """Return the trace in which all ranks do what one rank did, and the evidence, as `recognise` does.

    Raises:
        InputError: as there, or the rank is a stage of a pipeline, whose others do something else.
    """
    # Only data, tensor and context parallel ranks run the same program; stages of a pipeline are refused
    # below.
    made = from_one_rank(graph, rank, n_ranks, given, _marks(n_ranks, axes))
    known = groups_of_trace(Trace.replicate(graph, n_ranks), given) if groups else {}
    found, evidence = _named(made, axes, groups, known)
    if any(each.role == "pp" for each in evidence):
        raise InputError(
            f"{graph.source}: rank {rank} is a stage of a pipeline, and others do something else; expected a rank of "
            "each stage"
        )
    return found, evidence


def _marks(n_ranks: int, axes: Mapping[str, int] | None) -> list[int]:
    if not axes:
        return []
    for role in axes:
        if role not in ROLES:
            raise InputError(f"axes: no axis '{role}', expected {one_of(ROLES)}{nearest(role, ROLES)}")
    total = prod(axes.values())
    if total != n_ranks:
        text = " x ".join(f"{role} {size}" for role, size in axes.items())
        raise InputError(f"axes: {text} = {total} ranks; expected {n_ranks}, those of the trace")
    # Numbers of neighbouring ranks at which an axis ends: {tp: 4, dp: 2} ends at 4 and at 8.
    return list(accumulate(axes.values(), mul))


def _named(
    made: Trace, axes: Mapping[str, int] | None, groups: Mapping[str, int] | None, known: Mapping[int, object]
) -> tuple[Trace, tuple[Evidence, ...]]:
    grid = grid_of(made)
    told: dict[int, str] = {}
    ends = list(accumulate((axes or {}).values(), mul))
    # A mesh dimension belongs to the given axis in whose range of strides it lies; one axis may have several.
    if axes and all(axis.isdecimal() for axis in grid.axes if axis != ALONE):
        # Product of the sizes of the mesh dimensions further inside: the stride of this one.
        start = 1
        for mesh_dim, size in enumerate(grid.sizes):
            told[mesh_dim] = next(
                role for role, end in zip(axes, ends, strict=True) if start < end or end == start * size
            )
            start *= size
    for role, number in (groups or {}).items():
        told |= dict.fromkeys(_mesh_dims_of_group(grid, role, number, known), role)
    found, evidence = named(made, told)
    return found, tuple(evidence)


def _mesh_dims_of_group(
    grid: RankGrid, role: str, number: int, known: Mapping[int, object]
) -> tuple[int, ...]:
    if role not in ROLES:
        raise InputError(
            f"group {role}={number}: no axis '{role}', expected {one_of(ROLES)}{nearest(role, ROLES)}"
        )
    if number not in known:
        raise InputError(f"group {role}={number}: no group {number}, expected one of {sorted(known)[:8]}")
    members: object = known[number]
    mesh_dims = mesh_dims_of(list(members))  # type: ignore[call-overload]
    numbers = mesh_dim_numbers(grid, mesh_dims) if mesh_dims else None
    if not numbers:
        raise InputError(f"group {role}={number}: it has no rule, expected one of ranks at equal distances")
    return numbers


def as_all_ranks(trace: Trace, source: str) -> tuple[Trace, str]:
    """Return the trace in which all ranks do what the one of a trace did, and a warning that says so.

    Raises:
        InputError: `trace` has several ranks, or its rank cannot stand for the others, see `recognise_one`.
    """
    if trace.n_ranks != 1:
        raise InputError(f"--from-one-rank: {source} has {trace.n_ranks} ranks; expected one")
    graph = trace.graph(0)
    # A file that does not say its rank is taken for rank 0.
    rank = recorded_rank(graph) or 0
    # The world's size, or as many ranks as groups mention.
    count = recorded_world(graph) or ranks_named_by(graph)
    whole, _ = recognise_one(graph, rank, count)
    return whole, f"all {count} ranks are assumed to do what rank {rank} did"


def ranks_named_by(graph: Graph) -> int:
    """Return the least number of ranks that the run of this rank can have, by the groups and peers it names.

    Raises:
        InputError: it names no other rank.
    """
    # Each entry is a lower bound; a run has at least as many ranks as the largest of them.
    ends = [1, recorded_world(graph)]
    for _, text in definitions(graph):
        for group in json_within(text[2:-2]):
            ranks = group.get("ranks", ())
            ends += [
                max(ranks, default=0) + 1,
                *(stride * size for stride, size in mesh_dims_of(ranks) or ()),
            ]
    away = np.abs(graph.ints("comm_src") - graph.ints("comm_dst"))[
        graph.has("comm_src") & graph.has("comm_dst")
    ]
    # A peer d ranks away means a mesh dimension of stride d with 2 or more coordinates.
    if len(away):
        ends.append(2 * int(away.max()))
    if max(ends) == 1:
        raise InputError(
            f"{graph.source}: no group in it names ranks, so how many there are is not said; "
            "expected --axes, such as dp=8"
        )
    return max(ends)
