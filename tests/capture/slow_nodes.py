"""Nodes of a captured rank as Python objects, one after the other: the reference of `armillary.capture.nodes`."""

from __future__ import annotations

from armillary.capture.log import ALL, COMMUNICATION, HOST, JOIN, OPERATOR, RECORD, Communication, Log, Row
from armillary.capture.nodes import _MESSAGES, BACKWARD, LINE, MODULE, HostTimes, Name, _transfer, _work
from armillary.trace import Node, NodeType
from armillary.trace.node import Attribute, Common


class SlowNodes:
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
            self._of[key] = self._at(row, row.stream, _work(self._log.kinds[row.what]))
        name = self._log.kinds[row.what].name
        self._add(name, NodeType.COMP_NODE, row.stream, self._before(row.stream), self._of[key])

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
            self._of[key] = self._at(row, stream, _transfer(each, where))
        self._calls[row.what] = self._add(each.type, kind, stream, after, self._of[key])
        if self._times.message and each.type in ("send", "recv"):
            # The host waits for the message, and issues what comes after it only then.
            self._host = {self._of_host("handshake", self._times.message, {self._calls[row.what]})}
            self._told = set()
