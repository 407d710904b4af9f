"""Matching of the nodes of two graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.trace import columns as c
from armillary.trace.columns import I64, intern
from armillary.trace.graph import Graph, locate

Codes = dict[Any, int]
"""A number for every distinct text, list or other content, the same for both graphs."""


def text_codes(graph: Graph, strings: I64, codes: Codes) -> I64:
    """Return a number for every string of the graph's batch, equal where the bytes are."""
    local, first = intern(graph.columns, strings)
    known = [codes.setdefault(raw, len(codes)) for raw in graph.columns.raws(first)]
    return np.array(known, dtype=np.int64)[local] if known else local


def match(one: Graph, two: Graph, codes: Codes) -> tuple[I64, dict[str, int]]:
    """Return for every node of `one` the position of its partner in `two`, -1 for none, and how they were found.

    Nodes with the same id and name are partners. The rest is matched by name and number of occurrence, and what
    then remains by id and type. If fewer than half of the common ids have the same name in both graphs, the nodes were
    renumbered and ids are ignored.
    """
    names = [
        text_codes(g, g.columns.rows[c.NAME_AT, g.first : g.first + g.n_nodes], codes) for g in (one, two)
    ]
    partner = np.full(one.n_nodes, -1, dtype=np.int64)
    taken = np.zeros(two.n_nodes, dtype=np.bool_)
    counts = {"id": 0, "name": 0}

    def pair(mine: I64, theirs: I64, how: str) -> None:
        partner[mine] = theirs
        taken[theirs] = True
        counts[how] += len(mine)

    at = locate(two.ids, one.ids) if _unique(one.ids) and _unique(two.ids) else partner.copy()
    common = np.flatnonzero(at >= 0)
    same = common[names[0][common] == names[1][at[common]]]
    # Below half, equal ids are a coincidence: another tool has numbered the nodes.
    if 2 * len(same) >= len(common):
        pair(same, at[same], "id")
    else:
        at[:] = -1
    mine, theirs = np.flatnonzero(partner < 0), np.flatnonzero(~taken)
    # The third "matmul" of one graph is taken as the third of the other.
    found = _by_occurrence(names[0][mine], names[1][theirs])
    pair(mine[found >= 0], theirs[found[found >= 0]], "name")
    left = np.flatnonzero((partner < 0) & (at >= 0))
    # A node that was renamed keeps id and type.
    left = left[~taken[at[left]] & (one.types[left] == two.types[at[left]])]
    pair(left, at[left], "id")
    return partner, counts


def _unique(ids: NDArray[np.uint64]) -> bool:
    if not np.all(ids[1:] > ids[:-1]):
        ids = np.sort(ids)
    return bool(np.all(ids[1:] > ids[:-1]))


def _by_occurrence(mine: I64, theirs: I64) -> I64:
    """Return for each of `mine` the index of the equal one of `theirs` with the same number of occurrence."""
    # (code, occurrence) as one integer, so that one search finds the equal pairs.
    span = max(len(mine), len(theirs), 1)
    keys = [(codes * span + occurrence(codes)).astype(np.uint64) for codes in (mine, theirs)]
    return locate(keys[1], keys[0])


def occurrence(codes: I64) -> I64:
    """Return for every code how many equal ones precede it."""
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])) if len(codes) else order
    number = np.empty(len(codes), dtype=np.int64)
    number[order] = np.arange(len(codes)) - np.repeat(first, np.diff(np.append(first, len(codes))))
    return number
