"""Other nodes for the same work. Graphs that are alike are rewritten alike, so that ranks still agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from armillary.lab.obfuscation.coarsen import Joined, Spans, coarsen
from armillary.lab.obfuscation.keyed import I64, generator
from armillary.lab.obfuscation.pieces import even_out, join_runs, shuffle, split, unfold
from armillary.lab.obfuscation.relabel import Draft
from armillary.lab.obfuscation.rows import MISSING, Coded, Rows
from armillary.trace.axis_sets import AxisSets
from armillary.trace.columns import NodeType

How = Literal["windows", "runs"]
PIECES = 3
"""The most nodes that one is split into."""
MESSAGES = (NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE)
LARGE = 1 << 20
"""Bytes from which collectives are split. Smaller ones take mostly latency, which each piece would pay again."""


def restructure(
    draft: Draft, spans: Mapping[int, Spans], key: str, windows: int, how: How
) -> tuple[Draft, bool]:
    """Return a draft with other nodes, and whether all of its graphs became windows.

    Args:
        draft: The trace.
        spans: When the nodes ran, for one graph of each kind of `Draft.alike`.
        key: Seed of all random choices.
        windows: How many windows to add to a graph on average, see `coarsen`.
        how: "windows" where a graph allows it; "runs" only joins chains of kernels.
    """
    shared, members = _shared(draft)
    draft = replace(draft, rows=tuple(_exact_times(rows) for rows in draft.rows))
    made: dict[int, Rows] = {}
    all_windows = True
    for kind in sorted(set(draft.alike)):
        graphs = [number for number, each in enumerate(draft.alike) if each == kind]
        rows = draft.rows[graphs[0]]
        # Fixed in any graph of the kind is fixed in all: one rank that joined two collectives would wait
        # forever.
        fixed = np.any(
            [_fixed(draft.rows[number], shared) | _leaving(draft, number) for number in graphs], axis=0
        )
        draw = generator(key, "structure", kind)
        joined: Joined | None = None
        if how == "windows":
            # Random, so that the number of nodes says little about the number of layers.
            count = int(np.ceil(windows * draw.uniform(0.5, 1.5)))
            group = _groups([draft.rows[number] for number in graphs])
            joined = coarsen(rows, spans[kind], fixed, group, count, draw)
        if joined is None:
            all_windows = False
            joined = join_runs(rows, draw, draw.uniform(0.5, 0.95))
        stays = fixed[joined.like]
        pieces = draw.integers(1, PIECES + 1, len(joined.like))
        kind_of = rows.types[joined.like]
        # Nodes that stay in one piece: messages and loads, half of the collectives of windows, small ones,
        # and host operators.
        whole = stays | ~np.isin(kind_of, (NodeType.COMP_NODE, NodeType.COMM_COLL_NODE))
        whole |= (kind_of == NodeType.COMM_COLL_NODE) & (how == "windows") & (draw.random(len(stays)) < 0.5)
        whole |= (kind_of == NodeType.COMM_COLL_NODE) & (joined.work["comm_size"] < LARGE)
        whole |= (kind_of == NodeType.COMP_NODE) & (rows.number("is_cpu_op")[joined.like] != 0)
        # All graphs of a kind take the same `joined`, `pieces` and order; they differ only in peers and
        # groups.
        for number in graphs:
            own = split(joined.of(draft.rows[number]), np.where(whole, 1, pieces))
            own = even_out(own, ~_fixed(own, shared))
            large = (own.number("comm_size") >= LARGE) & ~_fixed(own, shared)
            own = unfold(own, large, _members(own, members))
            # A new generator per graph: every graph of the kind gets the same permutation.
            made[number] = _nameless(shuffle(own, generator(key, "order", kind)))
    return replace(draft, rows=tuple(made[number] for number in range(len(draft.rows)))), all_windows


def _exact_times(rows: Rows) -> Rows:
    """Return rows with every recorded time in ns."""
    exact = rows.numbers["duration_ns"]
    known = (exact == MISSING) & (rows.micros > 0) & (rows.micros < 1 << 40)
    return replace(rows, numbers={**rows.numbers, "duration_ns": np.where(known, rows.micros * 1000, exact)})


def _nameless(rows: Rows) -> Rows:
    return replace(rows, words={**rows.words, "name": Coded(np.zeros(rows.n, np.int64), ("",))})


def _shared(draft: Draft) -> tuple[dict[str, bool], dict[str, int]]:
    """Return by name of a group or axis whether all members of each group run graphs that are alike, and its size.

    "" stands for all ranks.
    """
    kind = np.array(draft.alike)[draft.rank_graph]
    world = np.arange(len(kind))[None, :]
    members = {"": world, "0": world}
    if draft.grid is None:
        members |= {str(number): np.array(ranks)[None, :] for number, ranks in draft.groups.items()}
    else:
        axis_sets = AxisSets(draft.trace())
        names = {
            name
            for rows in draft.rows
            for word in ("pg_name", "comm_axis")
            for name in rows.words[word].values
        }
        members |= {name: axis_sets.all[axis_sets.find(name)].members for name in names - {""}}
    same = {name: bool((kind[table] == kind[table[:, :1]]).all()) for name, table in members.items()}
    return same, {name: table.shape[1] for name, table in members.items()}


def _fixed(rows: Rows, shared: Mapping[str, bool]) -> NDArray[np.bool_]:
    """Return a mask of collectives, and messages along an axis, that stay: not all of their ranks run alike graphs."""
    along = np.isin(rows.types, MESSAGES) & (rows.words["comm_axis"].codes >= 0)
    # Code -1 (no name) takes the last entry: a collective without a group is of all ranks.
    group, axis = (
        np.array([*(shared.get(name, False) for name in column.values), default])[column.codes]
        for column, default in ((rows.words["pg_name"], shared[""]), (rows.words["comm_axis"], False))
    )
    together = (rows.types == NodeType.COMM_COLL_NODE) | (rows.number("in_switch") != 0)
    fixed: NDArray[np.bool_] = (along & ~axis) | (together & ~group) | (rows.lists["comm_splits"].codes >= 0)
    return fixed


def _leaving(draft: Draft, number: int) -> NDArray[np.bool_]:
    """Return a mask of messages to or from a numbered rank whose peer runs a graph that is not alike.

    Files of ranks name peers by number. Those of a ring of context parallelism run graphs that differ in peers alone,
    so both ends can join the same messages; those of a pipeline do not.
    """
    # Index -1 leads through the appended entries to kind -1, that of a rank outside of the trace.
    rows, kinds = draft.rows[number], np.array([*draft.alike, -1])
    of_rank = np.append(draft.rank_graph, len(draft.alike))
    found = np.zeros(rows.n, np.bool_)
    numbered = rows.words["comm_axis"].codes < 0
    for end, kind in (("comm_dst", NodeType.COMM_SEND_NODE), ("comm_src", NodeType.COMM_RECV_NODE)):
        at = np.flatnonzero(numbered & (rows.types == kind))
        peers = rows.numbers[end][at]
        known = (peers >= 0) & (peers < len(draft.rank_graph))
        # A message that names no peer goes to its own rank.
        other = kinds[of_rank[np.where(known, peers, -1)]] != draft.alike[number]
        found[at] = other & (peers != MISSING)
    return found


def _members(rows: Rows, members: Mapping[str, int]) -> I64:
    """Return the size of the group of each node, (n,)."""
    column = rows.words["pg_name"]
    return np.array([*(members.get(name, 1) for name in column.values), members[""]])[column.codes]


def _groups(alike: list[Rows]) -> I64:
    """Return a number per node, (n,); the same for nodes with the same communicator and peers in all graphs."""
    codes = np.stack([rows.words["pg_name"].codes for rows in alike])
    peers = [rows.numbers[end] for rows in alike for end in ("comm_dst", "comm_src")]
    axes = alike[0].words["comm_axis"].codes
    return (
        np.unique(np.vstack([codes, axes, *peers]), axis=1, return_inverse=True)[1].ravel().astype(np.int64)
    )
