"""Nodes of captured ranks: kernels and communications on their streams, each different one packed once.

A node waits for the one before it on its stream, for what its stream waits for, and for what the host waited for before
it issued the node; see `armillary.capture.waiting_kernel`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from armillary.base import jit
from armillary.capture import waiting_layout as w
from armillary.capture.kinds import Kind
from armillary.capture.log import (
    ALL,
    COMMUNICATION,
    HOST,
    OPERATOR,
    RECORD,
    WAIT,
    Communication,
    Ints,
    Log,
    Place,
)
from armillary.convert.pytorch.operators.attention import gemms
from armillary.trace import CollectiveType, Graph, Node, NodeType
from armillary.trace.attention import ATTENTION
from armillary.trace.columns import DATA_AT
from armillary.trace.gemm import GEMM, SCALING, to_numbers
from armillary.trace.node import Attribute
from armillary.trace.templates import PackedGraph, PlacedGraph, Placement, Template

MODULE = "module"
"""String attribute of a node: path of the module that issued it, forward or backward."""
LINE = "line"
"""String attribute of a node: file and line of the user's program that issued it."""
BACKWARD = "backward"
"""Bool attribute of a node: it is from the backward pass of its module and line."""
UNKNOWN = "no_rule"
"""Bool attribute of a kernel of which only the bytes are known."""
_MESSAGES = {"send": NodeType.COMM_SEND_NODE, "recv": NodeType.COMM_RECV_NODE}
_OF_HOST = {w.CALLED: "host", w.SYNCHRONISED: "synchronise", w.SHOOK: "handshake"}
_COMPILED_FROM = 50_000
"""Rows from which on the kernel is compiled, as `armillary.report.earliest` has it for nodes."""
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


class RankNodes:
    """The nodes of a rank.

    Attributes:
        log: Of the rank.
        name: Says of a communication between whom it is.
    """

    def __init__(self, log: Log, name: Name) -> None:
        self.log, self.name = log, name
        self._kind, self._what, self._stream, self._place, self._calls = log.columns
        self._different, self._which = log.different()
        self._ends = [name(each) for each in self._different]
        self._operator = self._kind == OPERATOR
        # A stream that a group has to itself gets a number above those of the program.
        self._first_own = max(int(self._stream.max(initial=0)), 0) + 1
        self._own = self._stream.copy()
        self._call = self._kind == COMMUNICATION
        self._of = self._which[self._what[self._call]]
        if len(self._of):
            own = [self._first_own + each.group if each.own_stream else ALL for each in self._different]
            found = np.array(own, np.int64)[self._of]
            self._own[self._call] = np.where(found == ALL, self._stream[self._call], found)

    def waiting(self, times: HostTimes, first: int, *, compiled: bool) -> tuple[Ints, Ints, Ints]:
        """Return what each node is of, how many calls of the host it stands for, and its edges, (2, edges).

        Args:
            times: Of the host.
            first: Nodes before these.
            compiled: Whether there are enough to compile the kernel.
        """
        n = len(self._kind)
        numbers, at = np.unique(np.append(self._stream, self._own), return_inverse=True)
        kind, stream, own = self._kind.copy(), at[:n], at[n:]
        whole = (kind == HOST) & (self._what == 0) & (self._stream == ALL)
        stream = np.where(whole, -1, stream)
        # Communications of one member move nothing.
        moves = np.array([each is not None for each in self._ends], np.bool_)
        kind[self._call] = np.where(moves[self._of], COMMUNICATION, w.NOTHING)
        event = (kind == RECORD) | (kind == WAIT) | ((kind == HOST) & (self._what != 0))
        what = np.where(kind == HOST, -1, self._what)
        events, what[event] = np.unique(self._what[event], return_inverse=True)
        message = np.zeros(n, np.int64)
        message[self._call] = np.array([each.type in _MESSAGES for each in self._different], np.int64)[
            self._of
        ]
        rows = np.concatenate([kind, what, stream, own, self._calls, message])
        main = np.zeros(w.MAIN, np.int64)
        main[[w.ISSUED, w.WAITED]] = -1
        main[w.NODES] = first
        main[[w.CALL_TAKES, w.READ_TAKES, w.MESSAGE_TAKES]] = np.array(times) > 0
        return _follow(
            main, rows, np.tile([-1, -1, -1, 0, 0], len(numbers)), np.tile([-1, 0], len(events)),
            np.full(len(self._which), -1), first + 3 * n, compiled=compiled,
        )  # fmt: skip

    def different(self) -> tuple[Ints, list[tuple[int, int, int]]]:
        """Return which of the different nodes each row is, -1 for none, and of these work, stream and place.

        Works are the operators of the log, and after them its different communications.
        """
        calls = np.zeros(len(self._kind), np.bool_)
        calls[self._call] = np.array([each is not None for each in self._ends], np.bool_)[self._of]
        what = np.where(self._operator, self._what, 0)
        what[self._call] = len(self.log.kinds) + self._of
        at = np.flatnonzero(self._operator | calls)
        width = max(len(self.log.places), 1)
        # Two steps: three numbers of a file may be too large for one.
        streams, stream = np.unique(self._own[at], return_inverse=True)
        pairs, pair = np.unique(what[at] * len(streams) + stream, return_inverse=True)
        found, which = np.unique(pair * width + self._place[at], return_inverse=True)
        of = np.full(len(self._kind), -1)
        of[at] = which
        pair, place = np.divmod(found, width)
        work, on = np.divmod(pairs[pair], max(len(streams), 1))
        return of, list(zip(work.tolist(), streams[on].tolist(), place.tolist(), strict=True))

    def works(self) -> list[tuple[str, int, list[Attribute]]]:
        """Return name, type and attributes of all works; a communication of one member has none."""
        found: list[tuple[str, int, list[Attribute]]] = [
            (kind.name, NodeType.COMP_NODE, _work(kind)) for kind in self.log.kinds
        ]
        for each, where in zip(self._different, self._ends, strict=True):
            type_ = _MESSAGES.get(each.type, NodeType.COMM_COLL_NODE)
            found.append((each.type, type_, _transfer(each, where) if where is not None else []))
        return found


