"""The Chakra ET schema: node types, collective types and the kinds of attribute values."""

from __future__ import annotations

from enum import IntEnum

VERSION = "0.0.4"
"""Schema version written into new files; 1.0.0 has the same schema."""


class NodeType(IntEnum):
    """Type of a node (``NodeType`` of et_def.proto)."""

    INVALID_NODE = 0
    METADATA_NODE = 1
    MEM_LOAD_NODE = 2
    MEM_STORE_NODE = 3
    COMP_NODE = 4
    COMM_SEND_NODE = 5
    COMM_RECV_NODE = 6
    COMM_COLL_NODE = 7


class CollectiveType(IntEnum):
    """Value of the attribute ``comm_type`` of a collective (``CollectiveCommType`` of et_def.proto)."""

    ALL_REDUCE = 0
    REDUCE = 1
    ALL_GATHER = 2
    GATHER = 3
    SCATTER = 4
    BROADCAST = 5
    ALL_TO_ALL = 6
    REDUCE_SCATTER = 7
    REDUCE_SCATTER_BLOCK = 8
    BARRIER = 9


_SCALARS = (
    "double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64",
    "fixed32", "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes",
)  # fmt: skip

KIND_NAMES: tuple[str, ...] = ("unset", "", "", *(s + end for s in _SCALARS for end in ("", "_list")))
"""Name of an attribute kind by the field number of its oneof member: 9 is ``int64``, 10 ``int64_list``."""

KINDS: dict[str, int] = {name: number for number, name in enumerate(KIND_NAMES) if name}
"""Field number of the oneof member by kind name; 0 stands for a value that is not set."""

DOUBLE, FLOAT, UINT64, FIXED64, BOOL, BOOL_LIST, STRING, BYTES = 3, 5, 13, 21, 27, 28, 29, 31

INTEGER_KINDS = frozenset(range(7, 29, 2))
FLOAT_KINDS = frozenset((DOUBLE, FLOAT))

RANGES: dict[int, tuple[int, int]] = {
    kind: (-(2**31), 2**31 - 1)
    if name in ("int32", "sint32", "sfixed32")
    else (-(2**63), 2**63 - 1)
    if name in ("int64", "sint64", "sfixed64")
    else (0, 2**32 - 1)
    if name in ("uint32", "fixed32")
    else (0, 2**64 - 1)
    if name in ("uint64", "fixed64")
    else (0, 1)
    for name, kind in KINDS.items()
    if kind in INTEGER_KINDS
}
"""Smallest and largest value of every integer kind."""


COMMUNICATION = (NodeType.COMM_COLL_NODE, NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE)


def type_name(number: int) -> str:
    """Return the name of node type `number`, or the number as text where the schema has no name for it."""
    return NodeType(number).name if number in NodeType.__members__.values() else str(number)
