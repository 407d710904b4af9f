"""The collectives and messages of every distinct graph of a trace, in order of issue."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from armillary.base.units import format_bytes, whole
from armillary.trace.columns import CollectiveType, NodeType
from armillary.trace.graph import Graph
from armillary.trace.node import REPLAY_ONLY
from armillary.trace.structure import csr, issue_order, validate
from armillary.trace.trace import WORLD, Groups, Trace

I64 = NDArray[np.int64]

UNDEFINED = -1
"""Stands for the number of a group that nothing defines."""
OWN_SIZES = -1
"""Stands for the size of an all-to-all whose ``comm_splits`` lists the bytes for each member."""
TAGS = 5 * 10**8
"""Tags are equal modulo this number, as in ASTRA-sim."""
OPERATION, SIZE, DIMS, ROOT = range(4)
"""Columns of `Collectives.job`."""


@dataclass(frozen=True)
class Collectives:
    """The collectives of a graph, in order of issue."""

    position: I64
    group: I64
    """Number of the group, or `UNDEFINED`."""
    job: I64
    """(n, 4): what the members of the group must agree on; see `OPERATION`."""


@dataclass(frozen=True)
class Messages:
    """The sends and receives of a graph, in order of issue."""

    position: I64
    send: NDArray[np.bool_]
    peer: I64
    own: I64
    """The end that is the rank itself, -1 where the node does not name it."""
    tag: I64
    size: I64


@dataclass(frozen=True)
class Communication:
    """Communication of one distinct graph."""

    graph: Graph
    ranks: I64
    """Ranks that run the graph."""
    order: I64
    """Positions of all communication, in order of issue."""
    collectives: Collectives
    messages: Messages

    def describe(self, at: int) -> str:
        """Return the text by which messages describe collective number `at`."""
        operation, size, dims, root = self.collectives.job[at].tolist()
        known = operation in CollectiveType.__members__.values()
        text = CollectiveType(operation).name if known else f"collective of type {operation}"
        if size != OWN_SIZES:
            text += f" of {format_bytes(size)}"
        text += f" with root {root}" if root else ""
        position = int(self.collectives.position[at])
        mask = {name: value for name, _, value in self.graph.attrs(position)}.get("involved_dim")
        text += f" over dimensions {[d for d, used in enumerate(mask) if used]}" if dims >= 0 and mask else ""
        return f"{text} ({name_of(self.graph, position)})"


def name_of(graph: Graph, position: int) -> str:
    """Return the text by which messages name a node of a rank that they have named."""
    return f"node {int(graph.ids[position])} '{graph.name(position)}'"


def group_name(number: int) -> str:
    """Return the text by which messages name a group."""
    return f"group {number}" if number != WORLD else "all ranks"


def read_communication(trace: Trace, groups: Groups) -> list[Communication]:
    """Return the communication of every distinct graph.

    Raises:
        InputError: a graph has a cycle, equal ids, or an attribute of the wrong kind.
    """
    ptr, ranks = csr(trace.rank_graph, np.arange(trace.n_ranks), len(trace.graphs))
    masks: dict[tuple[bool, ...], int] = {}
    found = []
    for at, graph in enumerate(trace.graphs):
        # A `replay_only` communication meets no other rank: it takes its recorded time.
        kinds, meets = graph.types, graph.ints(REPLAY_ONLY) == 0
        collective = (kinds == NodeType.COMM_COLL_NODE) & meets
        message = ((kinds == NodeType.COMM_SEND_NODE) | (kinds == NodeType.COMM_RECV_NODE)) & meets
        validate(graph)
        order = issue_order(graph)
        found.append(
            Communication(
                graph,
                ranks[ptr[at] : ptr[at + 1]],
                order[(collective | message)[order]],
                _collectives(graph, order[collective[order]], groups, masks),
                _messages(graph, order[message[order]]),
            )
        )
    return found


def _collectives(graph: Graph, at: I64, groups: Groups, masks: dict[tuple[bool, ...], int]) -> Collectives:
    codes, names = graph.strings("pg_name")
    numbers = [
        WORLD if name == "" else UNDEFINED if (number := whole(name)) is None else number for name in names
    ]
    numbers = [number if number in groups else UNDEFINED for number in numbers]
    # An absent group means all ranks.
    of_code = np.array([*numbers, WORLD], dtype=np.int64)  # code -1 is the last
    dims, lists = graph.bool_lists("involved_dim")
    mask = np.array([*(masks.setdefault(items, len(masks)) for items in lists), -1], dtype=np.int64)
    operation, size = graph.ints_at(at, "comm_type", -1), graph.ints_at(at, "comm_size")
    # Sizes of such an all-to-all differ between members by design, so they are not compared.
    splits = (operation == CollectiveType.ALL_TO_ALL) & graph.has("comm_splits")[at]
    job = np.stack(
        [operation, np.where(splits, OWN_SIZES, size), mask[dims[at]], graph.ints_at(at, "comm_root")], axis=1
    )
    return Collectives(at, of_code[codes[at]], job)


def _messages(graph: Graph, at: I64) -> Messages:
    send = graph.types[at] == NodeType.COMM_SEND_NODE
    source, destination = graph.ints_at(at, "comm_src", -1), graph.ints_at(at, "comm_dst", -1)
    # A send may lack comm_src and a receive comm_dst: the own end is the rank itself.
    peer, own = np.where(send, destination, source), np.where(send, source, destination)
    return Messages(at, send, peer, own, graph.ints_at(at, "comm_tag") % TAGS, graph.ints_at(at, "comm_size"))
