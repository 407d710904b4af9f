"""Reader of Chakra files of schema 0.0.1 (January to June 2023): nodes with fixed fields and nothing before them.

Each node is a length and a protobuf message (proto2, ``eg_def.proto``); there is no GlobalMetadata. Lists are written
one field per item, but packed ones are read too, as protobuf wants it.
"""

from __future__ import annotations

from armillary.base import jit
from armillary.base.errors import InputError
from armillary.trace import decode
from armillary.trace.columns import RAW

_wire = jit.load("armillary.trace.wire_kernel", "interpreted")
_PROBLEMS = {
    _wire.TRUNCATED: "expected more bytes of a value here",
    _wire.LONG_VARINT: "expected a varint of at most 64 bits here",
    _wire.LENGTH: "the length given here runs past the end of the message",
    _wire.WIRE: "expected a protobuf field with wire type 0, 1, 2 or 5 here",
    _wire.FIELD: "expected a protobuf field number from 1 to 536870911 here",
}

FIELDS = (
    "", "id", "name", "node_type", "parent", "tensor_loc", "tensor_size", "simulated_run_time", "input_tensor_loc",
    "input_tensor_size", "output_tensor_loc", "output_tensor_size", "num_ops", "comm_type", "involved_dim",
    "communicator_id", "comm_src", "comm_dst", "comm_size", "comm_tag", "comm_priority",
)  # fmt: skip
"""Name of a field by its number."""
_LISTS = frozenset(("parent", "involved_dim"))

Fields = dict[str, int | str | list[int]]
"""The fields that a node has, by name; numbers are unsigned."""


def read_nodes(data: bytes, source: str) -> list[Fields]:
    """Return the nodes of one file.

    Raises:
        InputError: not schema 0.0.1; names the byte, and the schema where it is another one.
    """
    found: list[Fields] = []
    at = 0
    if not data:
        raise InputError(f"{source}: the file is empty, expected nodes of Chakra schema 0.0.1")
    while at < len(data):
        start = at
        size, at = _wire.varint(data, at, len(data))
        where = f"in node message {len(found)}"
        if at < 0 or not 0 <= size <= len(data) - at:
            # A position below 0 is the kernel's error code.
            problem = _PROBLEMS[at if at < 0 else _wire.LENGTH]
            raise InputError(f"{source}: damaged or cut off: byte {start} of {len(data)}, {where}: {problem}")
        node = _node(data, at, at + size, source, where)
        for name in ("id", "name"):
            if name not in node:
                raise _other_schema(data, source, start, where, f"the node has no {name}")
        found.append(node)
        at += size
    return found


def _node(data: bytes, at: int, end: int, source: str, where: str) -> Fields:
    node: Fields = {}
    state = [0] * (_wire.ERROR_AT + 1)
    while at < end:
        number, wire, value, after = _wire.field(data, at, end, state)
        if number < 0:
            raise _other_schema(data, source, at, where, _PROBLEMS[number])
        name = FIELDS[number] if number < len(FIELDS) else ""
        # Wire types of protobuf: 0 is a varint, 2 is length-delimited (text, or a packed list).
        wires = (2,) if name == "name" else (0, 2) if name in _LISTS else (0,) if name else ()
        if wire not in wires:
            problem = f"field {number} of wire type {wire} is not in the schema"
            raise _other_schema(data, source, at, where, problem)
        if name == "name":
            try:
                node[name] = data[value:after].decode()
            except UnicodeDecodeError as error:
                problem = "expected a name in UTF-8"
                raise _other_schema(data, source, value + error.start, where, problem) from error
        elif name in _LISTS:
            items = node.setdefault(name, [])
            assert isinstance(items, list)
            # The kernel returns signed numbers; those of the schema are unsigned.
            items += [value & (2**64 - 1)] if wire == 0 else _packed(data, value, after, source, where)
        else:
            node[name] = value & (2**64 - 1)
        at = after
    return node


def _packed(data: bytes, at: int, end: int, source: str, where: str) -> list[int]:
    items = []
    while at < end:
        start = at
        value, at = _wire.varint(data, at, end)
        if at < 0:
            raise InputError(f"{source}: byte {start} of {len(data)}, {where}: {_PROBLEMS[at]}")
        items.append(value & (2**64 - 1))
    return items


def _other_schema(data: bytes, source: str, at: int, where: str, problem: str) -> InputError:
    """Return the error for a message that is no node of this schema, with the schema that the file seems to have."""
    try:
        # Files of today's schema often parse for a while; one without an unknown field is such a file.
        found = decode(data, source)
        newer = found.unknown_fields == 0 and not (found.attr_kind == RAW).any()
    except InputError:
        newer = False
    if newer:
        return InputError(
            f"{source}: is a Chakra trace of schema 0.0.4 or newer already, expected 0.0.1: use it as it is, with the "
            "name PREFIX.RANK.et"
        )
    return InputError(
        f"{source}: not Chakra schema 0.0.1: byte {at} of {len(data)}, {where}: {problem}; schemas 0.0.2 and 0.0.3 "
        "(June to October 2023, attributes in lists) cannot be converted: write it anew with a newer tool"
    )
