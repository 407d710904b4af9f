"""A builder to write rank graphs by hand, with the attributes that other Chakra readers expect."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from armillary.errors import InputError
from armillary.trace.graph import Graph
from armillary.trace.node import Attribute, Node, graph_of
from armillary.trace.schema import VERSION, CollectiveType, NodeType

Size = int | str
"""Bytes, or text with a unit such as ``"1 GiB"``."""


class GraphBuilder:
    """Collects the nodes of one rank; every method that adds a node returns its id.

    Sizes are bytes, or text with a unit. ``after`` lists the ids of the nodes whose results a node
    needs (data dependencies), ``ctrl_after`` those it merely follows.

    Example:
        >>> b = GraphBuilder()
        >>> forward = b.compute("forward", duration_micros=5)
        >>> _ = b.all_reduce("gradients", size=1 << 20, after=[forward])
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
        after: Sequence[int] = (),
        ctrl_after: Sequence[int] = (),
        duration_micros: int = 0,
    ) -> int:
        """Add a node of type `kind` with exactly these attributes."""
        node = Node(self._next, name, kind, tuple(ctrl_after), tuple(after), 0, duration_micros)
        node.attrs.extend(attrs)
        self.nodes.append(node)
        self._next += 1
        return node.id

    def compute(
        self,
        name: str,
        *,
        duration_micros: int = 0,
        flops: int | None = None,
        bytes: Size | None = None,
        cpu: bool = False,
        after: Sequence[int] = (),
        ctrl_after: Sequence[int] = (),
    ) -> int:
        """Add a compute node: a measured duration, or FLOPs and bytes moved for a roofline."""
        attrs: list[Attribute] = [("is_cpu_op", "bool", cpu)]
        if flops is not None:
            attrs.append(("num_ops", "int64", flops))
        if bytes is not None:
            attrs.append(("tensor_size", "uint64", _bytes(bytes, name)))
        return self.add(
            name,
            NodeType.COMP_NODE,
            attrs,
            after=after,
            ctrl_after=ctrl_after,
            duration_micros=duration_micros,
        )

    def collective(
        self,
        name: str,
        operation: CollectiveType,
        size: Size,
        *,
        group: int | str | None = None,
        dims: Sequence[bool] | None = None,
        duration_micros: int = 0,
        after: Sequence[int] = (),
        ctrl_after: Sequence[int] = (),
    ) -> int:
        """Add a collective.

        Args:
            name: name of the node.
            operation: what it does.
            size: bytes, as ``comm_size``.
            group: number of the communicator group (``pg_name``); None for all ranks.
            dims: for each network dimension whether it takes part; None for all.
            duration_micros: measured duration.
            after: ids of the nodes it needs.
            ctrl_after: ids of the nodes it follows.
        """
        attrs: list[Attribute] = [
            ("is_cpu_op", "bool", False),
            ("comm_type", "int64", int(operation)),
            ("comm_size", "int64", _bytes(size, name)),
        ]
        if dims is not None:
            attrs.append(("involved_dim", "bool_list", list(dims)))
        if group is not None:
            attrs.append(("pg_name", "string", str(group)))
        return self.add(
            name,
            NodeType.COMM_COLL_NODE,
            attrs,
            after=after,
            ctrl_after=ctrl_after,
            duration_micros=duration_micros,
        )

    def all_reduce(
        self,
        name: str,
        size: Size,
        *,
        group: int | str | None = None,
        dims: Sequence[bool] | None = None,
        after: Sequence[int] = (),
        ctrl_after: Sequence[int] = (),
    ) -> int:
        """Add an all-reduce; see `collective`."""
        return self.collective(
            name, CollectiveType.ALL_REDUCE, size, group=group, dims=dims, after=after, ctrl_after=ctrl_after
        )

    def all_gather(
        self,
        name: str,
        size: Size,
        *,
        group: int | str | None = None,
        dims: Sequence[bool] | None = None,
        after: Sequence[int] = (),
        ctrl_after: Sequence[int] = (),
    ) -> int:
        """Add an all-gather; see `collective`."""
        return self.collective(
            name, CollectiveType.ALL_GATHER, size, group=group, dims=dims, after=after, ctrl_after=ctrl_after
        )

    def reduce_scatter(
        self,
        name: str,
        size: Size,
        *,
        group: int | str | None = None,
        dims: Sequence[bool] | None = None,
        after: Sequence[int] = (),
        ctrl_after: Sequence[int] = (),
    ) -> int:
        """Add a reduce-scatter; see `collective`."""
        return self.collective(
            name,
            CollectiveType.REDUCE_SCATTER,
            size,
            group=group,
            dims=dims,
            after=after,
            ctrl_after=ctrl_after,
        )

    def all_to_all(
        self,
        name: str,
        size: Size,
        *,
        group: int | str | None = None,
        dims: Sequence[bool] | None = None,
        after: Sequence[int] = (),
        ctrl_after: Sequence[int] = (),
    ) -> int:
        """Add an all-to-all; see `collective`."""
        return self.collective(
            name, CollectiveType.ALL_TO_ALL, size, group=group, dims=dims, after=after, ctrl_after=ctrl_after
        )

    def barrier(
        self,
        name: str = "barrier",
        *,
        group: int | str | None = None,
        after: Sequence[int] = (),
        ctrl_after: Sequence[int] = (),
    ) -> int:
        """Add a barrier; see `collective`."""
        return self.collective(
            name, CollectiveType.BARRIER, 0, group=group, after=after, ctrl_after=ctrl_after
        )

    def send(
        self,
        peer: int,
        size: Size,
        tag: int = 0,
        *,
        name: str = "",
        after: Sequence[int] = (),
        ctrl_after: Sequence[int] = (),
    ) -> int:
        """Add a send of `size` bytes to rank `peer`."""
        return self._message(
            NodeType.COMM_SEND_NODE, self.rank, peer, size, tag, name or f"send to {peer}", after, ctrl_after
        )

    def recv(
        self,
        peer: int,
        size: Size,
        tag: int = 0,
        *,
        name: str = "",
        after: Sequence[int] = (),
        ctrl_after: Sequence[int] = (),
    ) -> int:
        """Add a receive of `size` bytes from rank `peer`."""
        return self._message(
            NodeType.COMM_RECV_NODE,
            peer,
            self.rank,
            size,
            tag,
            name or f"recv from {peer}",
            after,
            ctrl_after,
        )

    def _message(
        self,
        kind: NodeType,
        source: int | None,
        target: int | None,
        size: Size,
        tag: int,
        name: str,
        after: Sequence[int],
        ctrl_after: Sequence[int],
    ) -> int:
        attrs: list[Attribute] = [("is_cpu_op", "bool", False), ("comm_size", "int64", _bytes(size, name))]
        for key, rank in (("comm_src", source), ("comm_dst", target)):
            if rank is not None:
                attrs.append((key, "int32", rank))
        attrs.append(("comm_tag", "int32", tag))
        return self.add(name, kind, attrs, after=after, ctrl_after=ctrl_after)

    def memory_load(
        self, name: str, size: Size, *, after: Sequence[int] = (), ctrl_after: Sequence[int] = ()
    ) -> int:
        """Add a load of `size` bytes from remote memory."""
        return self._memory(NodeType.MEM_LOAD_NODE, name, size, after, ctrl_after)

    def memory_store(
        self, name: str, size: Size, *, after: Sequence[int] = (), ctrl_after: Sequence[int] = ()
    ) -> int:
        """Add a store of `size` bytes to remote memory."""
        return self._memory(NodeType.MEM_STORE_NODE, name, size, after, ctrl_after)

    def _memory(
        self, kind: NodeType, name: str, size: Size, after: Sequence[int], ctrl_after: Sequence[int]
    ) -> int:
        attrs: list[Attribute] = [("is_cpu_op", "bool", False), ("tensor_size", "uint64", _bytes(size, name))]
        return self.add(name, kind, attrs, after=after, ctrl_after=ctrl_after)

    def metadata(self, name: str, values: str = "", attrs: Iterable[Attribute] = ()) -> int:
        """Add a metadata node; `values` is its ``IOInfo.inputs.values``."""
        ident = self.add(name, NodeType.METADATA_NODE, attrs)
        if values:
            self.nodes[-1].inputs = (values, "", "")
        return ident

    def graph(self, source: str | None = None) -> Graph:
        """Return the graph; the builder can go on.

        Raises:
            InputError: a value does not fit its field.
        """
        if source is None:
            source = "<builder>" if self.rank is None else f"rank {self.rank}"
        return graph_of(self.nodes, source, self.version)


def _bytes(size: Size, name: str) -> int:
    if isinstance(size, str):
        from armillary.units import parse_bytes

        try:
            return parse_bytes(size)
        except ValueError as error:
            raise InputError(f"node '{name}': size: {error}") from error
    return size
