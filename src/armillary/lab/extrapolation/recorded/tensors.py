"""The tensors of a recorded graph: which operators read and write them, and which of their dimensions are the same.

Operators name what they read and write by numbers of tensors and of storages, with shapes. These numbers are addresses
and are reused with the memory, so a tensor is identified by both, from the operator that made it on, until another
operator allocates its storage. Operators are processed in the order in which they ran; the results of one are known
when the last operator that it called has finished.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.convert.pytorch.op_schema import parse_schema
from armillary.lab.extrapolation.recorded.calls import (
    Argument,
    Call,
    Record,
    Tensor,
    call_of,
    flat,
    flat_records,
    records_of,
)
from armillary.lab.extrapolation.recorded.dim_rules import RULES
from armillary.lab.extrapolation.recorded.dimensions import Dim, regroup, same
from armillary.lab.extrapolation.recorded.operator_dims import apply_rule
from armillary.trace import Graph

SUBCLASS = "PythonSubclass"
"""Recorded around the local work of a DTensor: operators that contain one name global shapes, not the rank's."""


BUFFERS = re.compile(r"c10d::|fsdp::(all_gather_copy_in|split_with_sizes_copy|chunk_cat)$")
"""Operators on flat buffers that hold many tensors, or the parts of all members of a group."""


@dataclass
class Program:
    """What a graph's operators do to tensors.

    Attributes:
        calls: By node.
        roots: Tensors that were there before the graph began, or that nothing seen made.
        gathers: A rank's share of a weight, and the weight that is gathered from all shares (FSDP2).
        above: Node of the operator that called each, -1: none, (n_nodes,).
        buffered: Node of the operator on buffers that each is or is called by, -1: none, (n_nodes,).
    """

    calls: dict[int, Call]
    roots: list[Tensor]
    gathers: list[tuple[Tensor, Tensor]]
    above: NDArray[np.int64]
    buffered: NDArray[np.int64]


def has_program(graph: Graph) -> bool:
    """Say whether a graph is one of PyTorch's operators, with schemas and tensors."""
    return (
        "op_schema" in graph.attr_names and bool(graph.has("op_schema").any()) and graph.columns.io.size > 0
    )


def program_of(graph: Graph) -> Program:
    """Return the calls of a graph, their tensors' dimensions made the same where operators say so."""
    n = graph.n_nodes
    above = callers(graph)
    # The last node inside of each call, direct or not: backwards, since callees come after their callers.
    last = np.arange(n)
    names = graph.names()
    whole = np.zeros(n, np.bool_)
    for node in range(n - 1, -1, -1):
        parent = int(above[node])
        if parent >= 0:
            last[parent] = max(last[parent], last[node])
            whole[parent] |= whole[node] or names[node] == SUBCLASS
    buffered = np.full(n, -1, np.int64)
    ends: dict[int, list[int]] = {}
    for node in range(n):
        ends.setdefault(int(last[node]), []).append(node)
    codes, schemas = graph.strings("op_schema")
    memory = _Memory()
    calls: dict[int, Call] = {}
    for node in range(n):
        schema = parse_schema(schemas[codes[node]]) if codes[node] >= 0 else None
        # What a buffer operator calls is part of it: the shapes inside are those of the buffer.
        outer = int(buffered[above[node]]) if above[node] >= 0 else -1
        buffered[node] = outer if outer >= 0 else node if schema and BUFFERS.match(names[node]) else -1
        if schema is not None and not whole[node] and outer < 0:
            call = call_of(graph, node, names[node], schema, schemas[codes[node]])
            if call is not None:
                call.inputs = memory.start(call)
                call.inside = last[node] > node
                calls[node] = call
        # Innermost first: the result of an operator is usually made by the last one that it called.
        for done in reversed(ends.get(node, ())):
            if done in calls:
                memory.write(calls[done])
    return Program(calls, memory.roots, memory.gathers, above, buffered)


def callers(graph: Graph) -> NDArray[np.int64]:
    """Return for every node the one that called it, -1: none, (n_nodes,)."""
    at = {int(ident): node for node, ident in enumerate(graph.ids.tolist())}
    ptr, deps = graph.ctrl_ptr.tolist(), graph.ctrl_deps.tolist()
    found = np.full(graph.n_nodes, -1, np.int64)
    for node in range(graph.n_nodes):
        for dep in deps[ptr[node] : ptr[node + 1]]:
            if at.get(dep, node) < node:
                found[node] = at[dep]
                break
    return found


