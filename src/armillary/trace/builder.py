"""A builder to write rank graphs by hand, with the attributes that other Chakra readers expect."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from numbers import Integral, Real
from typing import TypedDict, Unpack

from armillary.base.errors import InputError
from armillary.base.hints import show
from armillary.trace.columns import VERSION, CollectiveType, NodeType
from armillary.trace.graph import Graph
from armillary.trace.node import Attribute, Node, graph_of

Size = int | float | str
"""Whole bytes, or text with a unit such as ``"1 GiB"``."""
Time = int | float | str
"""µs, or text with a unit such as ``"1.5 us"``; to the ns."""
Ids = int | Sequence[int]
"""A node, or several."""


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
        """
        self.rank = rank
        self.version = version
        self.nodes: list[Node] = []
        self._next = first_id

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
            InputError: a time or a dependency is none.
        """
        ns = _nanoseconds(duration_micros, name)
        before = (_ids(ctrl_after, name, "ctrl_after"), _ids(after, name, "after"))
        node = Node(self._next, name, kind, *before, 0, ns // 1000)
        node.attrs.extend(attrs)
        if ns % 1000:
            node.attrs.append(("duration_ns", "int64", ns))
        self.nodes.append(node)
        self._next += 1
        return node.id

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
        attrs: list[Attribute] = [("is_cpu_op", "bool", cpu)]
        if flops is not None:
            attrs.append(("num_ops", "int64", _whole(flops, name, "flops", "FLOPs")))
        if bytes is not None:
            attrs.append(("tensor_size", "uint64", _bytes(bytes, name)))
        return self.add(name, NodeType.COMP_NODE, attrs, duration_micros=duration_micros, **order)

    def collective(
        self,
        name: str,
        operation: CollectiveType,
        size: Size,
        *,
        group: int | str | None = None,
        dims: Sequence[bool] | None = None,
        duration_micros: Time = 0,
        **order: Unpack[Order],
    ) -> int:
        """Add a collective of `size` bytes; see `CollectiveOptions`."""
        attrs: list[Attribute] = [
            ("is_cpu_op", "bool", False),
            ("comm_type", "int64", int(operation)),
            ("comm_size", "int64", _bytes(size, name)),
        ]
        if dims is not None:
            attrs.append(("involved_dim", "bool_list", list(dims)))
        if group is not None:
            attrs.append(("pg_name", "string", str(group)))
        return self.add(name, NodeType.COMM_COLL_NODE, attrs, duration_micros=duration_micros, **order)

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

    def send(self, peer: int, size: Size, tag: int = 0, *, name: str = "", **order: Unpack[Order]) -> int:
        """Add a send of `size` bytes to rank `peer`."""
        ends = (("comm_src", self.rank), ("comm_dst", peer))
        return self._message(NodeType.COMM_SEND_NODE, name or f"send to {peer}", size, ends, tag, order)

    def recv(self, peer: int, size: Size, tag: int = 0, *, name: str = "", **order: Unpack[Order]) -> int:
        """Add a receive of `size` bytes from rank `peer`."""
        ends = (("comm_src", peer), ("comm_dst", self.rank))
        return self._message(NodeType.COMM_RECV_NODE, name or f"recv from {peer}", size, ends, tag, order)

    def _message(
        self, kind: int, name: str, size: Size, ends: Iterable[tuple[str, int | None]], tag: int, order: Order
    ) -> int:
        attrs: list[Attribute] = [("is_cpu_op", "bool", False), ("comm_size", "int64", _bytes(size, name))]
        # Without a rank of its own, a builder leaves the own end out.
        attrs += [(key, "int32", rank) for key, rank in ends if rank is not None]
        attrs.append(("comm_tag", "int32", tag))
        return self.add(name, kind, attrs, **order)

    def memory_load(self, name: str, size: Size, **options: Unpack[AccessOptions]) -> int:
        """Add a load of `size` bytes from memory, remote unless `local`; see `AccessOptions`."""
        return self._memory(NodeType.MEM_LOAD_NODE, name, size, **options)

    def memory_store(self, name: str, size: Size, **options: Unpack[AccessOptions]) -> int:
        """Add a store of `size` bytes to memory, remote unless `local`; see `AccessOptions`."""
        return self._memory(NodeType.MEM_STORE_NODE, name, size, **options)

    def _memory(
        self,
        kind: int,
        name: str,
        size: Size,
        local: bool | None = None,
        in_switch: bool = False,
        group: int | str | None = None,
        **order: Unpack[Order],
    ) -> int:
        attrs: list[Attribute] = [("is_cpu_op", "bool", False), ("tensor_size", "uint64", _bytes(size, name))]
        if local is not None:
            # 1 is the NPU's own memory, 2 a remote one.
            attrs.append(("tensor_loc", "uint32", 1 if local else 2))
        if in_switch:
            attrs.append(("in_switch", "bool", True))
        if group is not None:
            attrs.append(("pg_name", "string", str(group)))
        return self.add(name, kind, attrs, **order)

    def checkpoint(self, name: str, size: Size, *, path: str = "", **order: Unpack[Order]) -> int:
        """Add a checkpoint of `size` bytes, written to a file (mlcommons/chakra's pull request 216)."""
        return self._file(NodeType.CHECKPOINT_NODE, name, "write", size, path, order)

    def storage(
        self, name: str, size: Size, operation: str = "read", *, path: str = "", **order: Unpack[Order]
    ) -> int:
        """Add an operation on a file: open, close, read, write, pread, pwrite, fsync, fdatasync or sync_file_range."""
        return self._file(NodeType.STORAGE_NODE, name, operation, size, path, order)

    def _file(self, kind: int, name: str, operation: str, size: Size, path: str, order: Order) -> int:
        from armillary.trace.storage import storage_field

        try:
            field = storage_field(operation, _bytes(size, name), path)
        except ValueError as error:
            raise InputError(f"'{name}': {error}") from error
        return self.add(name, kind, [("is_cpu_op", "bool", False), ("", "field", field)], **order)

    def metadata(self, name: str, values: str = "", attrs: Iterable[Attribute] = ()) -> int:
        """Add a metadata node; `values` is its ``IOInfo.inputs.values``."""
        ident = self.add(name, NodeType.METADATA_NODE, attrs)
        if values:
            self.nodes[-1].inputs = (values, "", "")
        return ident

    def graph(self, source: str | None = None) -> Graph:
        """Return the graph so far; more nodes may be added afterwards.

        Raises:
            InputError: a value does not fit its field.
        """
        if source is None:
            source = "<builder>" if self.rank is None else f"rank {self.rank}"
        return graph_of(self.nodes, source, self.version)


def _bytes(size: Size, name: str) -> int:
    if isinstance(size, str):
        from armillary.base.units import parse_bytes

        try:
            return parse_bytes(size)
        except ValueError as error:
            raise InputError(f"node '{name}': size: {error}") from error
    return _whole(size, name, "size", "bytes")


def _whole(value: object, name: str, what: str, unit: str) -> int:
    """Return a count; 1e9 is one, too."""
    found = _number(value)
    if found is None or found != int(found):
        raise InputError(f"node '{name}': {what}: got {show(value)}, expected a whole number of {unit}")
    return int(found)


def _number(value: object) -> int | float | None:
    """Return a number that is not negative and fits 63 bits, None for anything else; NumPy's are numbers, too."""
    if isinstance(value, bool) or not isinstance(value, int | float | Real):
        return None
    found = int(value) if isinstance(value, Integral) else float(value)
    return found if 0 <= found < 2**64 else None


def _nanoseconds(value: Time, name: str) -> int:
    if isinstance(value, str):
        from armillary.base.units import parse_time

        try:
            return round(parse_time(value))
        except ValueError as error:
            raise InputError(f"node '{name}': duration: {error}") from error
    found = _number(value)
    if found is None:
        raise InputError(
            f"node '{name}': duration: got {show(value)}, expected µs, or a text such as '1.5 us'"
        )
    return found * 1000 if isinstance(found, int) else round(found * 1000)


def _ids(value: Ids, name: str, what: str) -> tuple[int, ...]:
    given: Sequence[object] = value if isinstance(value, Sequence) else (value,)
    if isinstance(value, str) or not all(
        isinstance(each, Integral) and not isinstance(each, bool) for each in given
    ):
        raise InputError(
            f"node '{name}': {what}: got {show(value)}, expected ids that earlier calls returned"
        )
    return tuple(int(each) for each in given)  # type: ignore[call-overload]
