"""The kinds of work in a trace, and the trace with more of one and less of another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from armillary.base.units import whole
from armillary.lab.obfuscation.keyed import I64
from armillary.lab.obfuscation.relabel import Draft
from armillary.lab.obfuscation.rows import MISSING, Coded, Rows
from armillary.trace.columns import CollectiveType, NodeType

OPERATIONS, BYTES, TIMES, MESSAGES, MEMORY = "operations", "bytes", "times", "messages", "memory"


def kinds_of_work(draft: Draft) -> list[str]:
    """Return the kinds of work in a trace. Each can be scaled by a factor of its own, the same on all ranks."""
    found: set[str] = set()
    for rows in draft.rows:
        compute = rows.types == NodeType.COMP_NODE
        for name, column in ((OPERATIONS, "num_ops"), (BYTES, "tensor_size")):
            found |= {name} if (rows.number(column)[compute] > 1).any() else set()
        # Kernels with operations or bytes are timed by these; their recorded durations do not matter.
        timed = compute & (rows.numbers["num_ops"] == MISSING) & (rows.numbers["tensor_size"] == MISSING)
        found |= {TIMES} if (timed & ((rows.number("duration_ns") > 0) | (rows.micros > 0))).any() else set()
        found |= set(communication_kinds(rows, draft)[1])
    return sorted(found)


def scaled(draft: Draft, factors: Mapping[str, float]) -> Draft:
    """Return a draft in which each kind of work is multiplied by its factor; kinds without one stay."""
    return replace(draft, rows=tuple(_scaled(rows, draft, factors) for rows in draft.rows))


def _scaled(rows: Rows, draft: Draft, factors: Mapping[str, float]) -> Rows:
    compute = rows.types == NodeType.COMP_NODE
    code, names = communication_kinds(rows, draft)
    # Code -1, no communication, takes the appended factor of 1.
    own = np.append([factors.get(name, 1.0) for name in names], 1.0)[code]
    bytes_factor = np.where(compute, factors.get(BYTES, 1.0), own)
    time = np.where(compute, factors.get(TIMES, 1.0), 1.0)
    numbers = dict(rows.numbers)
    for name, factor in (
        ("num_ops", np.where(compute, factors.get(OPERATIONS, 1.0), 1.0)), ("tensor_size", bytes_factor),
        ("comm_size", own), ("duration_ns", time),
    ):  # fmt: skip
        numbers[name] = _times(numbers[name], factor)
    splits = rows.lists["comm_splits"]
    lists: dict[tuple[int, ...], int] = {}
    codes = splits.codes.copy()
    for node in np.flatnonzero(codes >= 0).tolist():
        row = np.array(splits.values[codes[node]], np.int64)
        codes[node] = lists.setdefault(tuple(_times(row, own[node]).tolist()), len(lists))
    return replace(
        rows, numbers=numbers, micros=_times(rows.micros, time),
        lists={**rows.lists, "comm_splits": Coded(codes, tuple(lists))},
    )  # fmt: skip


def _times(values: I64, factor: object) -> I64:
    # Larger values are not exact as float64; 0 and MISSING stay what they are.
    fits = (values > 0) & (values < 1 << 52)
    return np.where(fits, np.maximum(np.rint(np.where(fits, values, 0) * factor).astype(np.int64), 1), values)


def communication_kinds(rows: Rows, draft: Draft) -> tuple[I64, list[str]]:
    """Return the kind of communication of each node as an index into the names, -1 for none, and these names.

    The kind of a collective is its type and, on a grid, its axis set, else the size of its group: all members know
    both, so they apply the same factor.
    """
    code = np.full(rows.n, -1, np.int64)
    names: list[str] = []
    for name, types in (
        (MESSAGES, (NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE)),
        (MEMORY, (NodeType.MEM_LOAD_NODE, NodeType.MEM_STORE_NODE)),
    ):
        mine = np.isin(rows.types, types)
        if mine.any():
            code[mine] = len(names)
            names.append(name)
    at = np.flatnonzero((rows.types == NodeType.COMM_COLL_NODE) & (rows.number("comm_size") > 0))
    groups = rows.words["pg_name"]
    pairs = np.stack([rows.number("comm_type", -1)[at], groups.codes[at]])
    known, inverse = np.unique(pairs, axis=1, return_inverse=True)
    of_pair = []
    for operation, group in known.T.tolist():
        axis_set = groups.values[group] if group >= 0 else ""
        if draft.grid is None:
            ranks = draft.groups.get(whole(axis_set) or 0, ())
            axis_set = str(len(ranks) or len(draft.rank_graph))
        operation_name = (
            CollectiveType(operation).name if operation in CollectiveType.__members__.values() else operation
        )
        name = f"{operation_name} in {axis_set or 'all'}"
        if name not in names:
            names.append(name)
        of_pair.append(names.index(name))
    code[at] = np.array(of_pair, np.int64)[inverse.ravel()] if len(at) else -1
    return code, names