def _at(attrs: list[Attribute], stream: int, place: Place) -> list[Attribute]:
    """Return the attributes of a node, with where it runs and where it is from."""
    found: list[Attribute] = [("is_cpu_op", "bool", False), *attrs, ("stream", "int64", stream)]
    if place.module:
        found.append((MODULE, "string", place.module))
    if place.line:
        found.append((LINE, "string", place.line))
    if place.backward:
        found.append((BACKWARD, "bool", True))
    return found


def _follow(main: Ints, rows: Ints, *tables: Any, compiled: bool) -> tuple[Ints, Ints, Ints]:
    """Return nodes, calls and edges of rows; see `RankNodes.waiting`."""
    streams, events, called, most = tables
    kernel = jit.load("armillary.capture.waiting_kernel", "compiled" if compiled else "interpreted")
    fixed: list[Any] = [main, rows, streams, events, called]
    marks: list[Any] = [np.zeros(most, np.int64), np.zeros(2 * most, np.int64)]
    pool, edges = np.zeros(0, np.int64), np.zeros(0, np.int64)
    if not compiled:
        fixed, marks = ([each.tolist() for each in some] for some in (fixed, marks))
    ended = False
    while not ended:
        # Twice as much each time, and at least what the next row needs.
        more = int(fixed[0][w.ROOM])
        pool, edges = (
            np.pad(each.reshape(2, -1), ((0, 0), (0, each.size // 2 + more))).ravel()
            for each in (pool, edges)
        )
        grown = [pool, edges] if compiled else [pool.tolist(), edges.tolist()]
        ended = not kernel.follow(*fixed, grown[0], *marks, grown[1])
        pool, edges = (np.asarray(each, np.int64) for each in grown)
    what, calls = np.asarray(marks[1], np.int64).reshape(2, -1)[:, : fixed[0][w.NODES]]
    return what, calls, edges.reshape(2, -1)[:, : fixed[0][w.EDGES]]


def graphs_of(ranks: Sequence[RankNodes], times: HostTimes, before: Sequence[Node] = ()) -> tuple[Graph, ...]:
    """Return the graphs of ranks, which share the nodes that are alike.

    Args:
        ranks: Their nodes.
        times: Of the host.
        before: Nodes that each graph begins with.
    """
    compiled = sum(len(each.log.rows) for each in ranks) >= _COMPILED_FROM
    number: dict[Any, int] = {}
    works: dict[str, int] = {}
    templates = [Template([each]) for each in before]
    found = []
    for each in ranks:
        what, calls, edges = each.waiting(times, len(before), compiled=compiled)
        of, different = each.different()
        work = each.works()
        # Lists of numbers are told apart by their text.
        same = [works.setdefault(repr(one), len(works)) for one in work]
        own, calls = what[len(before) :], calls[len(before) :]
        # Packed in the order of first nodes; those of the host have numbers below 0.
        key = np.where(own < 0, own + w.SHOOK * calls, of[np.maximum(own, 0)])
        _, first, which = np.unique(key, return_index=True, return_inverse=True)
        packed = np.zeros(len(first), np.int64)
        for at in np.argsort(first, kind="stable").tolist():
            row = int(own[first[at]])
            if row >= 0:
                doing, stream, place = different[of[row]]
                here = each.log.places[place]
                told: Any = same[doing], stream, here
            else:
                told = row, int(calls[first[at]])
            if number.setdefault(told, len(templates)) == len(templates):
                if row >= 0:
                    name, type_, attrs = work[doing]
                    node = Node(0, name, type_, attrs=_at(attrs, stream, here))
                else:
                    node = _of_host(row, int(calls[first[at]]), times)
                templates.append(Template([node]))
            packed[at] = number[told]
        found.append((np.append(np.arange(len(before)), packed[which]), edges))
    parts = [(f"rank {each.log.rank}", copies) for each, (copies, _) in zip(ranks, found, strict=True)]
    shared = PackedGraph(templates, parts)
    inside = shared.columns.rows[DATA_AT], shared.columns.data
    return tuple(
        PlacedGraph(
            shared,
            Placement(copies, np.array([[1, 0, len(copies)]]), (edges[0], edges[1]), {}, inside),
            source,
        )
        for (source, copies), (_, edges) in zip(parts, found, strict=True)
    )


def _of_host(what: int, calls: int, times: HostTimes) -> Node:
    took = {w.CALLED: calls * times.call, w.SYNCHRONISED: times.read, w.SHOOK: times.message}[what]
    node = Node(0, _OF_HOST[what], NodeType.COMP_NODE, duration_micros=(took + 500) // 1000)
    node.attrs = [("is_cpu_op", "bool", True), ("duration_ns", "int64", took), ("tid", "int64", 0)]
    return node


def _work(kind: Kind) -> list[Attribute]:
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
        if "scaled" in kind.name:
            # What quantises its operands was recorded, too.
            attrs.append((SCALING, "string", "current"))
    if kind.attention is not None:
        attrs.append((ATTENTION, "int64_list", list(kind.attention)))
    if not kind.family:
        attrs.append((UNKNOWN, "bool", True))
    return attrs


def _transfer(each: Communication, where: list[Attribute]) -> list[Attribute]:
    """Return what a network model needs to know of a communication."""
    if each.type in ("send", "recv"):
        return [("comm_size", "int64", each.bytes), *where, ("comm_tag", "int32", each.tag % 2**31)]
    type_ = CollectiveType[each.type.upper().replace("-", "_")]
    # Bytes as Chakra counts them: what a rank gives; of a gather or scatter all parts.
    size = each.bytes if each.type in ("gather", "scatter", "broadcast") else each.input
    found = [("comm_type", "int64", int(type_)), ("comm_size", "int64", size), *where]
    if each.splits and sum(each.splits) == each.input:
        found.append(("comm_splits", "int64_list", list(each.splits)))
    return found
