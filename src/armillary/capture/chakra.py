"""Captured ranks as a Chakra trace of all ranks of the program: kernels and communications on their streams."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from armillary.base.errors import InputError
from armillary.capture.kinds import Kind
from armillary.capture.log import ALL, COMMUNICATION, HOST, JOIN, OPERATOR, RECORD, Communication, Log, Row
from armillary.capture.mesh import Mesh, mesh_of, needs_mesh
from armillary.capture.summary import RankClass, classes
from armillary.convert.groups import Groups
from armillary.convert.pytorch.operators.attention import gemms
from armillary.trace import CollectiveType, Graph, GraphBuilder, Node, NodeType, Trace, graph_of
from armillary.trace.attention import ATTENTION
from armillary.trace.gemm import GEMM, to_numbers
from armillary.trace.grid import AXIS
from armillary.trace.node import Attribute, Common

MODULE = "module"
"""String attribute of a node: path of the module that issued it, forward or backward."""
LINE = "line"
"""String attribute of a node: file and line of the user's program that issued it."""
BACKWARD = "backward"
"""Bool attribute of a node: it is from the backward pass of its module and line."""
UNKNOWN = "no_rule"
"""Bool attribute of a kernel of which only the bytes are known."""
_MESSAGES = {"send": NodeType.COMM_SEND_NODE, "recv": NodeType.COMM_RECV_NODE}
Name = Callable[[Communication], list[Attribute] | None]
"""Group or peer of a communication as attributes; None: it has one member, and moves nothing."""


class HostTimes(NamedTuple):
    """What the host takes, in ns.

    Attributes:
        call: To call an operator; 0: it is always ahead of the device.
        read: To go on after it has waited for the device, as for ``tensor.item()``.
        message: To take a message of a pipeline.
    """

    call: int = 0
    read: int = 0
    message: int = 0


def trace_of(logs: Sequence[Log], *, host_ns: int = 0, host: HostTimes | None = None) -> Trace:
    """Return the trace of all ranks.

    A node waits for the one before it on its stream, for what its stream waits for (events, communications), and for
    what the host waited for before it was issued. Nodes carry operations, bytes, GEMMs and attention, by which the
    compute model of a machine times them.

    Args:
        logs: Of the ranks that were run.
        host_ns: What it takes the host to call an operator; 0: it is always ahead of the device.
        host: The same, with what else takes it time; instead of `host_ns`.

    Raises:
        InputError: what the other ranks do does not follow from these.
    """
    logs = sorted(logs, key=lambda each: each.rank)
    times = host or HostTimes(host_ns)
    mesh = mesh_of(logs)
    found = classes(logs, mesh)
    ranks = logs[0].ranks
    if mesh is not None and _follows(logs, mesh):
        _check_whole(found, ranks)
        rank_graph = np.zeros(ranks, np.int32)
        for at, each in enumerate(found):
            rank_graph[list(each.ranks)] = at
        graphs = tuple(_graph(each.log, [], _by_rules(each.log, mesh), times) for each in found)
        return Trace(graphs, rank_graph, mesh.grid(), _about(logs, found, [each.log for each in found]))
    if len(logs) < ranks:
        raise needs_mesh(logs)
    groups = Groups(ranks)
    for log in logs:
        for members in log.groups:
            groups.number(members)
    own = [_graph(log, _definitions(groups), _by_number(log, groups), times) for log in logs]
    return Trace(tuple(own), np.arange(ranks, dtype=np.int32), None, _about(logs, found, logs))


def _check_whole(found: Sequence[RankClass], ranks: int) -> None:
    known = sum(len(each.ranks) for each in found)
    if known < ranks:
        run = sorted(rank for each in found for rank in each.run)
        raise InputError(
            f"{found[0].log.script}: what {ranks - known} of {ranks} ranks do does not follow from ranks "
            f"{', '.join(map(str, run))}, which differ; expected --run auto, or --run all"
        )


def _about(logs: Sequence[Log], found: Sequence[RankClass], graphs: Sequence[Log]) -> dict[str, object]:
    return {
        "captured": {
            "script": logs[0].script, "ranks": logs[0].ranks, "run": [log.rank for log in logs],
            "classes": len(found), "torch": logs[0].torch, "step": logs[0].step, "fused": logs[0].compiled,
            "graphs": [log.rank for log in graphs],
        }
    }  # fmt: skip


