"""Turns the graphs of all ranks into a symbolic trace: a grid whose axes are the mesh dimensions of the ranks.

The opposite of `armillary.trace.expand`: ranks that do the same share a graph again, groups become axis sets and peers
steps along an axis. A trace that was read from files can then be scaled by making its grid larger.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.base.units import whole
from armillary.lab.extrapolation.edit import inserted, kept_nodes, with_ints, with_texts, without
from armillary.lab.extrapolation.mesh_dims import MeshDim, grid_of_mesh_dims, mesh_dim_numbers, mesh_dims_of
from armillary.trace import Graph, NodeType, Trace
from armillary.trace.columns import distinct_columns
from armillary.trace.grid import AXIS, Ints, RankGrid
from armillary.trace.trace import Groups, check_whole, definitions, read_groups

ALONE = "alone"
"""Axis set of groups of one rank each: an axis of no mesh dimensions. No name stands for all ranks."""
SENDS, RECEIVES = NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE


@dataclass(frozen=True)
class _Class:
    """Ranks that do the same."""

    graph: Graph
    ranks: Ints
    group: Ints
    """(n_nodes,): column of `members`, -1: none."""
    members: list[list[tuple[int, ...]]]
    """Of each distinct column, the group of every rank."""
    peer: Ints
    """Peer rank of each message, (ranks, n_nodes); -1: not given."""


def symbolic(
    trace: Trace, given: Mapping[int, tuple[int, ...]] | None = None, marks: Sequence[int] = ()
) -> Trace:
    """Return the trace with a grid whose axes are its mesh dimensions ("0" is innermost); one with a grid as it is.

    Collectives of the first and last coordinates of a mesh dimension only are of the subset ``<mesh dimension>.ends``.

    Args:
        trace: A graph for every rank, or one with a grid.
        given: Ranks of the groups that the trace does not define.
        marks: Numbers of neighbouring ranks at which a mesh dimension ends, besides those that groups show.

    Raises:
        InputError: groups or peers follow no rule; names the node.
    """
    if trace.grid is not None:
        return trace
    check_whole(trace)
    groups = groups_of_trace(trace, given)
    of_rank, examples = trace.structures()
    first = {code: int(np.argmax(of_rank == code)) for code in range(len(examples))}
    classes = [_class(trace, first[code], np.flatnonzero(of_rank == code), groups) for code in first]
    graphs, grid = _by_rules(classes, trace.n_ranks, marks)
    return Trace(graphs, of_rank.astype(np.int32), grid, trace.about)


def from_one_rank(
    graph: Graph,
    rank: int,
    n_ranks: int,
    given: Mapping[int, tuple[int, ...]] | None = None,
    marks: Sequence[int] = (),
) -> Trace:
    """Return the trace in which `n_ranks` ranks do what `rank` did, each with the partners at its own place.

    Raises:
        InputError: as `symbolic`.
    """
    alike = Trace.replicate(graph, n_ranks)
    one = _class(alike, 0, np.array([rank]), groups_of_trace(alike, given))
    graphs, grid = _by_rules([one], n_ranks, marks)
    return Trace(graphs, np.zeros(n_ranks, np.int32), grid)


def groups_of_trace(trace: Trace, given: Mapping[int, tuple[int, ...]] | None) -> Groups:
    """Return the ranks of every group of a trace, by number.

    Raises:
        InputError: a definition cannot be read.
    """
    groups, findings = read_groups(trace, given)
    if findings:
        raise InputError(findings[0].message)
    return groups


def _by_rules(
    classes: list[_Class], n_ranks: int, marks: Sequence[int]
) -> tuple[tuple[Graph, ...], RankGrid]:
    grid, ends = _grid(n_ranks, classes, marks)
    if any(tuple({len(group) for group in own}) == (1,) for each in classes for own in each.members):
        grid = RankGrid(grid.sizes, {**grid.axes, ALONE: ()}, grid.subsets)
    graphs = tuple(_ruled(each, grid, ends) for each in classes)
    subsets = {
        f"{mesh_dim}.ends": (str(mesh_dim), (0, grid.sizes[mesh_dim] - 1)) for mesh_dim in set(ends.values())
    }
    return graphs, RankGrid(grid.sizes, grid.axes, subsets)


def _class(trace: Trace, example: int, ranks: Ints, groups: Groups) -> _Class:
    graph = trace.graph(example)
    kinds = graph.types
    message = (kinds == SENDS) | (kinds == RECEIVES)
    table = np.full((len(ranks), graph.n_nodes), -1, np.int64)
    peer = np.full((len(ranks), graph.n_nodes), -1, np.int64)
    collective = kinds == NodeType.COMM_COLL_NODE
    for row, rank in enumerate(ranks.tolist()):
        own = trace.graph(rank)
        codes, names = own.strings("pg_name")
        # -1, a name that is no number, is never in `groups` and is reported next.
        numbers = [0 if name == "" else -1 if (number := whole(name)) is None else number for name in names]
        for number, name in zip(numbers, names, strict=True):
            if number not in groups:
                at = int(np.argmax(codes == names.index(name)))
                raise InputError(
                    f"{own.node(at)}: nothing says which ranks group '{name}' has; expected --comm-groups FILE"
                )
        # A collective without a name is of all ranks; a memory access without one is of its rank alone.
        table[row] = np.where(codes >= 0, np.array([*numbers, -1])[codes], np.where(collective, 0, -1))
        ends = np.where(kinds == SENDS, own.ints("comm_dst", -1), own.ints("comm_src", -1))
        peer[row] = np.where(message, ends, -1)
    columns, inverse = distinct_columns(table)
    members: list[list[tuple[int, ...]]] = []
    names_of = {}
    for number, column in enumerate(columns.tolist()):
        if table[0, column] >= 0:
            names_of[number] = len(members)
            members.append([tuple(groups[n].tolist()) for n in table[:, column].tolist()])
    group = np.array([names_of.get(code, -1) for code in range(len(columns))], np.int64)[inverse]
    return _Class(graph, ranks, group, members, peer)


def _grid(
    n_ranks: int, classes: list[_Class], marks: Sequence[int]
) -> tuple[RankGrid, dict[tuple[MeshDim, ...], int]]:
    """Return the grid, and for groups of the two ends of a mesh dimension, which one it is."""
    seen: dict[tuple[MeshDim, ...], None] = {}
    strides = set()
    for each in classes:
        for column, members in enumerate(each.members):
            found = {mesh_dims_of(group) for group in members}
            mesh_dims = next(iter(found))
            if mesh_dims is None or len(found) > 1:
                at = int(np.argmax(each.group == column))
                raise InputError(
                    f"{each.graph.node(at)}: the groups of ranks that do the same have no common rule, such as "
                    f"{list(members[0])[:8]}; expected members at equal distances"
                )
            seen[mesh_dims] = None
        said: NDArray[np.bool_] = np.all(each.peer >= 0, axis=0)
        away = np.abs(each.peer - each.ranks[:, None])[:, said]
        near, far = away.min(axis=0), away.max(axis=0)
        # Some of a ring are as far from their neighbours as the ring is long.
        # Around a ring of n with stride s, a rank's neighbour is s away, or (n - 1) s across the wrap: near +
        # far is the ring's extent n s. In a ring of two both are s away, so the extent is 2 s.
        strides |= {
            *near.tolist(),
            *(near + far)[far > near].tolist(),
            *(2 * near)[_both_ways(each, said)].tolist(),
        }
    # The last stage of a pipeline may send to the first: that is no distance between neighbours.
    for stride in sorted(strides, reverse=True):
        if n_ranks % stride or any(stride % other and other % stride for other in strides):
            strides.discard(stride)
    # Groups of two ranks at a multiple of the stride of stages may be the first and last stage (tied
    # embeddings).
    pairs = [mesh_dims for mesh_dims in seen if len(mesh_dims) == 1 and mesh_dims[0][1] == 2 and strides]
    ends: dict[tuple[MeshDim, ...], int] = {
        d: 0 for d in pairs if d[0][0] > min(strides) and d[0][0] % min(strides) == 0
    }
    # As ordinary dimensions first; only if these cut others are the pairs taken for ends.
    try:
        grid = grid_of_mesh_dims(n_ranks, seen, {*strides, *marks})
        ends = {}
    except InputError:
        grid = grid_of_mesh_dims(
            n_ranks, [mesh_dims for mesh_dims in seen if mesh_dims not in ends], {*strides, *marks}
        )
    for mesh_dims in ends:
        span = mesh_dims[0][0]
        start = 1
        for number, size in enumerate(grid.sizes):
            # First and last of `size` coordinates are (size - 1) strides apart.
            if start * (size - 1) == span and start in strides:
                ends[mesh_dims] = number
                break
            start *= size
        else:
            raise InputError(
                f"a group has two ranks {span} apart, which is no part of a grid of {list(grid.sizes)} ranks; "
                "expected members at equal distances"
            )
    return grid, ends


def _both_ways(each: _Class, said: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return a mask of messages whose peers are equally far above some ranks and below others: rings of two."""
    away = (each.peer - each.ranks[:, None])[:, said]
    found: NDArray[np.bool_] = away.min(axis=0) == -away.max(axis=0)
    return found


