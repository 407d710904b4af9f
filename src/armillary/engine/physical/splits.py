"""All-to-all with sizes of its own: gather what each member sends to whom into one call that all agree on.

A node has the attribute ``comm_splits``: the bytes to each member, in the order of the group.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.collective.algorithms import rounds_of_messages
from armillary.collective.load import Load, load
from armillary.engine.common import network
from armillary.engine.common.items import View
from armillary.engine.common.network import CollectiveCall, Communicator, Communicators
from armillary.platform.model import Platform
from armillary.trace import Graph, Trace
from armillary.trace.columns import distinct_columns

Rows = dict[int, tuple[int, tuple[int, ...]]]
"""Number of a collective in its communicator -> (item, splits)."""


def join_splits(
    trace: Trace, views: list[View], view_of: NDArray[np.int32], comms: Communicators
) -> tuple[list[View], NDArray[np.int32]]:
    """Return views in which members of an all-to-all with splits have one call, with the whole matrix.

    Raises:
        InputError: a list of splits has not one entry per member, or a member has none.
    """
    found: dict[int, dict[int, Rows]] = {}
    for rank in range(trace.n_ranks):
        for comm, rows in read_splits(trace.graph(rank), views[view_of[rank]]).items():
            found.setdefault(comm, {})[rank] = rows
    if not found:
        return views, view_of
    joined: list[dict[int, CollectiveCall]] = [{} for _ in range(trace.n_ranks)]
    for comm, ranks in found.items():
        members = comms.get(comm).members.tolist()
        of_members = [ranks.get(rank, {}) for rank in members]
        sources = [f"{trace.graph(rank).source}: rank {rank}" for rank in members]
        for number, call in join(comm, of_members, sources).items():
            for rank in members:
                joined[rank][ranks[rank][number][0]] = call
    result = [with_calls(views[v], joined[rank]) for rank, v in enumerate(view_of.tolist())]
    return result, np.arange(trace.n_ranks, dtype=np.int32)


def with_calls(view: View, joined: dict[int, CollectiveCall]) -> View:
    """Return a view in which items have other calls."""
    # By identity: `join` makes equal calls one object, and to compare their splits costs members squared.
    other = {id(each): each for each in joined.values()}
    at = {key: len(view.calls) + place for place, key in enumerate(other)}
    calls, call = [*view.calls, *other.values()], view.call.copy()
    call[list(joined)] = [at[id(each)] for each in joined.values()]
    called = call[call >= 0]
    first, place = distinct_columns(called[None])
    call[call >= 0] = place
    return replace(view, calls=[calls[j] for j in called[first].tolist()], call=call)


def join(comm: int, members: list[Rows], sources: list[str]) -> dict[int, CollectiveCall]:
    """Return the calls in which the members of a communicator, in order, meet, by number; `sources` names them.

    Raises:
        InputError: as `join_splits`.
    """
    calls: dict[int, CollectiveCall] = {}
    # Layers and microbatches repeat: a graph names the same list again, and members the same lists together.
    known: dict[tuple[int, ...], CollectiveCall] = {}
    for number in sorted({number for rows in members for number in rows}):
        lists = [rows[number][1] if number in rows else () for rows in members]
        key = tuple(map(id, lists))
        if key not in known:
            matrix = tuple(
                _row(rows, number, len(members), source)
                for rows, source in zip(members, sources, strict=True)
            )
            size = max(1, *map(sum, matrix))
            known[key] = CollectiveCall(comm, "all-to-all", size, None, splits=matrix)
        calls[number] = known[key]
    return calls


def read_splits(graph: Graph, view: View) -> dict[int, Rows]:
    """Return the splits that the nodes of a graph name, by communicator."""
    codes, lists = graph.int_lists("comm_splits")
    if not lists:
        return {}
    at = np.argsort(graph.ids, kind="stable")[view.nodes.items]
    rows: dict[int, Rows] = {}
    items = np.flatnonzero(view.call >= 0)
    comms = np.array([call.comm for call in view.calls])[view.call[items]]
    # Collectives of a communicator are numbered in issue order, which all members share.
    order = np.argsort(comms, kind="stable")
    first = np.append(True, comms[order][1:] != comms[order][:-1])
    number = np.empty(len(items), np.int64)
    number[order] = np.arange(len(items)) - np.flatnonzero(first)[np.cumsum(first) - 1]
    for place in np.flatnonzero(codes[at[items]] >= 0).tolist():
        item = int(items[place])
        call = view.calls[int(view.call[item])]
        if call.operation == "all-to-all":
            rows.setdefault(call.comm, {})[int(number[place])] = (item, lists[int(codes[at[item]])])
    return rows


def _row(rows: Rows, number: int, n_members: int, source: str) -> tuple[int, ...]:
    if number not in rows:
        raise InputError(
            f"{source} has no comm_splits where other members of its group have them; expected "
            f"them on all-to-all number {number + 1} of every member"
        )
    splits = rows[number][1]
    if len(splits) != n_members or min(splits) < 0:
        raise InputError(
            f"{source} has comm_splits {list(splits)[:8]}; expected {n_members} numbers of bytes, "
            "one per member, 0 or more"
        )
    return tuple(splits)


def loads(call: CollectiveCall, comm: Communicator, platform: Platform) -> list[tuple[int, Load]]:
    """Return (dimension, load of its fullest line) of an all-to-all with splits, in bytes.

    A message crosses the dimensions in order: along each of them from the place of its sender to that of
    its receiver.
    """
    coordinates = [
        comm.members // stride % dimension.size
        for stride, dimension in zip(network.strides(platform.dimensions), platform.dimensions, strict=True)
    ]
    # What a member keeps for itself crosses no link.
    matrix = np.array(call.splits, np.int64)
    source, target = np.nonzero(matrix * (1 - np.eye(len(matrix), dtype=np.int64)))
    result = []
    for d, dimension in enumerate(platform.dimensions):
        # Dimensions before this one are those of the receiver already, later ones still the sender's.
        place = [
            coordinates[e][target] if e < d else coordinates[e][source]
            for e in range(len(coordinates))
            if e != d
        ]
        moving = np.flatnonzero(coordinates[d][source] != coordinates[d][target])
        if not moving.size:
            continue
        keys = np.stack([*[p[moving] for p in place], np.zeros(len(moving), np.int64)])
        _, line = np.unique(keys, axis=1, return_inverse=True)
        # Lines run at the same time and the phase ends with the slowest, so each cost is the largest of any
        # line.
        worst = Load(0, Fraction(0), Fraction(0), Fraction(0), Fraction(0))
        for number in range(int(line.max()) + 1):
            here = moving[line.ravel() == number]
            rounds = rounds_of_messages(
                dimension.size,
                coordinates[d][source[here]],
                coordinates[d][target[here]],
                matrix[source[here], target[here]],
            )
            cost = load(rounds, dimension.topology, dimension.size)
            worst = Load(
                max(worst.hops, cost.hops),
                max(worst.volume, cost.volume),
                max(worst.fullest, cost.fullest),
                max(worst.sent, cost.sent),
                Fraction(0),
            )
        result.append((d, worst))
    return result
