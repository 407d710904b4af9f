"""A builder to write rank graphs by hand, with the attributes that other Chakra readers expect."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import TypedDict, Unpack

from armillary.base.errors import InputError
from armillary.base.hints import Synonyms, nearest, one_of, show
from armillary.trace._arguments import (
    Operation,
    Size,
    Time,
    bytes_of,
    flag,
    group_of,
    integer,
    nanoseconds,
    operation_of,
    text,
    whole,
)
from armillary.trace.columns import VERSION, CollectiveType, NodeType
from armillary.trace.graph import Graph
from armillary.trace.grid import AXIS
from armillary.trace.node import Attribute, Node, Packer, graph_of

Ids = int | Iterable[int]
"""A node, or several."""
FilePath = str | os.PathLike[str]
_COLLECTIVE, _MESSAGE = ("duration_micros", "group", "dims"), ("tag", "name", "axis")
_ACCESS, _FILE = ("local", "in_switch", "group"), ("path",)
_OPTIONS = {
    NodeType.COMP_NODE: ("duration_micros", "flops", "bytes", "cpu"), NodeType.COMM_COLL_NODE: _COLLECTIVE,
    NodeType.COMM_SEND_NODE: _MESSAGE, NodeType.COMM_RECV_NODE: _MESSAGE, NodeType.MEM_LOAD_NODE: _ACCESS,
    NodeType.MEM_STORE_NODE: _ACCESS, NodeType.CHECKPOINT_NODE: _FILE, NodeType.STORAGE_NODE: _FILE,
}  # fmt: skip
_OTHER_WORDS: Synonyms = {
    **dict.fromkeys(("deps", "dependson", "dependencies", "datadeps", "parents", "requires", "wait"), (("after", ""),)),
    "ctrldeps": (("ctrl_after", ""),),
    **dict.fromkeys(("time", "us", "runtime"), (("duration_micros", ""),)),
    **dict.fromkeys(("ranks", "members", "communicator", "pgname"), (("group", ""),)),
    **dict.fromkeys(("size", "tensorsize"), (("bytes", ""),)), "numops": (("flops", ""),),
}  # fmt: skip


class Order(TypedDict, total=False):
    """Dependencies of a node."""

    after: Ids
    """Ids of the nodes whose results it needs (data dependencies)."""
    ctrl_after: Ids
    """Ids of the nodes that it merely follows (control dependencies)."""


class CollectiveOptions(Order, total=False):
    """Participants and dependencies of a collective."""

    group: int | str | None
    """Number of the communicator group (``pg_name``); None, the default, for all ranks."""
    dims: Sequence[bool] | None
    """For each network dimension whether it takes part (``involved_dim``); None for all."""
    duration_micros: Time


class AccessOptions(Order, total=False):
    """The accessed memory and the ranks that access it."""

    local: bool
    """Whether it is the NPU's own (``tensor_loc``), False by default."""
    in_switch: bool
    """Whether all members of the group load the same data, or their stores are reduced in the network."""
    group: int | str | None
    """Number of that group; None, the default, for all ranks."""


class MessageOptions(Order, total=False):
    """What a message is called, and where the other end is."""

    name: str
    axis: str
    """Name of an axis of the trace's grid (``Trace(graphs, rank_graph, grid)``): `peer` is then how many steps it is on
    along this axis, back where that is negative."""