def _ruled(each: _Class, grid: RankGrid, ends: Mapping[tuple[MeshDim, ...], int]) -> Graph:
    """Return the graph of a class with axis sets and steps instead of numbers."""
    graph = each.graph
    names = []
    for column, members in enumerate(each.members):
        mesh_dims = mesh_dims_of(members[0]) or ()
        numbers = mesh_dim_numbers(grid, mesh_dims)
        if mesh_dims in ends:
            names.append(f"{ends[mesh_dims]}.ends")
            continue
        name = "+".join(map(str, numbers)) if numbers else ALONE
        if numbers is None or not _aligned(members, each.ranks, grid, name):
            at = int(np.argmax(each.group == column))
            raise InputError(
                f"{graph.node(at)}: its group {list(members[0])[:8]} is no row of a grid of {list(grid.sizes)} ranks; "
                "expected groups of neighbours, or of ranks at equal distances"
            )
        names.append(name)
    made = with_texts(graph, "pg_name", each.group, names)
    made = _steps(made, each, grid)
    # Nodes that define groups are obsolete, as groups are axis sets now; one that others wait for stays for
    # the order.
    defines = np.zeros(made.n_nodes, np.bool_)
    defines[[position for position, _ in definitions(graph)]] = True
    waited = np.isin(made.ids, np.concatenate([made.data_deps, made.ctrl_deps]))
    return kept_nodes(made, ~defines | waited)