def _follows(logs: Sequence[Log], mesh: Mesh) -> bool:
    """Whether the mesh has names for all groups and peers."""
    groups = all(mesh.group(ranks) for log in logs for ranks in log.groups)
    return groups and all(
        mesh.way(log.rank, each.peer)
        for log in logs
        for each in log.communications
        if each.type in ("send", "recv")
    )


def _by_rules(log: Log, mesh: Mesh) -> Name:
    # Once for each group: it may have 100,000 ranks.
    groups = [mesh.group(ranks) for ranks in log.groups]

    def name(each: Communication) -> list[Attribute] | None:
        if each.type in ("send", "recv"):
            way = mesh.way(log.rank, each.peer)
            assert way is not None  # `_follows` has seen it
            return [
                (AXIS, "string", way[0]),
                ("comm_dst" if each.type == "send" else "comm_src", "int32", way[1]),
            ]
        if len(log.groups[each.group]) == 1:
            return None
        return [("pg_name", "string", groups[each.group])]

    return name


def _by_number(log: Log, groups: Groups) -> Name:
    def name(each: Communication) -> list[Attribute] | None:
        if each.type in ("send", "recv"):
            ends = (log.rank, each.peer) if each.type == "send" else (each.peer, log.rank)
            return [("comm_src", "int32", ends[0]), ("comm_dst", "int32", ends[1])]
        if len(log.groups[each.group]) == 1:
            return None
        number = groups.number(log.groups[each.group])
        return [("pg_name", "string", str(number))] if number else []

    return name


def _definitions(groups: Groups) -> list[Node]:
    builder = GraphBuilder()
    groups.metadata(builder)
    return builder.nodes


def _graph(log: Log, nodes: list[Node], name: Name, host: HostTimes) -> Graph:
    return graph_of(_Nodes(log, list(nodes), name, host).all(), f"rank {log.rank}")


