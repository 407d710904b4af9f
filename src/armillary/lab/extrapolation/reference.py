"""Measured laws: how each node's quantities differ between two traces of different size."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from armillary.base.errors import InputError
from armillary.lab.extrapolation.kernels import Nodes
from armillary.lab.extrapolation.recorded.tensors import has_program
from armillary.lab.extrapolation.scaling import QUANTITIES, Floats, Scaling
from armillary.trace import Graph, NodeType, Trace
from armillary.trace.axis_sets import grid_of
from armillary.trace.gemm import Gemm
from armillary.trace.graph import duration_ns
from armillary.trace.grid import Ints


@dataclass(frozen=True)
class Reference:
    """A second trace.

    Attributes:
        trace: With its axes named.
        ratio: Its size along the axis over that of the first.
        name: For messages.
    """

    trace: Trace
    ratio: Fraction
    name: str


def measured(before: Floats, after: Floats, ratio: float, factor: float) -> Floats:
    """Return by which factor quantities grow at `factor`, given that they went from `before` to `after` at `ratio`.

    A quantity is a sum of two neighbouring powers of the size: of -2 and -1, … or 1 and 2, whichever two its slope
    between the two sizes lies between. Beyond these it is one power.
    """
    grows = (before > 0) & (after > 0) & (before != after)
    safe = np.where(grows, before, 1.0), np.where(grows, after, 1.0)
    # Exponent of the single power law through both points.
    slope = np.log(safe[1] / safe[0]) / np.log(ratio)
    # 1e-9 keeps an exact integer slope from falling to the power below.
    low = np.clip(np.floor(slope + 1e-9), -2, 1)
    r, f = ratio, factor
    # value(r) / value(1) = a r^low + (1 - a) r^(low + 1)
    quotient = safe[1] / safe[0]
    share = (quotient - r ** (low + 1)) / (r**low - r ** (low + 1))
    two = share * f**low + (1 - share) * f ** (low + 1)
    # Outside of [-2, 2] no pair of neighbouring powers is assumed.
    one = f**slope
    inside = (slope >= -2 - 1e-9) & (slope <= 2 + 1e-9)
    found: Floats = np.where(grows, np.where(inside, two, one), 1.0)
    return found


def scale_measured(
    nodes: Nodes, measured_as: Graph, other: Graph, reference: Reference, axis: str, factor: Fraction
) -> Scaling:
    """Return what changes in a rank at `factor`, by the laws that the graph of the same rank in a reference shows.

    Args:
        nodes: Of the rank, maybe at another size along other axes already.
        measured_as: Its graph as it was recorded.
        other: That of the reference.
        reference: What else there is to know of it.
        axis: For messages.
        factor: How much the axis grows.

    Raises:
        InputError: the two graphs do not have the same nodes.
    """
    graph = measured_as
    recorded = has_program(graph) and has_program(other)
    if recorded:
        paired = _paired(graph, other, reference, axis)
    elif graph.n_nodes != other.n_nodes or (graph.types != other.types).any():
        same = min(graph.n_nodes, other.n_nodes)
        differ = graph.types[:same] != other.types[:same]
        where = f", different from {graph.node(int(np.argmax(differ)))} on" if differ.any() else ""
        raise InputError(
            f"{reference.name}: {other.n_nodes} nodes where the trace has {graph.n_nodes}{where}; expected a run that "
            f"differs in {axis} only, for a law to be measured"
        )
    else:
        # Generated traces of the same plan have the same nodes in the same order.
        paired = np.arange(graph.n_nodes)
    same_nodes = paired >= 0
    made = Scaling(nodes)
    r, f = float(reference.ratio), float(factor)
    changed = np.zeros(graph.n_nodes, np.bool_)
    for name in QUANTITIES:
        if name in graph.attr_names and name in other.attr_names:
            old = graph.ints(name).astype(float)
            # An index of -1 reads the last node of the reference, which the mask discards.
            new = np.where(same_nodes, other.ints(name)[paired].astype(float), old)
            made.factors[name] = measured(old, new, r, f)
            changed |= old != new
    before, after = duration_ns(graph).astype(float), duration_ns(other)[paired].astype(float)
    # What operators took in two recordings differs by more than what they do: theirs follow operations and bytes.
    timed = (before > 0) & (after > 0) & (not recorded)
    made.duration = np.where(timed, measured(before, after, r, f), np.nan)
    ours, theirs = Nodes(graph, nodes.grid).gemms, Nodes(other, nodes.grid).gemms
    for node, gemms in enumerate(nodes.gemms):
        second_run = theirs[paired[node]] if same_nodes[node] else ours[node]
        if gemms and len(ours[node]) == len(second_run) and ours[node] != second_run:
            grown = []
            for now, gemm, second in zip(gemms, ours[node], second_run, strict=True):
                pair = np.array(gemm, float), np.array(second, float)
                grown.append(
                    Gemm(*np.ceil(np.array(now, float) * measured(*pair, r, f) - 1e-6).astype(int).tolist())
                )
            made.gemms[node] = tuple(grown)
    made.followed = recorded
    works = (graph.ints("num_ops") > 0) | (graph.ints("tensor_size") > 0)
    made.unclassified = works & ~same_nodes
    made.note(f"{axis}: laws measured against {reference.name}", changed)
    made.note(f"{axis}: the same in {reference.name}, so it stays", ~changed & same_nodes)
    return made


def _paired(graph: Graph, other: Graph, reference: Reference, axis: str) -> Ints:
    """Return for what works or communicates in a recording the node that is the same in another, (n_nodes,); -1: none.

    Nodes are the same in the order of their names or kinds. What a host does besides differs from recording to
    recording, and so do copies and fills: where they are not as many, none is paired.

    Raises:
        InputError: the two do not do the same.
    """
    index: tuple[dict[tuple[object, ...], list[int]], ...] = ({}, {})
    for each, found in zip((graph, other), index, strict=True):
        names, kinds, what = each.names(), each.types.tolist(), each.ints("comm_type", -1).tolist()
        works = ((each.ints("num_ops") > 0) | (each.ints("tensor_size") > 0)).tolist()
        for node, kind in enumerate(kinds):
            if kind != NodeType.COMP_NODE:
                found.setdefault((kind, what[node]), []).append(node)
            elif works[node]:
                found.setdefault((names[node],), []).append(node)
    pair = np.full(graph.n_nodes, -1, np.int64)
    for key in dict.fromkeys((*index[0], *index[1])):
        ours, theirs = (each.get(key, []) for each in index)
        if len(ours) != len(theirs) and not any(
            (each.ints("num_ops")[found] > 1).any() or (each.types[found] != NodeType.COMP_NODE).any()
            for each, found in ((graph, ours), (other, theirs))
        ):
            continue
        if len(ours) != len(theirs):
            at = graph.node(ours[0]) if ours else other.node(theirs[0])
            raise InputError(
                f"{reference.name}: {len(theirs)} nodes such as {at} where the trace has {len(ours)}; expected a run "
                f"that differs in {axis} only, for a law to be measured"
            )
        pair[ours] = theirs
    return pair


def same_rank(trace: Trace, rank: int, reference: Trace) -> int:
    """Return the rank of a reference at the same place; at its end where it has fewer."""
    ours, theirs = grid_of(trace), grid_of(reference)
    # The rank in the reference: its coordinates on each axis are ours, at most its last ones.
    found = 0
    place: dict[int, int] = {}
    for axis, mesh_dims in theirs.axes.items():
        if axis in ours.axes and mesh_dims:
            coordinate = min(int(ours.coordinate(axis)[rank]), theirs.size(axis) - 1)
            for mesh_dim in mesh_dims:
                place[mesh_dim] = coordinate % theirs.sizes[mesh_dim]
                coordinate //= theirs.sizes[mesh_dim]
    stride = 1
    for mesh_dim, size in enumerate(theirs.sizes):
        found += place.get(mesh_dim, 0) * stride
        stride *= size
    return found
