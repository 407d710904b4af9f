"""Nodes of schema 0.0.1 as nodes of today's schema."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeVar

from armillary.base.errors import InputError
from armillary.convert.eg_wire import Fields, read_nodes
from armillary.convert.groups import Groups, groups_node
from armillary.trace import CollectiveType, Graph, Node, NodeType, graph_of
from armillary.trace.node import Attribute
from armillary.trace.structure import validate

T = TypeVar("T")

TYPES = (
    NodeType.INVALID_NODE, NodeType.MEM_LOAD_NODE, NodeType.MEM_STORE_NODE, NodeType.COMP_NODE,
    NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE, NodeType.COMM_COLL_NODE,
)  # fmt: skip
"""By the number of ``node_type``."""
COLLECTIVES = (
    None, CollectiveType.ALL_REDUCE, CollectiveType.ALL_TO_ALL, CollectiveType.ALL_GATHER, CollectiveType.REDUCE_SCATTER
)  # fmt: skip
"""By the number of ``comm_type``."""
LOCAL = 1
"""``tensor_loc`` of local memory; 2 is remote memory, the only one whose accesses took time in a simulator."""
KINDS = {
    "num_ops": "int64",
    "tensor_size": "uint64",
    "comm_size": "int64",
    "comm_src": "int32",
    "comm_dst": "int32",
    "comm_tag": "int32",
    "comm_priority": "int32",
    "tensor_loc": "int32",
    "input_tensor_loc": "int32",
    "input_tensor_size": "uint64",
    "output_tensor_loc": "int32",
    "output_tensor_size": "uint64",
}
"""Fields that become the attribute of the same name, and its kind."""

IDLE = "of no type become compute nodes of no duration"
EMPTY = "collectives of no comm_type become compute nodes of no duration"
NEAR = "accesses to local memory become compute nodes that move tensor_size bytes"


class Meaning:
    """Context that the files lack (cycle time, ranks of communicators), and counts of what was odd in them."""

    def __init__(self, cycle: float, ranks: int, groups: Mapping[int, tuple[int, ...]] | None) -> None:
        """Take ns per cycle, the number of ranks, and the ranks by communicator id, if known."""
        self.cycle = cycle
        self.groups = Groups(ranks)
        self.number = (
            None if groups is None else {i: self.groups.number(members) for i, members in groups.items()}
        )
        self.odd: Counter[str] = Counter()
        self.unknown: Counter[int] = Counter()

    def group(self, communicator: int) -> int:
        """Return the number of the group that a communicator id means; 0 for all ranks."""
        # Also what a node without the field has.
        if communicator == 0:
            return 0
        if self.number is None:
            self.unknown[communicator] += 1
            return 0
        if communicator not in self.number:
            raise InputError(
                f"communicator_id is {communicator}, expected one of --comm-groups: {sorted(self.number)[:8]}"
            )
        return self.number[communicator]

    def warnings(self) -> tuple[str, ...]:
        """Return the oddities, with counts over the distinct files."""
        found = [f"{count} nodes: {what}" for what, count in self.odd.items()]
        found += [
            f"{count} collectives of communicator_id {ident} are taken for collectives of all ranks; "
            "--comm-groups says which it has"
            for ident, count in sorted(self.unknown.items())
        ]
        return tuple(found)


def graph_of_rank(data: bytes, source: str, meaning: Meaning) -> Graph:
    """Return the graph of one file.

    Raises:
        InputError: not of schema 0.0.1, a value out of range, ids that occur twice, or a cycle.
    """
    nodes = []
    for fields in read_nodes(data, source):
        try:
            nodes.append(_node(fields, meaning))
        except InputError as error:
            raise InputError(f"{source}: node {fields['id']} '{fields['name']}': {error}") from error
    # All groups of --comm-groups, whether or not this rank takes part in them.
    if meaning.groups.ranks:
        ident = max((node.id for node in nodes), default=-1) + 1
        nodes.append(groups_node(ident, meaning.groups.ranks))
    graph = graph_of(nodes, source)
    validate(graph)
    return graph


def _node(fields: Fields, meaning: Meaning) -> Node:
    numbers = {name: value for name, value in fields.items() if isinstance(value, int)}
    kind = _named(TYPES, "node_type", numbers)
    attrs: list[Attribute] = [("is_cpu_op", "bool", False)]
    if kind == NodeType.COMM_COLL_NODE:
        operation = _named(COLLECTIVES, "comm_type", numbers)
        if operation is None:
            meaning.odd[EMPTY] += 1
            kind = NodeType.COMP_NODE
        else:
            attrs.append(("comm_type", "int64", int(operation)))
            group = meaning.group(numbers.get("communicator_id", 0))
            attrs += [("pg_name", "string", str(group))] if group else []
    elif kind == NodeType.INVALID_NODE:
        meaning.odd[IDLE] += 1
        kind = NodeType.COMP_NODE
    elif kind in (NodeType.MEM_LOAD_NODE, NodeType.MEM_STORE_NODE) and numbers.get("tensor_loc") == LOCAL:
        # A memory node would be timed as an access to remote memory; local accesses took no time of their own.
        meaning.odd[NEAR] += 1
        kind = NodeType.COMP_NODE
        numbers.setdefault("num_ops", 0)
    attrs += [(name, KINDS[name], numbers[name]) for name in KINDS if name in numbers]
    if dims := _list(fields, "involved_dim"):
        attrs.append(("involved_dim", "bool_list", [dim != 0 for dim in dims]))
    node = Node(numbers["id"], str(fields["name"]), kind, data_deps=_list(fields, "parent"), attrs=attrs)
    if "simulated_run_time" in numbers:
        # duration_micros holds whole µs, as Chakra defines it; duration_ns keeps the exact time beside it.
        ns = round(numbers["simulated_run_time"] * meaning.cycle)
        node.duration_micros = (ns + 500) // 1000
        attrs.append(("duration_ns", "int64", ns))
    return node


def _named(table: Sequence[T], name: str, numbers: Mapping[str, int]) -> T:
    number = numbers.get(name, 0)
    if number >= len(table):
        raise InputError(f"{name} is {number}, expected 0 to {len(table) - 1}")
    return table[number]


def _list(fields: Fields, name: str) -> list[int]:
    found = fields.get(name, [])
    return found if isinstance(found, list) else []
