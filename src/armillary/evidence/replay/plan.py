"""The plan of a replay: the operations of each rank, with members, bytes and order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.engine.common.network import Communicators
from armillary.platform import Dimension, Platform
from armillary.trace import CollectiveType, Feeder, Graph, NodeType, Trace, encode
from armillary.trace.trace import WORLD

COLLECTIVE = {kind: kind.name.lower().replace("_", "-") for kind in CollectiveType}
ROOTED = ("broadcast", "reduce", "gather", "scatter")
Key = tuple[str, int, int, int]
"""Key of operations that keep their order: ("group", number, 0, 0), or ("message", source, destination, tag)."""


@dataclass(frozen=True)
class Operation:
    """One communication node; all members of it agree on all fields but `splits` and `received`."""

    kind: str
    """``all-reduce``, …, ``send`` or ``recv``."""
    key: Key
    size: int
    """``comm_size`` in bytes."""
    members: tuple[int, ...]
    """Ranks of the group in its order; source and destination of a message."""
    root: int = -1
    """Rank of the root of a rooted collective."""
    splits: tuple[int, ...] = ()
    """Bytes to each member, of an all-to-all that names them."""
    received: tuple[int, ...] = ()
    """Bytes from each member, likewise."""


@dataclass(frozen=True)
class Compute:
    """Columns over the nodes of a graph."""

    kind: NDArray[np.int8]
    """0 takes no time, 1 computes, 2 communicates."""
    cpu: NDArray[np.bool_]
    slot: NDArray[np.int64]
    """Nodes of one slot compute one after the other: a stream or a thread."""
    duration_ns: NDArray[np.int64]
    flops: NDArray[np.int64]
    bytes: NDArray[np.int64]


INSTANT, COMPUTES, COMMUNICATES = range(3)


@dataclass
class RankPlan:
    """What one rank does."""

    rank: int
    graph: bytes
    """Its graph, encoded."""
    compute: Compute
    operations: dict[int, Operation]
    """By position of the node."""
    turn: dict[int, int]
    """By position: how many operations of the same key come before it."""


@dataclass
class Instance:
    """One collective, or one message, of all who take part: `nodes` are (rank, position)."""

    operation: Operation
    nodes: list[tuple[int, int]] = field(default_factory=list)


@dataclass(frozen=True)
class Shared:
    """What all ranks must know of each other."""

    groups: dict[int, tuple[int, ...]]
    """Members of every group that is used but the world, by number."""
    pairs: tuple[tuple[int, int], ...]
    """Source and destination of all messages."""
    tags: tuple[int, ...]
    """Their tags."""


@dataclass(frozen=True)
class Job:
    """What one rank is asked for; see `armillary.evidence.replay.replay`."""

    plan: RankPlan
    shared: Shared
    ranks: int
    backend: str
    compute: str
    warmup: int
    iterations: int
    timeout: float
    folder: str


@dataclass
class Plan:
    """A whole replay."""

    ranks: list[RankPlan]
    shared: Shared
    instances: list[Instance]


def plan_of(trace: Trace, platform: Platform | None = None) -> Plan:
    """Return what every rank does, having checked that the ranks fit together.

    Args:
        trace: One graph for each rank.
        platform: Where groups may be defined besides the trace itself.

    Raises:
        InputError: a node cannot be executed, or the members of a group disagree on what they do.
    """
    n = trace.n_ranks
    # Without a platform, one whose only purpose is the number of ranks.
    comms = Communicators(platform or Platform(dimensions=(Dimension("ranks", "Switch", n, 1.0, 0.0),)))
    for graph in trace.graphs:
        comms.read_metadata(graph)
    # Per graph, which many ranks may share; operations depend on the rank.
    shared = [(_sequence(graph), _compute(graph), encode(graph)) for graph in trace.graphs]
    ranks = []
    for rank in range(n):
        order, compute, data = shared[int(trace.rank_graph[rank])]
        operations = _operations(trace.graph(rank), rank, comms)
        count: dict[Key, int] = defaultdict(int)
        turn = {}
        for position in order:
            # `turn` numbers operations of one group, or of one pair and tag, in the order in which they must
            # be issued.
            if position in operations:
                key = operations[position].key
                turn[position] = count[key]
                count[key] += 1
        ranks.append(RankPlan(rank, data, compute, operations, turn))
    instances = _match(trace, ranks)
    # Only now: how much a member receives stands at the others.
    _exchange_splits(ranks, instances)
    return Plan(ranks, _shared([instance.operation for instance in instances]), instances)


def _shared(operations: Sequence[Operation]) -> Shared:
    # The world exists already.
    groups = {op.key[1]: op.members for op in operations if op.key[0] == "group" and op.key[1] != WORLD}
    messages = [op.key for op in operations if op.key[0] == "message"]
    pairs, tags = (
        {(source, destination) for _, source, destination, _ in messages},
        {key[3] for key in messages},
    )
    return Shared(dict(sorted(groups.items())), tuple(sorted(pairs)), tuple(sorted(tags)))


def _sequence(graph: Graph) -> list[int]:
    """Return the positions in the order of their ids, as far as dependencies allow."""
    feeder, order = Feeder(graph), []
    while not feeder.done:
        node = feeder.next_issuable()
        assert node is not None  # without running nodes, a feeder that is not done has one
        order.append(node)
        feeder.finish(node)
    return order


def _compute(graph: Graph) -> Compute:
    types = graph.types
    kind = np.full(graph.n_nodes, INSTANT, np.int8)
    computing = (NodeType.COMP_NODE, NodeType.MEM_LOAD_NODE, NodeType.MEM_STORE_NODE)
    kind[np.isin(types, [int(t) for t in computing])] = COMPUTES
    speaking = (NodeType.COMM_COLL_NODE, NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE)
    kind[np.isin(types, [int(t) for t in speaking])] = COMMUNICATES
    cpu = graph.ints("is_cpu_op", 0) != 0
    # CPU operations have threads, GPU operations streams.
    named = np.where(cpu, graph.ints("tid", -1), graph.ints("stream", -1))
    # A slot for each pair of (side, thread or stream).
    _, slot = np.unique(np.stack([cpu.astype(np.int64), named]), axis=1, return_inverse=True)
    micros = graph.duration_micros.astype(np.int64) * 1000
    duration = np.where(graph.has("duration_ns"), graph.ints("duration_ns", 0), micros)
    columns = {
        "duration": duration,
        "num_ops": graph.ints("num_ops"),
        "tensor_size": graph.ints("tensor_size"),
    }
    for name, column in columns.items():
        # [:1]: the first wrong one is enough.
        for bad in np.flatnonzero(column < 0)[:1].tolist():
            raise InputError(f"{graph.node(bad)} has {name} {column[bad]}; expected 0 or more")
    return Compute(kind, cpu, slot.ravel(), duration, columns["num_ops"], columns["tensor_size"])


def _operations(graph: Graph, rank: int, comms: Communicators) -> dict[int, Operation]:
    size, kind = graph.ints("comm_size"), graph.ints("comm_type", -1)
    tag, root = graph.ints("comm_tag"), graph.ints("comm_root", -1)
    source, destination = graph.ints("comm_src", -1), graph.ints("comm_dst", -1)
    codes, names = graph.strings("pg_name")
    split_codes, splits = graph.int_lists("comm_splits")
    found = {}
    # 5, 6, 7: send, receive, collective (NodeType).
    for at in np.flatnonzero(np.isin(graph.types, (5, 6, 7))).tolist():
        if size[at] < 0:
            raise InputError(f"{graph.node(at)} has comm_size {size[at]}; expected 0 or more bytes")
        if graph.types[at] == NodeType.COMM_COLL_NODE:
            if kind[at] not in COLLECTIVE:
                raise InputError(f"{graph.node(at)} has comm_type {kind[at]}; expected a Chakra collective")
            # By group id, or by the name of the process group.
            number = comms.resolve(graph, at, names[codes[at]] if codes[at] >= 0 else "")
            members = tuple(comms.get(number).members.tolist())
            if rank not in members:
                raise InputError(
                    f"{graph.node(at)} of rank {rank} is a collective of group {number}, {list(members)[:8]}; "
                    "expected one that the rank belongs to"
                )
            name = COLLECTIVE[CollectiveType(int(kind[at]))]
            # Splits are known of an all-to-all only.
            given = splits[split_codes[at]] if split_codes[at] >= 0 and name == "all-to-all" else ()
            found[at] = Operation(
                name, ("group", number, 0, 0), int(size[at]), members, _root(graph, at, name, int(root[at]), members),
                given,
            )  # fmt: skip
        else:
            send = graph.types[at] == NodeType.COMM_SEND_NODE
            # (source, destination), whoever this rank is.
            ends = (rank, int(destination[at])) if send else (int(source[at]), rank)
            peer = ends[1 if send else 0]
            if not 0 <= peer < comms.npus or peer == rank:
                name = "comm_dst" if send else "comm_src"
                raise InputError(
                    f"{graph.node(at)} of rank {rank} has {name} {peer}; expected another rank from 0 to "
                    f"{comms.npus - 1}"
                )
            key = ("message", *ends, int(tag[at]))
            found[at] = Operation("send" if send else "recv", key, int(size[at]), ends)
    return found


def _root(graph: Graph, at: int, kind: str, root: int, members: Sequence[int]) -> int:
    if kind not in ROOTED:
        return -1
    if root < 0:
        # No root is the first member.
        return members[0]
    if root not in members:
        raise InputError(f"{graph.node(at)} has comm_root {root}; expected a rank of {list(members)[:8]}")
    return root


def _match(trace: Trace, ranks: Sequence[RankPlan]) -> list[Instance]:
    """Match the operations of all ranks into collectives and messages.

    Raises:
        InputError: two members of a group disagree, or one does less than another.
    """
    found: dict[tuple[Key, int], Instance] = {}
    for plan in ranks:
        for at, turn in plan.turn.items():
            operation = plan.operations[at]
            # The first rank that comes defines the instance; all others must agree with it.
            instance = found.setdefault((operation.key, turn), Instance(operation))
            if operation.kind in ("send", "recv"):
                # A send and its receive differ in kind.
                same = instance.operation.size == operation.size
            else:
                same = _agreed(instance.operation) == _agreed(operation)
            if not same:
                (other, there), first = instance.nodes[0], instance.operation
                raise InputError(
                    f"{trace.graph(plan.rank).node(at)} of rank {plan.rank} is {_say(operation)}, but what it meets "
                    f"is {_say(first)} ({trace.graph(other).node(there)} of rank {other}); expected the same"
                )
            instance.nodes.append((plan.rank, at))
    for instance in found.values():
        # Members that never came: they do fewer operations of this key.
        missing = set(instance.operation.members) - {rank for rank, _ in instance.nodes}
        if missing:
            rank, at = instance.nodes[0]
            raise InputError(
                f"{trace.graph(rank).node(at)} of rank {rank} is {_say(instance.operation)}, which "
                f"{_ranks(sorted(missing), 'never joins', 'never join')}; expected the same operations on all "
                "of its ranks"
            )
    return list(found.values())


def _agreed(operation: Operation) -> tuple[object, ...]:
    # With splits sizes may differ from rank to rank.
    size = 0 if operation.splits else operation.size
    return operation.kind, size, operation.root, bool(operation.splits)


def _ranks(ranks: Sequence[int], one: str, many: str) -> str:
    names = ", ".join(map(str, ranks[:8]))
    return f"rank {names} {one}" if len(ranks) == 1 else f"ranks {names} {many}"


def _say(operation: Operation) -> str:
    return f"{operation.kind} of {operation.size} bytes" + (
        f" in group {operation.key[1]}" if operation.key[0] == "group" and operation.key[1] else ""
    )


def _exchange_splits(ranks: Sequence[RankPlan], instances: Sequence[Instance]) -> None:
    """Set how much each member of an all-to-all with splits receives from every other."""
    for instance in instances:
        if not instance.operation.splits:
            continue
        members = instance.operation.members
        sent: Mapping[int, tuple[int, ...]] = {
            rank: ranks[rank].operations[at].splits for rank, at in instance.nodes
        }
        for rank, at in instance.nodes:
            own = ranks[rank].operations[at]
            if len(own.splits) != len(members) or min(own.splits) < 0:
                raise InputError(
                    f"rank {rank}, node at position {at}: comm_splits has {len(own.splits)} entries; expected "
                    f"{len(members)} numbers of 0 or more, one for each rank of its group"
                )
            # What `other` sends to this rank, in the order of the group.
            received = tuple(sent[other][members.index(rank)] for other in members)
            # Operations are immutable: replaced in place.
            ranks[rank].operations[at] = Operation(
                own.kind, own.key, own.size, members, own.root, own.splits, received
            )
