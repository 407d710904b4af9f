"""Rewrites that apply to any graph: join chains of kernels, split nodes, even out sizes, reorder ids."""

from __future__ import annotations

from dataclasses import replace
from heapq import heapify, heappop, heappush

import numpy as np
from numpy.typing import NDArray

from armillary.lab.obfuscation.coarsen import WORK, Joined
from armillary.lab.obfuscation.keyed import I64
from armillary.lab.obfuscation.rows import MISSING, Rows
from armillary.trace.columns import CollectiveType, NodeType
from armillary.trace.structure import csr, topological


def join_runs(rows: Rows, draw: np.random.Generator, share: float) -> Joined:
    """Return the graph with chains of kernels joined: each link of a chain is contracted with probability `share`."""
    n = rows.n
    # A link can be contracted only where the child has no other parent and the parent no other child:
    # otherwise the joined kernel would delay, or wait for, a node that the original did not.
    children = np.bincount(rows.parent, minlength=n)
    alone = np.diff(rows.ptr) == 1
    nodes = np.flatnonzero(alone)
    before = rows.parent[rows.ptr[nodes]]
    same = children[before] == 1
    same &= (rows.types[nodes] == NodeType.COMP_NODE) & (rows.types[before] == NodeType.COMP_NODE)
    # A kernel with operations or bytes is timed by the compute model, one without by its recorded duration. A
    # sum of both kinds would lose one of the two.
    named = (rows.numbers["num_ops"] != MISSING) | (rows.numbers["tensor_size"] != MISSING)
    keys = (
        named,
        rows.numbers["is_cpu_op"],
        rows.numbers["stream"],
        rows.numbers["tid"],
        rows.words["precision"].codes,
    )
    for column in keys:
        same &= column[nodes] == column[before]
    same &= draw.random(len(nodes)) < share
    root = np.arange(n)
    follows = dict(zip(nodes[same].tolist(), before[same].tolist(), strict=True))
    # Topological order: the root of the parent is final when its child takes it, so a chain collapses onto
    # its first kernel in one pass.
    for node in topological(rows.ptr, rows.parent).tolist():
        if node in follows:
            root[node] = root[follows[node]]
    kept, new = np.unique(root, return_inverse=True)
    work = {}
    for name in WORK:
        # MISSING is the smallest int64 and must not enter a sum.
        there = rows.numbers[name] != MISSING
        total = np.zeros(len(kept), np.int64)
        np.add.at(total, new[there], rows.numbers[name][there])
        work[name] = np.where(np.bincount(new[there], minlength=len(kept)) > 0, total, MISSING)
    child, parent = new[np.repeat(np.arange(n), np.diff(rows.ptr))], new[rows.parent]
    # Links inside a chain would become a node that waits for itself; links between two chains may now occur
    # twice.
    outside = child != parent
    pairs = np.unique(np.stack([child[outside], parent[outside]]), axis=1)
    return Joined(kept, pairs[0], pairs[1], work)


