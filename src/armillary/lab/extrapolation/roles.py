"""The roles of the axes of a trace: data, tensor, pipeline, context or expert parallel.

Names of groups are not used. Messages around a ring pass keys and values (cp), others hand activations on (pp).
All-to-alls exchange tokens between experts (ep). Of the other axes, those are tensor parallel (tp) whose reductions the
next kernels wait for, since these sum activations; only the optimizer waits for gradients (dp). Where operators name
their tensors, activations are those that are computed from token ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from armillary.base.errors import InputError, nearest, one_of
from armillary.lab.extrapolation.edit import with_texts
from armillary.lab.extrapolation.kernels import SMALL, UPDATE, Nodes
from armillary.lab.extrapolation.recorded.calls import flat
from armillary.lab.extrapolation.recorded.seeds import calls_of_collectives, counting_dims
from armillary.lab.extrapolation.recorded.tensors import has_program, program_of
from armillary.lab.extrapolation.symbolic import ALONE
from armillary.trace import CollectiveType, Graph, NodeType, Trace
from armillary.trace.axis_sets import grid_of
from armillary.trace.grid import AXIS, RankGrid
from armillary.trace.structure import issue_order

ROLES = ("tp", "cp", "ep", "dp", "pp")
REDUCING = (CollectiveType.ALL_REDUCE, CollectiveType.REDUCE_SCATTER)
NEXT = 8
"""Kernels after a reduction that are checked for whether they wait for it."""
MOST = 24
"""About how many reductions of an axis set are sampled."""


@dataclass(frozen=True)
class Evidence:
    """Why a mesh dimension has its role."""

    role: str
    size: int
    reason: str


def named(trace: Trace, told: Mapping[int, str] | None = None) -> tuple[Trace, list[Evidence]]:
    """Return a trace of `symbolic` with its axes named by their roles, and the evidence for each.

    Mesh dimensions of one role form one axis; ``dp`` includes those of experts. Groups are named by the axes they span.

    Args:
        trace: Its axes are mesh dimensions; one whose axes have names already stays as it is.
        told: Roles of mesh dimensions that are known.

    Raises:
        InputError: the role of an axis cannot be found.
    """
    grid = grid_of(trace)
    if any(not axis.isdecimal() for axis in grid.axes if axis != ALONE):
        found = [
            Evidence(axis, grid.size(axis), "as the trace says")
            for axis in ROLES
            if axis in grid.axes and grid.size(axis) > 1
        ]
        return trace, found
    roles: dict[int, Evidence] = {}
    for mesh_dim, size in enumerate(grid.sizes):
        if size > 1:
            known = (told or {}).get(mesh_dim)
            roles[mesh_dim] = Evidence(known, size, "as told") if known else _role(trace, mesh_dim)
    axes = _axes(grid, {mesh_dim: each.role for mesh_dim, each in roles.items()}, _exchanged(trace))
    axes |= {ALONE: ()} if ALONE in grid.axes else {}
    roles = {mesh_dim: _whole(each, axes, grid) for mesh_dim, each in roles.items()}
    # Groups of the first and last stage (tied embeddings) keep being a subset, under the new name of the
    # axis.
    subsets = {}
    names = {}
    for name, (axis, places) in grid.subsets.items():
        names[name] = f"{_name_of(axes, (int(axis),))}.ends"
        subsets[names[name]] = (_name_of(axes, (int(axis),)), places)
    for graph in trace.graphs:
        for axis_set in graph.strings("pg_name")[1]:
            if axis_set and axis_set not in names:
                names[axis_set] = _name_of(axes, grid.mesh_dims(axis_set))
    # Of two stages all are ends: what is large is the table that the ends have in common.
    ends = "pp" in axes and prod(grid.sizes[mesh_dim] for mesh_dim in axes["pp"]) == 2
    if ends:
        subsets["pp.ends"] = ("pp", (0, 1))
    made = RankGrid(grid.sizes, axes, subsets)
    graphs = tuple(_renamed(graph, names, axes, ends) for graph in trace.graphs)
    found = list(roles.values())
    if "dp" in axes and not any(each.role == "dp" for each in found):
        found.append(
            Evidence("dp", made.size("dp"), "the ranks of ep: other layers are replicated along them")
        )
    return replace(trace, graphs=graphs, grid=made), found


def _renamed(
    graph: Graph, names: Mapping[str, str], axes: Mapping[str, tuple[int, ...]], ends: bool
) -> Graph:
    codes, old = graph.strings("pg_name")
    new = [names.get(name, "") for name in old]
    # A collective over 2 stages up to SMALL bytes is a norm of gradients over the pipeline, not the shared
    # table.
    if ends and "pp" in new:
        mine = (codes == new.index("pp")) & (graph.ints("comm_size") > SMALL)
        codes = np.where(mine, len(new), codes)
        new.append("pp.ends")
    if "ep" in new:
        # The same ranks may be all replicas of other layers: what is not exchanged goes along their axes.
        kinds = np.where(graph.types == NodeType.COMM_COLL_NODE, graph.ints("comm_type", -1), -1)
        mine = (codes == new.index("ep")) & (kinds != CollectiveType.ALL_TO_ALL)
        codes = np.where(mine, len(new), codes)
        new.append(_name_of({name: own for name, own in axes.items() if name != "ep"}, axes["ep"]))
    made = with_texts(graph, "pg_name", codes.astype(np.int64), new)
    codes, old = made.strings(AXIS)
    return with_texts(made, AXIS, codes.astype(np.int64), [_name_of(axes, (int(name),)) for name in old])


def _exchanged(trace: Trace) -> set[tuple[int, ...]]:
    """Return along which mesh dimensions all-to-alls go: ranks of tp or cp may have experts of their own."""
    grid = grid_of(trace)
    axis_sets = {axis_set for graph in trace.graphs for axis_set in graph.strings("pg_name")[1] if axis_set}
    return {
        grid.mesh_dims(axis_set)
        for axis_set in axis_sets
        if CollectiveType.ALL_TO_ALL in _kinds(trace, axis_set)
    }


def _axes(
    grid: RankGrid, roles: Mapping[int, str], exchanged: set[tuple[int, ...]]
) -> dict[str, tuple[int, ...]]:
    axes = {role: tuple(d for d, each in roles.items() if each == role) for role in ROLES}
    data, experts = axes["dp"], axes["ep"]
    # Layers other than experts are replicated along the ranks of ep, too: dp has both, edp the replicas of
    # experts.
    if experts:
        axes["dp"], axes["edp"] = tuple(sorted(experts + data)), data
    found: dict[str, tuple[int, ...]] = {}
    for role, mesh_dims in axes.items():
        # Groups may span one of several mesh dimensions of a role (dp0 inside of a node, dp1 across): each
        # gets a name.
        if len(mesh_dims) > 1 and not (role == "dp" and experts and len(data) < 2):
            found |= {
                f"{role}{i}": (mesh_dim,)
                for i, mesh_dim in enumerate(d for d in mesh_dims if d not in experts)
            }
    axes["ep"] = tuple(sorted({*experts, *(mesh_dim for mesh_dims in exchanged for mesh_dim in mesh_dims)}))
    # Tokens may go to another node first, and there to their experts.
    parts = sorted(mesh_dims for mesh_dims in exchanged if 0 < len(mesh_dims) < len(axes["ep"]))
    if len(parts) == 2 and not {*parts[0]} & {*parts[1]}:
        found |= {"ep.inside": parts[0], "ep.across": parts[1]}
    # Names of single mesh dimensions first: an axis set is named by the first axis that is just its mesh dimensions.
    return found | {role: mesh_dims for role, mesh_dims in axes.items() if mesh_dims}


def _whole(each: Evidence, axes: Mapping[str, tuple[int, ...]], grid: RankGrid) -> Evidence:
    """Return the evidence of experts with those of their ranks that are of tp or cp, and of dp with those of ep."""
    if each.role not in ("ep", "dp") or "ep" not in axes:
        return each
    size = prod(grid.sizes[mesh_dim] for mesh_dim in axes[each.role])
    also = {"ep": ", and along others", "dp": ", and those of ep"}[each.role]
    return each if size == each.size else replace(each, size=size, reason=each.reason + also)


def _name_of(axes: Mapping[str, tuple[int, ...]], mesh_dims: tuple[int, ...]) -> str:
    for name, own in axes.items():
        if own == tuple(mesh_dims):
            return name
    # No axis is just these mesh dimensions: cover them greedily by axes, largest first, and join the names by
    # "+".
    names, left = [], set(mesh_dims)
    for name, own in sorted(axes.items(), key=lambda each: -len(each[1])):
        if own and set(own) <= left:
            names.append(name)
            left -= set(own)
    return "+".join(sorted(names, key=lambda name: axes[name]))


def _role(trace: Trace, mesh_dim: int) -> Evidence:
    grid = grid_of(trace)
    size = grid.sizes[mesh_dim]
    for graph in trace.graphs:
        role = _by_messages(trace, graph, mesh_dim)
        if role:
            reason = "messages go round it" if role == "cp" else "messages go from stage to stage"
            return Evidence(role, size, reason)
    # Before reductions are looked at: cp by gathers reduces gradients as dp does, and would be taken for it.
    if any(_attends(Nodes(graph, grid), mesh_dim) for graph in trace.graphs):
        return Evidence("cp", size, "keys and values are gathered along it")
    axis_sets = {name for graph in trace.graphs for name in graph.strings("pg_name")[1]}
    mine = {axis_set for axis_set in axis_sets if mesh_dim in grid.mesh_dims(axis_set)}
    kinds = {axis_set: _kinds(trace, axis_set) for axis_set in mine}
    # Median over all graphs of the share of kernels after a reduction that wait for it: near 1 for
    # activations, 0 for gradients.
    waits = {}
    for axis_set in mine:
        shares = [share for graph in trace.graphs for share in _activations(Nodes(graph, grid), axis_set)]
        if shares:
            waits[axis_set] = float(np.median(shares))
    if any(CollectiveType.ALL_TO_ALL in kinds[axis_set] for axis_set in mine):
        # Ranks of tp with other experts each exchange tokens, too, but only they reduce activations.
        alone = [share for axis_set, share in waits.items() if grid.mesh_dims(axis_set) == (mesh_dim,)]
        if max(alone, default=0) < 0.5:
            return Evidence("ep", size, "all-to-alls along it")
    # Groups over several mesh dimensions mix roles, so the evidence shown is from those over this one alone,
    # if any.
    own = {axis_set: share for axis_set, share in waits.items() if len(grid.mesh_dims(axis_set)) == 1}
    awaited = [axis_set for axis_set, share in waits.items() if share >= 0.5]
    free = [axis_set for axis_set, share in waits.items() if share < 0.5]
    # Both kinds along one mesh dimension: tokens are divided along it, so it sums partial activations and
    # gradients.
    if awaited and free:
        return Evidence("cp", size, "activations and gradients are reduced along it")
    if free or (waits and not awaited):
        share = min(waits.values())
        return Evidence("dp", size, _reason(trace, share, "gradients"))
    if awaited:
        share = max((own or waits).values())
        return Evidence("tp", size, _reason(trace, share, "activations"))
    if any(kinds[axis_set] for axis_set in mine):
        which = ", ".join(sorted(kind.name for axis_set in mine for kind in kinds[axis_set]))
        raise InputError(
            f"the axis of {size} ranks that are {prod(grid.sizes[:mesh_dim])} apart has collectives ({which}) but no "
            f"reductions: what it is cannot be found; expected --axes with its role ({one_of(ROLES)})"
        )
    return Evidence("dp", size, "nothing goes along it: replicas on their own")


def _reason(trace: Trace, share: float, what: str) -> str:
    if all(has_program(graph) for graph in trace.graphs) and share in (0.0, 1.0):
        return f"what is reduced along it is {'' if share else 'not '}computed from tokens: {what}"
    return f"{share:.0%} of the kernels after a reduction wait for it: {what}"


def _by_messages(trace: Trace, graph: Graph, mesh_dim: int) -> str:
    """Return cp or pp where messages go along a mesh dimension; "" where none do."""
    codes, names = graph.strings(AXIS)
    mine = (codes >= 0) & (codes == (names.index(str(mesh_dim)) if str(mesh_dim) in names else -2))
    if not mine.any():
        return ""
    # Innermost mesh dimension last, so mesh dimension d is array axis ndim - 1 - d.
    table = trace.rank_graph.reshape(grid_of(trace).sizes[::-1])
    alike = bool((table == np.take(table, [0], axis=table.ndim - 1 - mesh_dim)).all())
    # In a ring all do the same, and pass on while they receive.
    ptr, parents = graph.parents()
    waits: dict[bool, list[list[int]]] = {True: [], False: []}
    for node in np.flatnonzero(mine).tolist():
        sends = bool(graph.types[node] == NodeType.COMM_SEND_NODE)
        waits[sends].append(parents[ptr[node] : ptr[node + 1]].tolist())
    return "cp" if alike and waits[True] == waits[False] else "pp"


def _attends(nodes: Nodes, mesh_dim: int) -> bool:
    """Say whether attention gathers what it reads along a mesh dimension, and scatters what it makes."""
    codes, names = nodes.graph.strings("pg_name")
    own = np.array([*(nodes.grid.mesh_dims(name) == (mesh_dim,) for name in names), False], np.bool_)[codes]
    kinds = set(nodes.collective[own & nodes.attended].tolist())
    return {CollectiveType.ALL_GATHER, CollectiveType.REDUCE_SCATTER} <= kinds


def _kinds(trace: Trace, axis_set: str) -> set[CollectiveType]:
    found = set()
    for graph in trace.graphs:
        codes, names = graph.strings("pg_name")
        if axis_set in names:
            large = (codes == names.index(axis_set)) & (graph.ints("comm_size") > SMALL)
            numbers = np.unique(graph.ints("comm_type", -1)[large]).tolist()
            found |= {CollectiveType(n) for n in numbers if n in CollectiveType.__members__.values()}
    return found


def _activations(nodes: Nodes, axis_set: str) -> list[float]:
    """Return for reductions of an axis set how much speaks for activations: 1 where their tensors have tokens."""
    codes, names = nodes.graph.strings("pg_name")
    if axis_set not in names or not has_program(nodes.graph):
        return _waited(nodes, axis_set)
    mine = (codes == names.index(axis_set)) & nodes.large & np.isin(nodes.collective, REDUCING)
    if not mine.any():
        return []
    program = program_of(nodes.graph)
    tokens = {leaf for dim in counting_dims(program) for leaf in dim.leaves()}
    calls = calls_of_collectives(nodes, program, mine)
    if not tokens or len(calls) < mine.sum():
        return _waited(nodes, axis_set)
    sent = [[each for argument in call.inputs for each in flat(argument)] for call in calls.values()]
    return [
        float(any(leaf in tokens for each in tensors for dim in each.dims for leaf in dim.leaves()))
        for tensors in sent
    ]


def _waited(nodes: Nodes, axis_set: str) -> list[float]:
    """Return for reductions of an axis set which share of the next kernels waits for them."""
    graph = nodes.graph
    codes, names = graph.strings("pg_name")
    if axis_set not in names:
        return []
    mine = (codes == names.index(axis_set)) & nodes.large & np.isin(nodes.collective, REDUCING)
    order = issue_order(graph)
    ptr, parents = graph.parents()
    called, distinct = graph.name_codes()
    # Kernels of the update wait for gradients and would make these look like activations.
    kernel = nodes.kernel & ~np.array([bool(UPDATE.search(name)) for name in distinct], np.bool_)[called]
    gemms = np.flatnonzero(nodes.multiplies[order])
    at = np.flatnonzero(mine[order])
    found = []
    # A sample over the whole step: the first reductions may be of another kind than the last ones.
    for place in at[:: max(1, len(at) // MOST)].tolist():
        if len(gemms) and place > gemms[-1]:
            found.append(0.0)  # only the update follows
            continue
        # Transitive closure of waiting, in issue order, until NEXT kernels are seen.
        reached = {int(order[place])}
        seen = waits = 0
        for node in order[place + 1 :].tolist():
            depends = not reached.isdisjoint(parents[ptr[node] : ptr[node + 1]].tolist())
            if depends:
                reached.add(node)
            if kernel[node]:
                seen += 1
                waits += depends
                if seen == NEXT:
                    break
        # Fewer than NEXT kernels follow: the end of the step, so what is reduced is a gradient.
        found.append(waits / NEXT if seen == NEXT else 0.0)
    return found


def check_axis(name: str, grid: RankGrid) -> tuple[int, ...]:
    """Return the mesh dimensions of an axis to scale.

    Raises:
        InputError: the trace has no such axis.
    """
    known = [axis for axis in grid.axes if grid.size(axis) > 1]
    if name not in known:
        hint = "" if name in ROLES else nearest(name, known)
        found = f"expected {one_of(known)}{hint}" if known else "its ranks share no group"
        if name in ROLES:
            found += f", or a trace of 2 or more ranks along {name}, which shows what they exchange"
        raise InputError(f"scale {name}: the trace has no axis '{name}' of more than one rank; {found}")
    return grid.axes[name]