class _Memory:
    """Which tensors there are at a time."""

    def __init__(self) -> None:
        self.roots: list[Tensor] = []
        self.gathers: list[tuple[Tensor, Tensor]] = []
        self._sharded: dict[int, list[Tensor]] = {}
        self._weights: dict[int, tuple[Tensor, int, dict[tuple[int, ...], Tensor]]] = {}
        self._coming: dict[Record, list[int]] = {}
        self._tensors: dict[int, Tensor] = {}
        self._storages: dict[int, list[Tensor]] = {}
        self._memories: dict[int, int] = {}
        self._counted = 0

    def start(self, call: Call) -> list[Argument]:
        """Return the inputs of a call; what it is to make is not what was in its memory before."""
        # A result is announced before the operators inside run: one that reads the same address meanwhile
        # reads the new tensor.
        given = records_of(call.given)
        # In-place results are inputs, too, and are not new.
        old = set(flat_records(given))
        for record in flat_records(records_of(call.made)):
            if record not in old:
                self._coming.setdefault(record, []).append(call.node)
        return [self._read(each) for each in given]

    def _read(self, record: Any) -> Argument:
        """Return the tensors that an argument names; new ones where nothing made them."""
        if isinstance(record, list):
            return [self._read(each) for each in record]
        if record is None:
            return None
        number, storage, _, shape, *_ = record
        if self._is_fresh(record):
            self._allocate(storage)
        found = self._live(record)
        # The latest open call that will make this tensor.
        since = max(self._coming.get(record, [-1]))
        # A stale tensor at the same address, with the same shape.
        if found is not None and found.at < since:
            found = None
            if not any(each.at > since for each in self._storages.get(storage, ())):
                self._allocate(storage)
        if found is None:
            # Inside of that call, so that its end finds the tensor as made by an operator inside.
            at = since + 1 if since >= 0 else -1
            found = self._tensor(record, at)
            # FSDP2 frees and gathers the same weight again and again: all of its reads are one tensor.
            if since < 0 and self._is_weight(storage, prod(shape)):
                shard, _, known = self._weights[storage]
                if shape not in known:
                    known[shape] = found
                    self.gathers.append((shard, found))
                    self.roots.append(found)
                found = known[shape]
            elif since < 0 and not self._alias(found, -1):
                self.roots.append(found)
            self._keep(number, found)
        return found

    def write(self, call: Call) -> None:
        """Make the results of a call, and apply its rule."""
        # Inputs count as taken, so that an in-place result is recognised as its input.
        taken = {id(each) for argument in call.inputs for each in flat(argument)}
        buffers = BUFFERS.match(call.name) is not None
        new, made = call.schema.new_results, records_of(call.made)
        call.outputs = [
            self._made(record, call, not buffers and (at >= len(new) or new[at]), taken)
            for at, record in enumerate(made)
        ]
        for record in flat_records(made):
            if call.node in self._coming.get(record, ()):
                self._coming[record].remove(call.node)
                if not self._coming[record]:
                    del self._coming[record]
        # Rules need inputs and results, so they run here and not when the call begins.
        call.known = apply_rule(call)
        for at, argument in enumerate((*call.inputs, *call.outputs)):
            written = at >= len(call.inputs) or (
                at < len(call.schema.arguments) and call.schema.arguments[at].written
            )
            for each in flat(argument) if written else ():
                each.writers.append(call)
        self._gathered(call)

    def _gathered(self, call: Call) -> None:
        """Keep which weights are gathered from which shares: FSDP2 copies them into and out of one buffer."""
        if call.name == "fsdp::all_gather_copy_in":
            whole = call.tensor("all_gather_output", 1)
            if whole is not None:
                self._sharded[whole.storage[0]] = list(flat(call.argument("all_gather_inputs", 0)))
        elif call.name == "fsdp::split_with_sizes_copy":
            whole, made = call.tensor("all_gather_output", 0), list(flat(call.argument("out", 3)))
            shards = self._sharded.get(whole.storage[0], []) if whole is not None else []
            for shard, weight in zip(shards, made, strict=False):
                old = self._weights.get(weight.storage[0])
                known = old[2] if old and old[0] is shard else {}
                self._allocate(weight.storage[0])
                self._weights[weight.storage[0]] = shard, prod(weight.shape), known
        elif call.name == "c10d::_allgather_base_":
            whole = call.tensor("output_tensor", 0)
            if whole is not None:  # what is in it now is of all members
                self._allocate(whole.storage[0], whole.memory)

    def _allocate(self, storage: int, memory: int = -1) -> None:
        """Forget what was in a storage."""
        self._storages[storage] = []
        self._weights.pop(storage, None)
        self._memories[storage] = memory if memory >= 0 else self._count()

    def _made(self, record: Any, call: Call, new: bool, taken: set[int]) -> Argument:
        if isinstance(record, list):
            return [self._made(each, call, new, taken) for each in record]
        if record is None:
            return None
        number, storage, *_ = record
        live = self._live(record, exact=True)
        if live is not None and (id(live) in taken or live.at > call.node):
            return live  # updated in place, or made by an operator inside
        # An operator inside has allocated the storage already: the result is a view of what it made.
        inside = any(each.at > call.node for each in self._storages.get(storage, ()))
        # The schema says that the result shares memory with no input, so what was at this address is gone.
        if new and not inside:
            self._allocate(storage)
        found = self._tensor(record, call.node)
        if inside:
            self._alias(found, call.node)
        elif not new and call.name not in RULES:
            self._alias(found, -1)
        self._keep(number, found)
        return found

    def _is_fresh(self, record: Record) -> bool:
        """Say whether a tensor that no operator made is in memory that was freed and allocated again.

        PyTorch turns a number, such as the factor of ``mul``, into a tensor of 8 bytes without an operator. Without one
        no live memory changes the width of its elements, nor is one element taken from it.
        """
        _, storage, offset, shape, _, width = record
        own = self._storages.get(storage)
        if not own or record in self._coming:
            return False
        return all(each.width != width for each in own) or (
            shape == () and not offset and all(each.shape != () for each in own)
        )

    def _is_weight(self, storage: int, elements: int) -> bool:
        """Say whether a storage holds what was gathered, without what it was padded with."""
        if storage not in self._weights:
            return False
        shard, whole, _ = self._weights[storage]
        # FSDP2 pads a weight to a multiple of the members: less than one share is padding.
        return whole - prod(shard.shape) < elements <= whole

    def _tensor(self, record: Record, at: int) -> Tensor:
        _, storage, offset, shape, integer, width = record
        memory = self._memories.setdefault(storage, self._count())
        return Tensor(tuple(Dim(size) for size in shape), (storage, offset), memory, at, [], integer, width)

    def _count(self) -> int:
        self._counted += 1
        return self._counted

    def _keep(self, number: int, tensor: Tensor) -> None:
        self._tensors[number] = tensor
        self._storages.setdefault(tensor.storage[0], []).append(tensor)

    def _live(self, record: Record, *, exact: bool = False) -> Tensor | None:
        number, storage, offset, shape, *_ = record
        own = self._storages.get(storage, [])
        found = self._tensors.get(number)
        if found is not None and found.storage == (storage, offset) and found.shape == shape and found in own:
            return found
        if exact:
            return None
        # Autograd keeps results as other tensors of the same memory.
        return next(
            (each for each in reversed(own) if each.storage[1] == offset and each.shape == shape), None
        )

    def _alias(self, tensor: Tensor, since: int) -> bool:
        """Make dimensions the same as those of another tensor with all of the same memory, in another form."""
        # Latest first: it is the most likely source of a view.
        for other in reversed(self._storages.get(tensor.storage[0], ())):
            if other.at <= since and since >= 0:
                continue
            if other.storage != tensor.storage or prod(other.shape) != prod(tensor.shape):
                continue
            if other.shape != tensor.shape and sorted(other.shape) == sorted(tensor.shape):
                # A permutation, which sizes determine only if no two are equal.
                if len(set(other.shape)) == len(other.shape):
                    for dim in tensor.dims:
                        same(dim, other.dims[other.shape.index(dim.size)])
                    return True
            elif regroup(other.dims, tensor.dims, merging=True):
                return True
        return False