def _aligned(members: list[tuple[int, ...]], ranks: Ints, grid: RankGrid, name: str) -> bool:
    if name == ALONE:
        return all(group == (rank,) for group, rank in zip(members, ranks.tolist(), strict=True))
    table, of = grid.members(name), grid.group_of(name)
    return all(
        sorted(group) == table[of[rank]].tolist() for group, rank in zip(members, ranks.tolist(), strict=True)
    )


def _steps(graph: Graph, each: _Class, grid: RankGrid) -> Graph:
    """Return the graph with peers as steps along axes; the attribute of the own end of a message is dropped."""
    given = np.flatnonzero((each.peer >= 0).all(axis=0))
    if not len(given):
        return graph
    columns, inverse = distinct_columns(each.peer[:, given])
    axes, steps = [], []
    for column in columns.tolist():
        axis, step = _step(each.peer[:, given[column]], each.ranks, grid)
        if axis < 0:
            raise InputError(
                f"{graph.node(int(given[column]))}: ranks that do the same have peers by no common rule; expected "
                f"steps along one axis of a grid of {list(grid.sizes)} ranks"
            )
        axes.append(axis)
        steps.append(step)
    axis_of = np.full(graph.n_nodes, -1, np.int64)
    step_of = np.zeros(graph.n_nodes, np.int64)
    axis_of[given], step_of[given] = np.array(axes)[inverse], np.array(steps)[inverse]
    made = with_texts(graph, AXIS, axis_of, [str(mesh_dim) for mesh_dim in range(len(grid.sizes))])
    for end, own in (("comm_dst", SENDS), ("comm_src", RECEIVES)):
        mine = (axis_of >= 0) & (graph.types == own)
        values = np.where(mine, step_of, graph.ints(end, 0))
        made = with_ints(made, {end: values})
        made = inserted(made, end, "int32", mine & ~graph.has(end), values)
        made = without(made, end, (axis_of >= 0) & (graph.types != own))
    return made


def _step(peers: Ints, ranks: Ints, grid: RankGrid) -> tuple[int, int]:
    """Return the mesh dimension along which all peers have the same distance, and that distance; (-1, 0): none."""
    # A step must lie along one mesh dimension: a diagonal has no rule.
    moved = [
        mesh_dim
        for mesh_dim in range(len(grid.sizes))
        if (_coordinate(peers, grid, mesh_dim) != _coordinate(ranks, grid, mesh_dim)).any()
    ]
    if len(moved) != 1:
        return -1, 0
    away = _coordinate(peers, grid, moved[0]) - _coordinate(ranks, grid, moved[0])
    # All ranks of the class are equally far from their peers: pipelines, and rings without their wrap.
    if (away == away[0]).all():
        return moved[0], int(away[0])
    size = grid.sizes[moved[0]]
    # In a ring the last rank is size - 1 behind its peer, which is one step modulo the size.
    around = away % size
    if (around != around[0]).any():
        return -1, 0
    # The shorter way: size - 1 steps ahead are one step back.
    return moved[0], int(min(around[0], around[0] - size, key=abs))


def _coordinate(ranks: Ints, grid: RankGrid, mesh_dim: int) -> Ints:
    found: Ints = ranks // int(np.prod(grid.sizes[:mesh_dim], dtype=np.int64)) % grid.sizes[mesh_dim]
    return found