class GraphBuilder:
    """Collects the nodes of one rank; every method that adds a node returns its id.

    Example:
        >>> b = GraphBuilder()
        >>> forward = b.compute("forward", duration_micros=5)
        >>> reduced = b.all_reduce("gradients", "1 MiB", after=[forward])
        >>> b.graph().n_nodes
        2
    """

    def __init__(self, *, rank: int | None = None, version: str = VERSION, first_id: int = 0) -> None:
        """Start an empty graph.

        Args:
            rank: the rank that runs it; where given, sends and receives name both ends.
            version: GlobalMetadata.version.
            first_id: id of the first node.

        Raises:
            InputError: a value is none of these.
        """
        self.rank = rank if rank is None else integer(rank, "GraphBuilder: rank", "a rank from 0 on", 2**31)
        self.version = text(version, "GraphBuilder: version")
        self.nodes: list[Node] = []
        self._first = self._next = integer(first_id, "GraphBuilder: first_id", "an id from 0 on", 2**64)

    def add(
        self,
        name: str,
        kind: int,
        attrs: Iterable[Attribute] = (),
        *,
        after: Ids = (),
        ctrl_after: Ids = (),
        duration_micros: Time = 0,
    ) -> int:
        """Add a node of type `kind` with exactly these attributes, and ``duration_ns`` where µs are too coarse.

        Raises:
            InputError: a value does not fit its field, or a dependency is no earlier node.
        """
        packer, given = Packer(f"node {show(name)}"), list(attrs)
        packer.where = "attrs"
        for each in given:
            if not isinstance(each, tuple) or not 3 <= len(each) <= 4:
                raise InputError(f"node {show(name)}: attrs: got {show(each)}, expected (name, kind, value)")
            packer.attribute(*each)
        kind = integer(
            kind, f"node {show(name)}: kind", f"a NodeType{nearest(str(kind), NodeType.__members__)}", 2**31
        )
        return self._place(
            name, kind, given, after=after, ctrl_after=ctrl_after, duration_micros=duration_micros
        )

    def _place(
        self,
        name: str,
        kind: int,
        attrs: list[Attribute],
        *,
        after: Ids = (),
        ctrl_after: Ids = (),
        duration_micros: Time = 0,
        **unknown: object,
    ) -> int:
        """Add a node whose attributes fit their kinds."""
        for word in unknown:
            known = ("after", "ctrl_after", *_OPTIONS.get(NodeType(kind), ()))
            raise TypeError(
                f"node {show(name)}: no option {word!r}, expected {one_of(known)}{nearest(word, known, _OTHER_WORDS)}"
            )
        text(name, "name of a node")
        where = f"node {show(name)}"
        ns = nanoseconds(duration_micros, where)
        before = (self._ids(ctrl_after, where, "ctrl_after"), self._ids(after, where, "after"))
        node = Node(self._next, name, kind, *before, 0, ns // 1000, attrs=attrs)
        if ns % 1000:
            node.attrs.append(("duration_ns", "int64", ns))
        self.nodes.append(node)
        self._next += 1
        return node.id

    def wait_for(self, node: int, **order: Unpack[Order]) -> None:
        """Add dependencies to a node that is there: also on nodes that were added after it."""
        where = f"wait_for({show(node)})"
        (at,) = self._ids((node,), where, "node")
        found = self.nodes[at - self._first]
        found.data_deps = (*found.data_deps, *self._ids(order.get("after", ()), where, "after"))
        found.ctrl_deps = (*found.ctrl_deps, *self._ids(order.get("ctrl_after", ()), where, "ctrl_after"))

    def compute(
        self,
        name: str,
        *,
        duration_micros: Time = 0,
        flops: float | None = None,
        bytes: Size | None = None,
        cpu: bool = False,
        **order: Unpack[Order],
    ) -> int:
        """Add a compute node: a measured duration, or FLOPs and bytes moved for a roofline."""
        where = f"node {show(name)}"
        attrs: list[Attribute] = [("is_cpu_op", "bool", flag(cpu, where, "cpu"))]
        if flops is not None:
            attrs.append(("num_ops", "int64", whole(flops, where, "flops", "FLOPs")))
        if bytes is not None:
            attrs.append(("tensor_size", "uint64", bytes_of(bytes, where)))
        return self._place(name, NodeType.COMP_NODE, attrs, duration_micros=duration_micros, **order)

    def collective(
        self,
        name: str,
        operation: Operation,
        size: Size,
        *,
        group: int | str | None = None,
        dims: Sequence[bool] | None = None,
        duration_micros: Time = 0,
        **order: Unpack[Order],
    ) -> int:
        """Add a collective of `size` bytes; see `CollectiveOptions`."""
        where = f"node {show(name)}"
        attrs: list[Attribute] = [
            ("is_cpu_op", "bool", False),
            ("comm_type", "int64", operation_of(operation, where)),
            ("comm_size", "int64", bytes_of(size, where)),
        ]
        if dims is not None:
            flags = list(dims) if isinstance(dims, Iterable) and not isinstance(dims, str) else []
            if not flags or not all(isinstance(each, bool) for each in flags):
                raise InputError(
                    f"{where}: dims: got {show(dims)}, expected True or False for each network dimension"
                )
            attrs.append(("involved_dim", "bool_list", flags))
        attrs += group_of(group, where)
        return self._place(name, NodeType.COMM_COLL_NODE, attrs, duration_micros=duration_micros, **order)

    def all_reduce(self, name: str, size: Size, **options: Unpack[CollectiveOptions]) -> int:
        """Add an all-reduce; see `collective`."""
        return self.collective(name, CollectiveType.ALL_REDUCE, size, **options)

    def all_gather(self, name: str, size: Size, **options: Unpack[CollectiveOptions]) -> int:
        """Add an all-gather; see `collective`."""
        return self.collective(name, CollectiveType.ALL_GATHER, size, **options)

    def reduce_scatter(self, name: str, size: Size, **options: Unpack[CollectiveOptions]) -> int:
        """Add a reduce-scatter; see `collective`."""
        return self.collective(name, CollectiveType.REDUCE_SCATTER, size, **options)

    def all_to_all(self, name: str, size: Size, **options: Unpack[CollectiveOptions]) -> int:
        """Add an all-to-all; see `collective`."""
        return self.collective(name, CollectiveType.ALL_TO_ALL, size, **options)

    def barrier(self, name: str = "barrier", **options: Unpack[CollectiveOptions]) -> int:
        """Add a barrier; see `collective`."""
        return self.collective(name, CollectiveType.BARRIER, 0, **options)

    def send(self, peer: int, size: Size, tag: int = 0, **options: Unpack[MessageOptions]) -> int:
        """Add a send of `size` bytes to rank `peer`; see `MessageOptions`."""
        return self._message(NodeType.COMM_SEND_NODE, "send to", size, peer, tag, **options)

    def recv(self, peer: int, size: Size, tag: int = 0, **options: Unpack[MessageOptions]) -> int:
        """Add a receive of `size` bytes from rank `peer`, of the first message with this tag; see `MessageOptions`."""
        return self._message(NodeType.COMM_RECV_NODE, "recv from", size, peer, tag, **options)

    def _message(
        self,
        kind: NodeType,
        what: str,
        size: Size,
        peer: int,
        tag: int,
        name: str = "",
        axis: str = "",
        **order: Unpack[Order],
    ) -> int:
        name = name or f"{what} {peer}"
        where = f"node {show(name)}"
        if text(axis, f"{where}: axis"):
            peer = integer(peer, f"{where}: peer", "a whole number of steps along the axis", 2**31, -(2**31))
        elif integer(peer, f"{where}: peer", "a rank from 0 on", 2**31) == self.rank:
            raise InputError(f"{where}: peer: got {peer}, the rank of this builder, expected another rank")
        tag = integer(tag, f"{where}: tag", "a whole number from 0 on", 2**31)
        attrs: list[Attribute] = [
            ("is_cpu_op", "bool", False),
            ("comm_size", "int64", bytes_of(size, where)),
        ]
        ends = (self.rank, peer) if kind == NodeType.COMM_SEND_NODE else (peer, self.rank)
        # Without a rank of its own, a builder leaves the own end out.
        attrs += [
            (key, "int32", rank)
            for key, rank in zip(("comm_src", "comm_dst"), ends, strict=True)
            if rank is not None
        ]
        attrs.append(("comm_tag", "int32", tag))
        if axis:
            attrs.append((AXIS, "string", axis))
        return self._place(name, kind, attrs, **order)

    def memory_load(self, name: str, size: Size, **options: Unpack[AccessOptions]) -> int:
        """Add a load of `size` bytes from memory, remote unless `local`; see `AccessOptions`."""
        return self._memory(NodeType.MEM_LOAD_NODE, name, size, **options)

    def memory_store(self, name: str, size: Size, **options: Unpack[AccessOptions]) -> int:
        """Add a store of `size` bytes to memory, remote unless `local`; see `AccessOptions`."""
        return self._memory(NodeType.MEM_STORE_NODE, name, size, **options)

    def _memory(
        self,
        kind: NodeType,
        name: str,
        size: Size,
        local: bool | None = None,
        in_switch: bool = False,
        group: int | str | None = None,
        **order: Unpack[Order],
    ) -> int:
        where = f"node {show(name)}"
        attrs: list[Attribute] = [
            ("is_cpu_op", "bool", False),
            ("tensor_size", "uint64", bytes_of(size, where)),
        ]
        if local is not None:
            # 1 is the NPU's own memory, 2 a remote one.
            attrs.append(("tensor_loc", "uint32", 1 if flag(local, where, "local") else 2))
        if flag(in_switch, where, "in_switch"):
            attrs.append(("in_switch", "bool", True))
        attrs += group_of(group, where)
        return self._place(name, kind, attrs, **order)

    def checkpoint(self, name: str, size: Size, *, path: FilePath = "", **order: Unpack[Order]) -> int:
        """Add a checkpoint of `size` bytes, written to a file (mlcommons/chakra's pull request 216)."""
        return self._file(NodeType.CHECKPOINT_NODE, name, "write", size, path, order)

    def storage(
        self, name: str, size: Size, operation: str = "read", *, path: FilePath = "", **order: Unpack[Order]
    ) -> int:
        """Add an operation on a file: open, close, read, write, pread, pwrite, fsync, fdatasync or sync_file_range."""
        return self._file(NodeType.STORAGE_NODE, name, operation, size, path, order)

    def _file(
        self, kind: NodeType, name: str, operation: str, size: Size, path: FilePath, order: Order
    ) -> int:
        from armillary.trace.storage import storage_field

        where = f"node {show(name)}"
        path = path if isinstance(path, str) else os.fspath(path) if isinstance(path, os.PathLike) else path
        try:
            field = storage_field(
                text(operation, f"{where}: operation"), bytes_of(size, where), text(path, f"{where}: path")
            )
        except ValueError as error:
            raise InputError(f"{where}: {error}") from error
        return self._place(name, kind, [("is_cpu_op", "bool", False), ("", "field", field)], **order)

    def metadata(self, name: str, values: str = "", attrs: Iterable[Attribute] = ()) -> int:
        """Add a metadata node; `values` is its ``IOInfo.inputs.values``."""
        values = text(values, f"node {show(name)}: values")
        ident = self.add(name, NodeType.METADATA_NODE, attrs)
        if values:
            self.nodes[-1].inputs = (values, "", "")
        return ident

    def graph(self, source: str | None = None) -> Graph:
        """Return the graph so far; more nodes may be added afterwards.

        Raises:
            InputError: a value that was changed in `nodes` does not fit its field.
        """
        if source is None:
            source = "<builder>" if self.rank is None else f"rank {self.rank}"
        return graph_of(self.nodes, text(source, "GraphBuilder.graph: source"), self.version)

    def _ids(self, value: Ids, where: str, what: str) -> tuple[int, ...]:
        given = tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else (value,)
        for each in given:
            if isinstance(each, bool) or not isinstance(each, Integral):
                raise InputError(
                    f"{where}: {what}: got {show(value)}, expected ids that earlier calls returned"
                )
            if not self._first <= int(each) < self._next:
                there = (
                    f", from {self._first} to {self._next - 1}" if self.nodes else ": this is the first node"
                )
                raise InputError(
                    f"{where}: {what}: got {show(each)}, expected ids that earlier calls returned{there}"
                )
        return tuple(int(each) for each in given)