def split(rows: Rows, pieces: I64) -> Rows:
    """Return rows in which node i becomes a chain of `pieces[i]` nodes (1 or more) that share its work."""
    first = np.cumsum(pieces) - pieces
    source = np.repeat(np.arange(rows.n), pieces)
    number = np.arange(len(source)) - first[source]
    inner = np.flatnonzero(number > 0)
    # The first piece of a node inherits what the node waits for; its last piece is what others wait for.
    child = np.concatenate([first[np.repeat(np.arange(rows.n), np.diff(rows.ptr))], inner])
    parent = np.concatenate([(first + pieces - 1)[rows.parent], inner - 1])
    # Edges are grouped by child again, in their old order.
    order = np.argsort(child, kind="stable")
    made = rows.take(source, child[order], parent[order])
    numbers = dict(made.numbers)
    for name in WORK:
        column, count = numbers[name], pieces[source]
        # The remainder goes to the first pieces, 1 each. A piece of a node with work has at least 1 unit: a
        # size of 0 would make it a node of another kind.
        share = np.where(number < column % count, column // count + 1, column // count)
        numbers[name] = np.where(column == MISSING, MISSING, np.maximum(share, column > 0))
    micros = np.where(
        pieces[source] > 1,
        made.micros // pieces[source] + (number < made.micros % pieces[source]),
        made.micros,
    )
    return replace(made, numbers=numbers, micros=micros)


def even_out(rows: Rows, movable: NDArray[np.bool_]) -> Rows:
    """Return rows in which similar collectives (same type, same group, sizes within a factor of 2) have one size.

    Totals stay the same up to rounding. Without this, the sizes would show which windows communicate more.
    """
    at = np.flatnonzero(movable & (rows.types == NodeType.COMM_COLL_NODE) & (rows.number("comm_size") > 0))
    size = rows.numbers["comm_size"].copy()
    # Octave of the size. Small control messages must not be averaged with gradients of megabytes: their times
    # would not add up.
    about = np.floor(np.log2(size[at])).astype(np.int64)
    table = np.stack([rows.number("comm_type")[at], rows.words["pg_name"].codes[at], about])
    _, kind = np.unique(table, axis=1, return_inverse=True)
    mean = np.bincount(kind.ravel(), size[at]) / np.maximum(np.bincount(kind.ravel()), 1)
    size[at] = np.rint(mean).astype(np.int64)[kind.ravel()]
    return replace(rows, numbers={**rows.numbers, "comm_size": size})


def unfold(rows: Rows, chosen: NDArray[np.bool_], members: I64) -> Rows:
    """Return rows in which each chosen all-reduce becomes a reduce-scatter and an all-gather, with the same traffic.

    Args:
        rows: The graph.
        chosen: Which nodes, (n,); others than all-reduces stay.
        members: Ranks of the group of each node, (n,).
    """
    chosen = chosen & (rows.number("comm_type", -1) == CollectiveType.ALL_REDUCE) & (members > 1)
    made = split(rows, np.where(chosen, 2, 1))
    # Position of the reduce-scatter in the new rows: each chosen node before it has added one.
    first = (np.arange(rows.n) + np.cumsum(chosen) - chosen)[chosen]
    numbers = dict(made.numbers)
    kind, size = numbers["comm_type"].copy(), numbers["comm_size"].copy()
    kind[first], kind[first + 1] = CollectiveType.REDUCE_SCATTER, CollectiveType.ALL_GATHER
    # By the schema, the size of a reduce-scatter is its whole input, that of an all-gather the share of one
    # rank.
    size[first] = rows.numbers["comm_size"][chosen]
    size[first + 1] = -(-size[first] // members[chosen])
    return replace(made, numbers={**numbers, "comm_type": kind, "comm_size": size})


def shuffle(rows: Rows, draw: np.random.Generator) -> Rows:
    """Return rows in a random topological order that keeps the relative order of communication."""
    # Ranks match the calls of a communicator by their order, so communication is chained for the sort only.
    communication = np.flatnonzero(rows.types != NodeType.COMP_NODE)
    owner = np.concatenate([np.repeat(np.arange(rows.n), np.diff(rows.ptr)), communication[1:]])
    before = np.concatenate([rows.parent, communication[:-1]])
    # Kahn's algorithm with random priorities in place of a queue.
    ptr, children = csr(before, owner, rows.n)
    waits = np.bincount(owner, minlength=rows.n).tolist()
    rank = draw.permutation(rows.n).tolist()
    ready = [(rank[node], node) for node in range(rows.n) if not waits[node]]
    heapify(ready)
    order: list[int] = []
    while ready:
        node = heappop(ready)[1]
        order.append(node)
        for each in children[ptr[node] : ptr[node + 1]].tolist():
            waits[each] -= 1
            if not waits[each]:
                heappush(ready, (rank[each], each))
    if len(order) < rows.n:  # ids were no order of the dependencies: communication then stays where it is
        return rows
    old = np.array(order, np.int64)
    place = np.empty(rows.n, np.int64)
    place[old] = np.arange(rows.n)
    return rows.take(old, place[np.repeat(np.arange(rows.n), np.diff(rows.ptr))], place[rows.parent])
