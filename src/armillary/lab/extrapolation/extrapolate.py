"""Extrapolates a trace to another size: more ranks, other batches, longer sequences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.lab.extrapolation.context_axis import experts_apart, scale_context
from armillary.lab.extrapolation.data_axis import scale_data
from armillary.lab.extrapolation.expert_axis import scale_experts
from armillary.lab.extrapolation.extrapolated import Assumption, Extrapolated, Unclassified
from armillary.lab.extrapolation.grow import (
    different_along,
    mesh_dim_to_scale,
    with_size,
    with_sizes,
    without_alone,
)
from armillary.lab.extrapolation.hardware import to_hardware
from armillary.lab.extrapolation.kernels import Nodes
from armillary.lab.extrapolation.recorded.axes import (
    scale_recorded_data,
    scale_recorded_tensor,
    scale_recorded_tokens,
)
from armillary.lab.extrapolation.recorded.remake import check_whole, remake_recorded
from armillary.lab.extrapolation.recorded.replicas import ADDED, add_replicas, lacks_replicas
from armillary.lab.extrapolation.recorded.tensors import has_program
from armillary.lab.extrapolation.reference import Reference, same_rank, scale_measured
from armillary.lab.extrapolation.roles import Evidence
from armillary.lab.extrapolation.scaling import OPERATIONS, SIZE, Scaling
from armillary.lab.extrapolation.shapes import Sizes
from armillary.lab.extrapolation.tensor_axis import divided_part, scale_tensor
from armillary.lab.extrapolation.token_axis import scale_tokens
from armillary.lab.extrapolation.wanted import wanted_by_axis
from armillary.platform.model import Platform
from armillary.trace import CollectiveType, Graph, NodeType, Trace
from armillary.trace.axis_sets import grid_of, routes_of

FACTORS = ("batch", "sequence", "microbatches")
"""Axes whose value is a factor."""
Rule = Callable[[Nodes], Scaling]


@dataclass
class _Work:
    """The trace that is being changed (`trace`), the original (`first`), and what was assumed on the way."""

    trace: Trace
    first: Trace
    changes: dict[str, tuple[Fraction, Fraction]] = field(default_factory=dict)
    assumptions: dict[str, int] = field(default_factory=dict)
    unclassified: Unclassified = field(default_factory=Unclassified)

    def note(self, rule: str, nodes: int = 0) -> None:
        """Add an assumption."""
        self.assumptions[rule] = self.assumptions.get(rule, 0) + nodes

    def apply(self, rule: Rule) -> None:
        """Apply a rule to all graphs."""
        grid = grid_of(self.trace)
        graphs = []
        unknown: list[tuple[Graph, NDArray[np.bool_]]] = []
        for graph in self.trace.graphs:
            scaling = rule(Nodes(graph, grid))
            unknown.append((scaling.nodes.graph, _unknown(scaling)))
            for text, mask in scaling.rules.items():
                self.note(text, int(mask.sum()))
            graphs.append(scaling.graph())
        self.count(unknown)
        self.trace = replace(self.trace, graphs=tuple(graphs))

    def count(self, unknown: Sequence[tuple[Graph, NDArray[np.bool_]]]) -> None:
        """Keep the shares of operations and bytes that no rule classifies, if they are the largest so far."""
        # A graph counts once for every rank that runs it: shares are of the work of all ranks.
        ranks = np.bincount(self.trace.rank_graph, minlength=len(unknown)).tolist()
        shares = []
        for name in (OPERATIONS, SIZE):
            work = [
                graph.ints(name).astype(float) * (graph.types == NodeType.COMP_NODE) for graph, _ in unknown
            ]
            parts = [float(each[mask].sum()) for each, (_, mask) in zip(work, unknown, strict=True)]
            total = sum(float(each.sum()) * count for each, count in zip(work, ranks, strict=True))
            shares.append(
                sum(part * count for part, count in zip(parts, ranks, strict=True)) / (total or 1.0)
            )
        # Steps of different axes do not add up: the report keeps the one that left most work without a rule.
        if sum(shares) > self.unclassified.operations + self.unclassified.bytes:
            size: Counter[str] = Counter()
            count: Counter[str] = Counter()
            for graph, mask in unknown:
                moved = graph.ints(SIZE)
                for node in np.flatnonzero(mask).tolist():
                    size[graph.name(node)] += int(moved[node])
                    count[graph.name(node)] += 1
            names = {name: count[name] for name, _ in size.most_common()}
            self.unclassified = Unclassified(shares[0], shares[1], names)


def _unknown(scaling: Scaling) -> NDArray[np.bool_]:
    """Return a mask of the nodes with work that no rule classifies, (n_nodes,)."""
    nodes = scaling.nodes
    if has_program(nodes.graph) and scaling.followed:
        return scaling.unclassified
    # 1 operation stands for none, see `Nodes.operations`.
    found = nodes.kernel & ((nodes.operations > 1) | (nodes.graph.ints(SIZE) > 0))
    for mask in scaling.rules.values():
        found &= ~mask
    return found


def extrapolate(
    trace: Trace,
    scale: Mapping[str, Fraction | int],
    *,
    axes: tuple[Evidence, ...] = (),
    references: Mapping[str, Reference] | None = None,
    sizes: Sizes | None = None,
    hardware: tuple[Platform, Platform] | None = None,
) -> Extrapolated:
    """Return the trace at another size.

    Args:
        trace: One with named axes, see `recognise`.
        scale: New size of ``dp``, ``tp``, ``pp``, ``cp``, ``ep`` (of the ranks of dp), or of all ``ranks`` (more
            replicas), and factors of ``batch`` (samples of a microbatch), ``sequence`` and ``microbatches``.
        axes: What `recognise` found, for the report.
        references: By axis, a second trace from which its laws are measured; beside it only dp may be scaled.
        sizes: Samples of a microbatch and tokens of a sample, where shapes of tensors do not show them.
        hardware: The machine on which durations were recorded, and the one that they are to be for.

    Raises:
        InputError: an axis is not there or cannot be scaled; says why.
    """
    work = _Work(trace, trace)
    wanted = wanted_by_axis(trace, scale)
    # A measured law holds at the recorded sizes of all other axes. dp is exempt: it only changes what
    # replicas share.
    for axis in references or {}:
        if axis not in wanted:
            raise InputError(
                f"a reference at {axis}: nothing is scaled along it; expected one of {list(wanted)}"
            )
        others = [other for other in wanted if other not in (axis, "dp")]
        if others and axis != "dp":
            raise InputError(
                f"a reference at {axis}: its laws are those at the sizes of the two runs, but {others[0]} is scaled, "
                "too; expected one of them, or one after the other with a reference of the new size"
            )
    replicas = 1
    recorded = all(has_program(graph) for graph in trace.graphs)
    # Fails before any work is done: a trace from which layers were left out cannot be followed again.
    check_whole(trace, wanted)
    for axis, value in wanted.items():
        reference = (references or {}).get(axis)
        # Recorded stages are cut and reordered after all other axes: laws that follow tensors need the
        # recorded order.
        if recorded and axis in ("pp", "microbatches"):
            _check_no_reference(axis, reference)
            old = Fraction(grid_of(trace).size(axis)) if axis == "pp" else Fraction(1)
            work.changes[axis] = (old, value)
        elif axis in FACTORS:
            work.changes[axis] = (Fraction(1), value)
            if value != 1:
                _scale_factor(work, axis, value, reference, sizes)
        elif axis == "dp" and lacks_replicas(trace):
            if reference:
                raise InputError(
                    "a reference at dp: the trace has no replicas, so that they are added; expected none"
                )
            work.changes[axis], replicas = (Fraction(1), value), int(value)
        else:
            work.changes[axis] = (Fraction(grid_of(trace).size(axis)), value)
            if value != grid_of(work.trace).size(axis):
                _scale_ranks(work, axis, int(value), reference)
    if recorded:  # operators of a stage are followed while they are in the order that was recorded
        _remake_recorded(work)
    if replicas > 1:  # at last: gradients are as large as other axes make them
        axes = (*axes, Evidence("dp", 1, ADDED))
        work.trace = add_replicas(work.trace, replicas, work.note)
    if hardware:
        work.trace = to_hardware(work.trace, *hardware, work.note)
    found = tuple(Assumption(rule, nodes) for rule, nodes in work.assumptions.items())
    return Extrapolated(work.trace, axes, work.changes, found, trace, work.unclassified)


def _scale_factor(
    work: _Work, axis: str, value: Fraction, reference: Reference | None, sizes: Sizes | None
) -> None:
    if axis == "microbatches":
        _check_no_reference(axis, reference)
        _remake(work, times=value)
    elif reference:
        _apply_measured(work, axis, value, reference)
    elif axis == "batch":
        work.apply(lambda nodes: _tokens(nodes, "batch", value, sizes))
    else:
        work.apply(lambda nodes: _tokens(nodes, "sequence", value, sizes))


def _remake(
    work: _Work, *, stages: int | None = None, times: Fraction = Fraction(1), replicas: int = 1
) -> None:
    from armillary.lab.extrapolation.pipeline.remake import remake

    work.trace = remake(work.trace, stages, times, work.note, replicas=replicas)


def _check_no_reference(axis: str, reference: Reference | None) -> None:
    if reference:
        what = "the schedule is" if axis == "microbatches" else "stages are"
        raise InputError(f"a reference at {axis}: {what} remade from what it is made of; expected none")


def _remake_recorded(work: _Work) -> None:
    """Apply the requested numbers of stages and of microbatches to a recorded pipeline."""
    before, stages = work.changes.get("pp", (Fraction(0), Fraction(0)))
    _, times = work.changes.get("microbatches", (Fraction(1), Fraction(1)))
    if stages != before or times != 1:
        new = int(stages) if stages != before else None
        work.trace = remake_recorded(work.trace, new, times, work.note, work.count)


def _scale_ranks(work: _Work, axis: str, size: int, reference: Reference | None) -> None:
    grid = grid_of(work.trace)
    old = grid.size(axis)
    if axis == "pp":
        _check_no_reference(axis, reference)
        _remake(work, stages=size)
        return
    if (
        axis == "dp"
        and not reference
        and set(grid.axes["dp"]) <= set(grid.axes.get("ep", ()))
        and size % old == 0
    ):
        # What reduces gradients of experts is not in the trace.
        _remake(work, replicas=size // old)
        return
    # `mesh_dims` is the new size of the one mesh dimension that grows; others of the axis stay.
    mesh_dim, mesh_dims = mesh_dim_to_scale(grid, axis, size)
    factor = Fraction(mesh_dims, grid.sizes[mesh_dim])
    sizes = (*grid.sizes[:mesh_dim], mesh_dims, *grid.sizes[mesh_dim + 1 :])
    # A longer ring may take ranks from the replicas of experts, so more than one mesh dimension changes.
    if axis == "cp":
        sizes = experts_apart(grid, mesh_dim, mesh_dims).sizes
    else:
        _check_members(work.trace, mesh_dim, axis)
    if reference:
        _apply_measured(work, axis, factor, reference)
    elif axis == "dp":
        work.apply(lambda nodes: _data(nodes, mesh_dim, factor))
    elif axis == "cp":
        work.apply(lambda nodes: scale_context(nodes, mesh_dim, size))
    elif axis == "ep":
        work.apply(lambda nodes: scale_experts(nodes, mesh_dim, factor))
    elif all(has_program(graph) for graph in work.trace.graphs):
        work.apply(lambda nodes: scale_recorded_tensor(nodes, old, size))
    else:
        # Over all graphs: stages differ in how much of their weights is divided, but the update of each is
        # scaled alike.
        parts = divided_part([Nodes(graph, grid) for graph in work.trace.graphs])
        work.apply(lambda nodes: scale_tensor(nodes, old, size, parts))
    if different_along(work.trace, mesh_dim):
        work.note(f"{axis}: the rank at place c does what the one at c modulo {grid.sizes[mesh_dim]} did")
    else:
        work.note(f"{axis}: all ranks along it do the same")
    # Only now: the rules above read sizes of groups from the old grid.
    work.trace = with_sizes(work.trace, sizes)
    if axis == "ep" and reference:
        # A second run has as many replicas of all other layers: those of experts have become fewer.
        work.trace = with_size(work.trace, *mesh_dim_to_scale(grid_of(work.trace), "dp", grid.size("dp")))
    work.trace = without_alone(work.trace)


def _tokens(
    nodes: Nodes, axis: Literal["batch", "sequence"], factor: Fraction, sizes: Sizes | None
) -> Scaling:
    if has_program(nodes.graph):
        return scale_recorded_tokens(nodes, axis, factor, sizes)
    return scale_tokens(nodes, axis, factor, sizes)


def _data(nodes: Nodes, mesh_dim: int, factor: Fraction) -> Scaling:
    law = scale_recorded_data if has_program(nodes.graph) else scale_data
    return law(nodes, mesh_dim, factor)


def _apply_measured(work: _Work, axis: str, factor: Fraction, reference: Reference) -> None:
    ours, theirs = grid_of(work.first), grid_of(reference.trace)
    # More ep at constant ranks means fewer replicas of experts; with another dp two laws would be mixed.
    if axis == "ep" and ours.size("dp") != (theirs.size("dp") if "dp" in theirs.axes else 1):
        raise InputError(
            f"a reference at ep: {reference.name} has {theirs.n_ranks} ranks; expected {ours.n_ranks}, as the trace, "
            "of which others share the experts"
        )
    # Measured factors are per node of the recorded graph, so both must still have the same nodes.
    if len(work.first.graphs) != len(work.trace.graphs) or any(
        a.n_nodes != b.n_nodes for a, b in zip(work.first.graphs, work.trace.graphs, strict=True)
    ):
        raise InputError(
            f"a reference at {axis}: its nodes are not those of the remade stages; expected pp and microbatches to be "
            "scaled before, on their own"
        )
    # Rules get a graph only; its partner in the reference is found by identity.
    others = {}
    for at in range(len(work.trace.graphs)):
        rank = int(np.argmax(work.trace.rank_graph == at))
        same = reference.trace.graph(same_rank(work.trace, rank, reference.trace))
        others[id(work.trace.graphs[at])] = (work.first.graphs[at], same)

    def rule(nodes: Nodes) -> Scaling:
        return scale_measured(nodes, *others[id(nodes.graph)], reference, axis, factor)

    work.apply(rule)


def _check_members(trace: Trace, mesh_dim: int, axis: str) -> None:
    """Refuse an axis along which messages or all-to-alls go, whose number or parts depend on its size.

    Raises:
        InputError: names the graph, and how many nodes there are.
    """
    grid = grid_of(trace)
    for graph in trace.graphs:
        nodes = Nodes(graph, grid)
        along = np.zeros(graph.n_nodes, np.bool_)
        of_node, routes = routes_of(graph, grid)
        # A route without an axis names peers by number, which may lie along any mesh dimension.
        for number, route in enumerate(routes):
            if route.axis is None or mesh_dim in grid.mesh_dims_of(route.axis):
                along |= of_node == number
        exchanges = nodes.over_mesh_dim(mesh_dim) & (nodes.collective == CollectiveType.ALL_TO_ALL)
        for which, what in ((along, "messages"), (exchanges, "all-to-alls")):
            if which.any() and not (axis == "ep" and which is exchanges):
                raise InputError(
                    f"scale {axis}: {graph.source} has {int(which.sum())} {what} along it, whose number or parts "
                    "depend on how many ranks it has; expected an axis without"
                )
