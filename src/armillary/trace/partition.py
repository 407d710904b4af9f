"""Graphs of one structure, which share their node rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.trace import columns as c
from armillary.trace.columns import I64, STRING, Columns, NodeType
from armillary.trace.graph import Graph, distinct, locate


def partition(graphs: Sequence[Graph], ignore: Sequence[str]) -> tuple[NDArray[np.int32], list[int]]:
    """Return the structure of every graph and the first graph of each; see `Trace.structures`."""
    of_graph = np.zeros(len(graphs), dtype=np.int32)
    batches = {id(graph.columns): graph.columns for graph in graphs}
    sums = {at: _sums(columns) for at, columns in batches.items()}
    # Most graphs that differ do so in these sums; only those that share them need the exact key.
    cheap = [sums[id(graph.columns)][graph.index] for graph in graphs]
    shared = {key for key, count in Counter(cheap).items() if count > 1}
    codes: dict[Any, int] = {}  # one code per distinct text, name and list, the same for all batches
    keys: dict[int, list[tuple[Any, ...]]] = {}
    known: dict[tuple[Any, ...], int] = {}
    examples: list[int] = []
    for at, graph in enumerate(graphs):
        key: tuple[Any, ...] = cheap[at]
        # The exact keys of a whole batch cost little more than those of one of its files.
        if key in shared:
            batch = id(graph.columns)
            if batch not in keys:
                keys[batch] = _keys(graph.columns, ignore, codes)
            key = keys[batch][graph.index]
        structure = known.setdefault(key, len(examples))
        if structure == len(examples):
            examples.append(at)
        of_graph[at] = structure
    return of_graph, examples


def _sums(columns: Columns) -> list[tuple[int, int, int]]:
    """Return for each file sums that are cheap to compute and differ for most graphs that differ."""
    first, rows = columns.frame_ptr[:-1], columns.rows[:, :-1]
    sums = (
        np.diff(columns.frame_ptr),
        *(np.add.reduceat(rows[field], first) for field in (c.TYPE, c.DURATION)),
    )
    return list(zip(*(column.tolist() for column in sums), strict=True))


def _keys(columns: Columns, ignore: Sequence[str], codes: dict[Any, int]) -> list[tuple[Any, ...]]:
    """Return for each file of the batch a key that is equal exactly where the structure is."""
    frame_ptr, rows = columns.frame_ptr, columns.rows
    frames, n_files = rows.shape[1] - 1, len(frame_ptr) - 1
    node = np.ones(frames, dtype=np.bool_)
    node[frame_ptr[:-1]] = False
    node_ptr = frame_ptr - np.arange(n_files + 1)
    file = np.repeat(np.arange(n_files), np.diff(node_ptr))
    # Nodes are compared in the order of ids, so the order in the file must not matter.
    ids = rows[c.ID, :-1][node].view(np.uint64)
    order = np.arange(len(ids))
    # Most files have ascending ids: then nothing is sorted.
    if not np.all((ids[1:] > ids[:-1]) | (file[1:] > file[:-1])):
        order = np.lexsort((ids, file))
        ids = ids[order]
    frame = np.flatnonzero(node)[order]
    rank = np.full(frames, -1)
    rank[frame] = np.arange(len(frame))

    parent_node, parent = _parents(columns, file, ids, node_ptr, rank)
    attr_node, head, value = _attributes(columns, ignore, codes, rank)
    parts = [
        _cut(rows[c.TYPE][frame].astype(np.int32), node_ptr),
        _cut(rows[c.DURATION][frame], node_ptr),
        *_cut_csr(parent_node, [parent], node_ptr),
        *_cut_csr(attr_node, [head, value], node_ptr),
    ]
    # A key is the bytes themselves, so equal keys are equal graphs: no hash can collide.
    keys = list(zip(*parts, strict=True))
    for key, text in _metadata_texts(columns, rank, file, node_ptr).items():
        keys[key] = (*keys[key], *text)
    return keys


def _cut(values: NDArray[Any], ptr: I64) -> list[bytes]:
    """Return the bytes of each part of `values`."""
    data, size = values.tobytes(), values.itemsize
    ends = (ptr * size).tolist()
    return [data[first:after] for first, after in pairwise(ends)]


def _cut_csr(node: I64, values: Sequence[NDArray[Any]], node_ptr: I64) -> list[list[bytes]]:
    """Cut rows that belong to nodes (ascending), and the number of rows of each node, by file."""
    n = int(node_ptr[-1])
    counts = np.bincount(node, minlength=n)
    total = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(counts, out=total[1:])
    return [_cut(counts, node_ptr), *(_cut(value, total[node_ptr]) for value in values)]


def _owners(columns: Columns, field: int) -> I64:
    """Return the frame of every entry of a CSR column."""
    return np.repeat(np.arange(columns.rows.shape[1] - 1), np.diff(columns.rows[field]))


def _parents(
    columns: Columns, file: I64, ids: NDArray[np.uint64], node_ptr: I64, rank: I64
) -> tuple[I64, I64]:
    """Return (node, parent within its file) in order, without repetition; nodes and `ids` in id order."""
    owner = np.concatenate([_owners(columns, c.CTRL_AT), _owners(columns, c.DATA_AT)])
    if not len(owner):
        return owner, owner
    wanted = np.concatenate([columns.ctrl, columns.data]).view(np.uint64)
    node = rank[owner]
    of = file[node]
    sizes = np.diff(node_ptr)
    # A dependency is compared as the rank of its id. Where ids are contiguous that is a
    # subtraction; a smaller id wraps to a huge offset and so counts as absent.
    filled = np.flatnonzero(sizes)
    first = np.zeros(len(sizes), dtype=np.uint64)
    first[filled] = ids[node_ptr[filled]]
    contiguous = np.ones(len(sizes), dtype=np.bool_)
    contiguous[filled] = ids[node_ptr[filled + 1] - 1] - first[filled] == sizes[filled] - 1
    twice = np.flatnonzero((ids[1:] == ids[:-1]) & (file[1:] == file[:-1]))
    contiguous[file[twice]] = False
    offset = wanted - first[of]
    parent = np.where(offset < sizes[of], offset, np.uint64(2**64 - 1)).view(np.int64)
    for scattered in np.flatnonzero(~contiguous).tolist():
        of_file = ids[node_ptr[scattered] : node_ptr[scattered + 1]]
        for base, field in ((0, c.CTRL_AT), (len(columns.ctrl), c.DATA_AT)):
            ends = columns.rows[field][columns.frame_ptr[scattered : scattered + 2]] + base
            # Other files need a search each.
            parent[ends[0] : ends[1]] = locate(of_file, wanted[ends[0] : ends[1]])
    present = parent >= 0
    span = max(int(sizes.max()), 1)
    # Control and data dependencies mean the same to a simulator, so they are one set.
    key = distinct(node[present] * span + parent[present])
    return key // span, key % span


def _attributes(
    columns: Columns, ignore: Sequence[str], codes: dict[Any, int], rank: I64
) -> tuple[I64, I64, I64]:
    """Return (node, name and kind, value) of the attributes to compare, in node order.

    Texts and lists become codes that are equal where the contents are.
    """
    ignored = [columns.name_code[name] for name in ignore if name in columns.name_code]
    node = rank[_owners(columns, c.ATTR_AT)]
    keep = np.flatnonzero((node >= 0) & ~np.isin(columns.attr_name, ignored))
    node = node[keep]
    if not np.all(node[1:] >= node[:-1]):
        order = np.argsort(node, kind="stable")
        node, keep = node[order], keep[order]
    names = np.array([codes.setdefault(name, len(codes)) for name in columns.names], dtype=np.int64)
    kind, value = columns.attr_kind[keep], columns.attr_value[keep]
    text = (kind & 1 == 1) & (kind >= STRING)
    if text.any():
        value[text] = _codes(columns.raws(value[text]), codes)
    for lists in np.flatnonzero(np.bincount(kind[(kind > 0) & (kind & 1 == 0)])).tolist():
        mine = kind == lists
        at = value[mine]
        first, after = columns.list_ptr[at].tolist(), columns.list_ptr[at + 1].tolist()
        parts = [columns.items[a:b] for a, b in zip(first, after, strict=True)]
        # Items of text lists are string numbers, which differ between batches.
        if lists > STRING:
            parts = [np.array(_codes(columns.raws(part), codes), dtype=np.int64) for part in parts]
        value[mine] = _codes([(part.tobytes(),) for part in parts], codes)
    return node, names[columns.attr_name[keep]] << 6 | kind, value


def _codes(contents: Sequence[Any], codes: dict[Any, int]) -> list[int]:
    return [codes.setdefault(content, len(codes)) for content in contents]


def _metadata_texts(columns: Columns, rank: I64, file: I64, node_ptr: I64) -> dict[int, list[Any]]:
    """Return by file the IOInfo of metadata nodes except group definitions, with the node and the side."""
    frames = columns.io[0]
    wanted = np.flatnonzero(columns.rows[c.TYPE][frames] == NodeType.METADATA_NODE)
    found: dict[int, list[Any]] = {}
    for at in wanted[np.argsort(rank[frames[wanted]], kind="stable")].tolist():
        frame, side, *strings = columns.io[:, at].tolist()
        texts = [columns.raw(string) for string in strings]
        if b"pg_name" in texts[0]:  # numbers and members of groups differ as the attribute pg_name does
            continue
        node = int(rank[frame])
        mine = int(file[node])
        found.setdefault(mine, []).append((node - int(node_ptr[mine]), side, *texts))
    return found
