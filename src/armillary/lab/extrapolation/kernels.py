"""Classifies the nodes of a graph for the laws of scaling."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from armillary.trace import CollectiveType, Graph, NodeType
from armillary.trace.attention import ATTENTION
from armillary.trace.gemm import GEMM, Gemm, to_gemms
from armillary.trace.grid import AXIS, Ints, RankGrid
from armillary.trace.structure import issue_order
from armillary.workload.emit.replicas import PARTIAL

Mask = NDArray[np.bool_]
FUSED = re.compile(r"attention|attend|sdpa|fmha", re.IGNORECASE)
SMALL = 64
"""Bytes up to which a collective is taken for one of a few scalars, such as the norm of all gradients."""
UPDATE = re.compile(r"optim|adam|\bsgd|lamb|gradient norm|clip_grad|_foreach_|unscale", re.IGNORECASE)
WEIGHTS = re.compile(r"weight|param|optim", re.IGNORECASE)
OPERAND = {"fp8": 1, "fp32": 4, "fp64": 8}
"""Bytes of an operand by the precision of a GEMM; others 2."""


@dataclass(frozen=True, eq=False)
class Nodes:
    """The nodes of one class of ranks.

    Attributes:
        graph: By rules.
        grid: Whose axes they name.
    """

    graph: Graph
    grid: RankGrid

    @cached_property
    def kernel(self) -> Mask:
        """Compute nodes."""
        found: Mask = self.graph.types == NodeType.COMP_NODE
        return found

    @cached_property
    def operations(self) -> Ints:
        """Operations of GEMMs; 1 stands for none."""
        return np.where(self.kernel, self.graph.ints("num_ops"), 0)

    @cached_property
    def gemms(self) -> list[tuple[Gemm, ...]]:
        """GEMMs of every node; () where it has none."""
        codes, lists = self.graph.int_lists(GEMM)
        made = [to_gemms(each) for each in lists]
        return [made[code] if code >= 0 else () for code in codes.tolist()]

    @cached_property
    def multiplies(self) -> Mask:
        """Kernels that are dense: they have GEMM shapes, or more operations per byte than vector operations."""
        # Vector kernels do at most a few operations per byte that they move, also when several are fused.
        dense = self.operations > 4 * np.maximum(self.graph.ints("tensor_size"), 1)
        return self.kernel & (self.graph.has(GEMM) | dense)

    @cached_property
    def operand(self) -> Ints:
        """Bytes of an operand of every GEMM."""
        codes, names = self.graph.strings("precision")
        sizes = np.array([*(OPERAND.get(name, 2) for name in names), 2], np.int64)
        found: Ints = sizes[codes]
        return found

    @cached_property
    def collective(self) -> Ints:
        """`CollectiveType`, -1: no collective."""
        none = self.graph.types != NodeType.COMM_COLL_NODE
        return np.where(none, -1, self.graph.ints("comm_type", -1))

    @cached_property
    def large(self) -> Mask:
        """Collectives of more than a few numbers."""
        return (self.collective >= 0) & (self.graph.ints("comm_size") > SMALL)

    @cached_property
    def message(self) -> Mask:
        """Sends and receives."""
        kinds = self.graph.types
        found: Mask = (kinds == NodeType.COMM_SEND_NODE) | (kinds == NodeType.COMM_RECV_NODE)
        return found

    @cached_property
    def memory(self) -> Mask:
        """Loads and stores."""
        kinds = self.graph.types
        found: Mask = (kinds == NodeType.MEM_LOAD_NODE) | (kinds == NodeType.MEM_STORE_NODE)
        return found

    def over(self, axis: str, *, only: bool = False) -> Mask:
        """Return a mask of collectives whose groups span an axis, or with `only`, span nothing else."""
        mesh_dims = set(self.grid.axes.get(axis, ()))
        codes, names = self.graph.strings("pg_name")
        found = []
        for name in names:
            # A collective without a group is of all ranks, and so of all mesh dimensions.
            own = set(self.grid.mesh_dims(name) if name else range(len(self.grid.sizes)))
            found.append(bool(own & mesh_dims) and (not only or own <= mesh_dims))
        world = set(range(len(self.grid.sizes)))
        found.append(bool(world & mesh_dims) and (not only or world <= mesh_dims))
        mask: Mask = np.array(found, np.bool_)[codes] & (self.collective >= 0)
        return mask

    def over_mesh_dim(self, mesh_dim: int) -> Mask:
        """Return a mask of collectives whose groups span a mesh dimension, even one of size 1."""
        codes, names = self.graph.strings("pg_name")
        # By names of axes: `grid.mesh_dims` leaves out mesh dimensions of size 1, which may be about to grow.
        along = [self.grid.axes_in(name) for name in names]
        inside = [
            not name or any(mesh_dim in self.grid.axes[axis] for axis in own)
            for name, own in zip(names, along, strict=True)
        ]
        found: Mask = np.array([*inside, True], np.bool_)[codes] & (self.collective >= 0)
        return found

    def ends(self) -> Mask:
        """Return a mask of collectives between the two ends of the pipeline."""
        codes, names = self.graph.strings("pg_name")
        subset = np.array([*(name in self.grid.subsets for name in names), False], np.bool_)
        found: Mask = subset[codes] & (self.collective >= 0)
        return found

    def along(self, axis: str) -> Mask:
        """Return a mask of messages along an axis."""
        codes, names = self.graph.strings(AXIS)
        mesh_dims = set(self.grid.axes.get(axis, ()))
        inside = [bool(mesh_dims) and set(self.grid.mesh_dims_of(name)) <= mesh_dims for name in names]
        found: Mask = np.array([*inside, False], np.bool_)[codes] & self.message
        return found

    @cached_property
    def gradients(self) -> Mask:
        """Collectives of weights and gradients: those of the replicas, and of the ends of the pipeline.

        Ranks of cp are replicas, too: all of their collectives count, except those of keys and values for attention.
        """
        return self.reductions | self.ends() & ~self._exchange | self.partial

    @cached_property
    def reductions(self) -> Mask:
        """The subset of `gradients` that is between replicas."""
        around = self.over("cp", only=True) & self.large & ~self.attended
        return (self.over("dp") & self.large | around) & ~self._exchange & ~self.ends()

    @cached_property
    def partial(self) -> Mask:
        """Sums over tp of gradients of weights that every rank of tp holds.

        With sequence parallelism they are the all-reduces over tp next to reductions of replicas: one waits for the
        other. Without replicas they wait for GEMMs of gradients of weights, and no GEMM follows. Without sequence
        parallelism (norms of heads) both must hold: they follow a reduction and precede no GEMM.
        """
        own = self.over("tp", only=True)
        reduces = own & (self.collective == CollectiveType.ALL_REDUCE)
        codes, distinct = self.graph.name_codes()
        # Generated traces name these sums; only recorded ones need the structural test below.
        by_name = np.array([name == PARTIAL for name in distinct], np.bool_)[codes]
        found: Mask = reduces & by_name
        at = np.flatnonzero(reduces & ~by_name & self.large)
        if not len(at):
            return found
        # With sequence parallelism activations are gathered and scattered, so an all-reduce over tp is rarely
        # one of activations.
        sequence = bool((own & (self.collective == CollectiveType.REDUCE_SCATTER)).any())
        sums = (self.reductions | self.ends()) & np.isin(
            self.collective, (CollectiveType.ALL_REDUCE, CollectiveType.REDUCE_SCATTER)
        )
        size, operand = self.graph.ints("tensor_size"), self.operand
        ptr, parents = self.graph.parents()
        waited, leads = _waited(self.graph, sums), _before(self.graph, self.multiplies)
        for node in at.tolist():
            before = parents[ptr[node] : ptr[node + 1]].tolist()
            weights = any(
                accumulates(each, int(size[parent]), int(operand[parent]))
                for parent in before
                for each in self.gemms[parent]
            )
            after = bool(sums[before].any())
            if sequence:
                found[node] = waited[node] or after or (weights and not leads[node])
            else:
                found[node] = after and not leads[node]
        return found

    @cached_property
    def attended(self) -> Mask:
        """Gathers that attention waits for, and scatters that wait for it."""
        graph = self.graph
        codes, distinct = graph.name_codes()
        by_name = np.array([bool(FUSED.search(name)) for name in distinct], np.bool_)[codes]
        ptr, parents = graph.parents()
        found = np.zeros(graph.n_nodes, np.bool_)
        # A name alone is not enough: "attention" also stands in names of dropout or copies, which do not
        # multiply.
        fused = self.kernel & (graph.has(ATTENTION) | (by_name & self.multiplies))
        for node in np.flatnonzero(fused).tolist():
            own = parents[ptr[node] : ptr[node + 1]]
            found[own] |= self.collective[own] == CollectiveType.ALL_GATHER
        for node in np.flatnonzero(self.collective == CollectiveType.REDUCE_SCATTER).tolist():
            found[node] = fused[parents[ptr[node] : ptr[node + 1]]].any()
        return found

    @cached_property
    def _exchange(self) -> Mask:
        found: Mask = self.collective == CollectiveType.ALL_TO_ALL
        return found

    @cached_property
    def update(self) -> Mask:
        """What updates weights: by name, or if no name says so what waits for the last reduction of a gradient."""
        codes, distinct = self.graph.name_codes()
        by_name = np.array([bool(UPDATE.search(name)) for name in distinct], np.bool_)[codes]
        # An optimizer has no GEMMs; a name such as "adam" on one is a layer of the model.
        local = (self.kernel | self.memory) & ~self.multiplies
        if (by_name & local).any():
            return _with_children(self.graph, by_name & local) & local
        reduces = self.gradients & np.isin(
            self.collective, (CollectiveType.ALL_REDUCE, CollectiveType.REDUCE_SCATTER)
        )
        order = issue_order(self.graph)
        at = np.flatnonzero(reduces[order])
        found = np.zeros(self.graph.n_nodes, np.bool_)
        if not len(at):
            return found
        ptr, parents = self.graph.parents()
        # No name tells: the update is what depends, directly or not, on the last reduction of a gradient.
        reached = {int(order[at[-1]])}
        for node in order[at[-1] + 1 :].tolist():
            if not reached.isdisjoint(parents[ptr[node] : ptr[node + 1]].tolist()):
                reached.add(node)
                found[node] = local[node]
        return found


def _waited(graph: Graph, mask: Mask) -> Mask:
    """Return a mask of the direct predecessors of the nodes of a mask."""
    ptr, parents = graph.parents()
    found = np.zeros(graph.n_nodes, np.bool_)
    found[parents[np.repeat(mask, np.diff(ptr))]] = True
    return found


def _before(graph: Graph, mask: Mask) -> Mask:
    """Return a mask of all predecessors, direct or not, of the nodes of a mask."""
    ptr, parents = graph.parents()
    found = np.zeros(graph.n_nodes, np.bool_)
    # Backwards in issue order: all successors of a node are decided before it.
    for node in issue_order(graph)[::-1].tolist():
        if found[node] or mask[node]:
            found[parents[ptr[node] : ptr[node + 1]]] = True
    return found


def _with_children(graph: Graph, mask: Mask) -> Mask:
    """Return the mask with the operators that its nodes call, directly or not: a callee has a control dependency."""
    at = {int(node): i for i, node in enumerate(graph.ids.tolist())}
    found = mask.copy()
    ptr, deps = graph.ctrl_ptr.tolist(), graph.ctrl_deps.tolist()
    for node in range(graph.n_nodes):
        found[node] |= any(
            found[at[dep]] for dep in deps[ptr[node] : ptr[node + 1]] if dep in at and at[dep] < node
        )
    return found


def terms(gemm: Gemm, size: int, operand: int) -> tuple[float, float, float]:
    """Return the bytes of (left operand, right operand, result) of a GEMM that moves `size` bytes in all.

    Operands take what their shapes say, the result takes the rest: it may have another precision, and be accumulated
    into. Where the operands alone exceed the size, the largest is smaller than its shape, as images of a convolution
    are (im2col).
    """
    count = gemm.batch * gemm.calls * operand
    left, right, out = (
        gemm.m * gemm.k * count,
        gemm.k * gemm.n * count,
        gemm.m * gemm.n * count,
    )
    if left + right < size:
        return left, right, size - left - right
    if left >= out and right + out < size:
        return size - right - out, right, out
    whole = left + right + out
    return left * size / whole, right * size / whole, out * size / whole


def accumulates(gemm: Gemm, size: int, operand: int) -> bool:
    """Return whether a GEMM that moves `size` bytes accumulates in full precision, as gradients of weights do.

    Other GEMMs write a result of at most two bytes per element, or as many as an operand has.
    """
    # An fp32 sum writes 4 bytes, or moves 8 if it is read first; 3 lies between that and a bf16 result. With
    # fp32 operands a plain result has 4, too: the limit of 6 is below the 8.
    out = terms(gemm, size, operand)[2]
    return out > max(3, 1.5 * operand) * gemm.m * gemm.n * gemm.batch * gemm.calls