class _Nodes:
    """The nodes of a rank, with what each stream has to wait for."""

    def __init__(self, log: Log, nodes: list[Node], name: Name, host: HostTimes) -> None:
        self._log, self._nodes, self._name, self._times = log, nodes, name, host
        self._last: dict[int, int] = {}
        self._waits: dict[int, set[int]] = {}
        self._events: dict[int, set[int]] = {}
        self._calls: dict[int, int] = {}
        # What the host has waited for, and the streams that know it already.
        self._host: set[int] = set()
        self._told: set[int] = set()
        self._issued = -1
        self._pending = 0
        # By operator or communication, stream and place: what its nodes have in common.
        self._of: dict[tuple[int | Communication, int, int], Common] = {}
        streams = [row.stream for row in log.rows if row.stream >= 0]
        # A stream that a group has to itself gets a number above those of the program.
        self._own = max(streams, default=0) + 1

    def all(self) -> list[Node]:
        for row in self._log.rows:
            self._pending += row.calls
            if row.kind == OPERATOR:
                self._kernel(row)
            elif row.kind == COMMUNICATION:
                self._communication(row)
            elif row.kind == RECORD:
                self._events[row.what] = self._before(row.stream)
            elif row.kind == JOIN:
                if row.what in self._calls:
                    self._waits.setdefault(row.stream, set()).add(self._calls[row.what])
            elif row.kind == HOST:
                self._host_waits(row)
            else:
                self._waits.setdefault(row.stream, set()).update(self._events.get(row.what, ()))
        return self._nodes

    def _before(self, stream: int) -> set[int]:
        """Return what ends before the next node of a stream can start."""
        found = set(self._waits.get(stream, ()))
        if stream in self._last:
            found.add(self._last[stream])
        if self._host and stream not in self._told:
            found |= self._host
        return found

    def _host_waits(self, row: Row) -> None:
        if row.what:
            found = self._events.get(row.what, set())
        elif row.stream == ALL:
            found = set().union(*(self._before(stream) for stream in {*self._last, *self._waits}))
        else:
            found = self._before(row.stream)
        if found:
            self._host, self._told = found | self._host, set()
            if self._times.read:
                self._host = {self._of_host("synchronise", self._times.read, self._host)}

    def _issue(self) -> list[int]:
        """Add the time of the host, which issues one operator after the other."""
        # What a CUDA graph issues itself costs no call.
        if not self._times.call or not self._pending:
            return []
        node = self._of_host("host", self._pending * self._times.call, self._host)
        # Later nodes of the host wait for this one, and with it for what the host has waited for.
        self._pending, self._host = 0, set()
        return [node]

    def _of_host(self, name: str, took: int, after: set[int]) -> int:
        """Add what the host does next, and return its node."""
        before = after | ({self._issued} if self._issued >= 0 else set())
        node = Node(len(self._nodes), name, NodeType.COMP_NODE, (), tuple(sorted(before)))
        node.duration_micros = (took + 500) // 1000
        node.attrs += [("is_cpu_op", "bool", True), ("duration_ns", "int64", took), ("tid", "int64", 0)]
        self._nodes.append(node)
        self._issued = node.id
        return node.id

    def _add(self, name: str, kind: int, stream: int, after: set[int], attrs: Common) -> int:
        after = after.union(self._issue())
        node = Node(len(self._nodes), name, kind, (), tuple(sorted(after)), attrs=attrs)
        self._nodes.append(node)
        self._last[stream] = node.id
        self._waits.pop(stream, None)
        self._told.add(stream)
        return node.id

    def _at(self, row: Row, stream: int, attrs: list[Attribute]) -> Common:
        """Return the attributes of a node, with where it runs and where it is from."""
        place = self._log.places[row.place]
        found = Common([("is_cpu_op", "bool", False), *attrs, ("stream", "int64", stream)])
        if place.module:
            found.append((MODULE, "string", place.module))
        if place.line:
            found.append((LINE, "string", place.line))
        if place.backward:
            found.append((BACKWARD, "bool", True))
        return found

    def _kernel(self, row: Row) -> None:
        key = row.what, row.stream, row.place
        if key not in self._of:
            self._of[key] = self._at(row, row.stream, self._work(self._log.kinds[row.what]))
        name = self._log.kinds[row.what].name
        self._add(name, NodeType.COMP_NODE, row.stream, self._before(row.stream), self._of[key])

    def _work(self, kind: Kind) -> list[Attribute]:
        """Return what a compute model needs to know of an operator."""
        flops = kind.flops
        if kind.attention is not None and kind.attention.backward:
            # Compute models count two operations of gradients for each of the forward pass, and know that the kernel
            # makes the scores again; it was recorded with these.
            one = kind.attention
            flops = (
                flops
                * gemms(2, one.key, one.value, backward=False)
                // gemms(1, one.key, one.value, backward=True)
            )
        # Readers divide by it; 1 operation takes no time.
        attrs: list[Attribute] = [
            ("num_ops", "int64", max(1, flops)), ("tensor_size", "uint64", max(1, kind.size)),
        ]  # fmt: skip
        if kind.products and kind.precision != "bf16":
            attrs.append(("precision", "string", kind.precision))
        if kind.gemm is not None and kind.gemm.operations == kind.flops:
            attrs.append((GEMM, "int64_list", to_numbers([kind.gemm])))
        if kind.attention is not None:
            attrs.append((ATTENTION, "int64_list", list(kind.attention)))
        if not kind.family:
            attrs.append((UNKNOWN, "bool", True))
        return attrs

    def _communication(self, row: Row) -> None:
        each = self._log.communications[row.what]
        where = self._name(each)
        if where is None:
            return
        after = self._before(row.stream)
        stream = row.stream
        if each.own_stream:
            stream = self._own + each.group
            if stream in self._last:
                after.add(self._last[stream])
        kind = _MESSAGES.get(each.type, NodeType.COMM_COLL_NODE)
        key = each, stream, row.place
        if key not in self._of:
            self._of[key] = self._at(row, stream, self._transfer(each, where))
        self._calls[row.what] = self._add(each.type, kind, stream, after, self._of[key])
        if self._times.message and each.type in ("send", "recv"):
            # The host waits for the message, and issues what comes after it only then.
            self._host = {self._of_host("handshake", self._times.message, {self._calls[row.what]})}
            self._told = set()

    def _transfer(self, each: Communication, where: list[Attribute]) -> list[Attribute]:
        """Return what a network model needs to know of a communication."""
        if each.type in ("send", "recv"):
            return [("comm_size", "int64", each.bytes), *where, ("comm_tag", "int32", each.tag % 2**31)]
        type_ = CollectiveType[each.type.upper().replace("-", "_")]
        found = [("comm_type", "int64", int(type_)), ("comm_size", "int64", self._size(each)), *where]
        if each.splits and sum(each.splits) == each.input:
            found.append(("comm_splits", "int64_list", list(each.splits)))
        return found

    def _size(self, each: Communication) -> int:
        """Return bytes as Chakra counts them: what a rank gives; of a gather or scatter all parts."""
        if each.type in ("gather", "scatter", "broadcast"):
            return each.bytes
        return each.input
