"""Chakra's messages as classes of the protobuf runtime, for scripts that make traces with Chakra's own Python modules.

Armillary itself reads and writes traces as columns, without protobuf. `armillary chakra install --python` writes
modules named like Chakra's, which take their names from here: ``et_def_pb2`` has what `et_def` returns, and
``protolib`` the three functions below.
"""

from __future__ import annotations

import functools
import io
from typing import IO, Any

from armillary.base.errors import InputError
from armillary.base.packing import read_unpacked
from armillary.base.reading import MOST_FILE, StrPath
from armillary.trace.columns import CollectiveType, NodeType

_SCALARS = (
    "double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64",
    "fixed32", "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes",
)  # fmt: skip
_PACKAGE = "ChakraProtoMsg"
_NODE = (
    ("id", "uint64"), ("name", "string"), ("type", "NodeType"), ("ctrl_deps", "uint64*"), ("data_deps", "uint64*"),
    ("start_time_micros", "uint64"), ("duration_micros", "uint64"), ("inputs", "IOInfo"), ("outputs", "IOInfo"),
    ("attr", "AttributeProto*"),
)  # fmt: skip
_TENSOR = ("tensor_id", "storage_id", "offset", "num_elem", "elem_bytes")
_MESSAGES: dict[str, tuple[tuple[str, str], ...]] = {
    **{f"{kind.capitalize()}List": (("values", f"{kind}*"),) for kind in _SCALARS},
    "GlobalMetadata": (("version", "string"), ("attr", "AttributeProto*")),
    "IOInfo": (("values", "string"), ("shapes", "string"), ("types", "string")),
    "Tensor": (*((name, "uint64") for name in _TENSOR), ("device", "string")),
    "Node": _NODE,
}
"""Message -> its fields in the order of their numbers, from 1; ``*``: repeated. `AttributeProto` has a oneof."""


# Once: messages of two modules are then of one class.
@functools.cache
def et_def() -> dict[str, Any]:
    """Return the names of Chakra's ``et_def_pb2`` (schema 0.0.4, of 1.0.0): messages, enumerations and their values.

    Raises:
        InputError: protobuf is not installed.
    """
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
        from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
    except ImportError as error:
        raise InputError(
            "Chakra's messages in Python need protobuf: pip install armillary[chakra]"
        ) from error

    field_type = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="et_def.proto", package=_PACKAGE, syntax="proto3")
    enums: dict[str, Any] = {"NodeType": NodeType, "CollectiveCommType": CollectiveType}
    for name, members in enums.items():
        enum = file.enum_type.add(name=name)
        for member in members:
            enum.value.add(name=member.name, number=member.value)

    def add(message: Any, name: str, number: int, kind: str) -> Any:
        plain = kind.rstrip("*")
        field = message.field.add(name=name, number=number)
        field.label = field_type.LABEL_REPEATED if kind.endswith("*") else field_type.LABEL_OPTIONAL
        if plain in _SCALARS:
            field.type = getattr(field_type, f"TYPE_{plain.upper()}")
        else:
            field.type = field_type.TYPE_ENUM if plain in enums else field_type.TYPE_MESSAGE
            field.type_name = f".{_PACKAGE}.{plain}"
        return field

    attribute = file.message_type.add(name="AttributeProto")
    add(attribute, "name", 1, "string")
    add(attribute, "doc_string", 2, "string")
    attribute.oneof_decl.add(name="value")
    for at, kind in enumerate(_SCALARS):
        for number, name, of in (
            (3 + 2 * at, f"{kind}_val", kind),
            (4 + 2 * at, f"{kind}_list", f"{kind.capitalize()}List"),
        ):
            add(attribute, name, number, of).oneof_index = 0
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, (each, kind) in enumerate(fields, 1):
            add(message, each, number, kind)
    # A pool of its own: the default one may hold an installed Chakra's.
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    made: dict[str, Any] = {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in ("AttributeProto", *_MESSAGES)
    }
    for name, members in enums.items():
        made[name] = EnumTypeWrapper(pool.FindEnumTypeByName(f"{_PACKAGE}.{name}"))
        made |= {member.name: member.value for member in members}
    return made


def write_message(out: IO[bytes], message: Any) -> None:
    """Write a message after its length, a varint (Chakra's ``encodeMessage``)."""
    data = message.SerializeToString()
    length, head = len(data), bytearray()
    while length > 127:
        head.append(length & 127 | 128)
        length >>= 7
    out.write(bytes([*head, length]) + data)


def read_message(stream: IO[bytes], message: Any) -> bool:
    """Read the next message into `message` (Chakra's ``decodeMessage``); False: there is none.

    Raises:
        InputError: the file ends within it, or has no length there.
    """
    length = shift = 0
    while True:
        byte = stream.read(1)
        if not byte:
            if not shift:
                return False
            raise InputError("a Chakra trace ends within the length of a message, expected a whole one")
        length |= (byte[0] & 127) << shift
        shift += 7
        if byte[0] < 128:
            break
        if shift > 28:
            raise InputError("no length of a message, expected a Chakra trace")
    data = stream.read(length)
    if len(data) < length:
        raise InputError(f"a Chakra trace ends within a message of {length} bytes, expected a whole one")
    try:
        message.ParseFromString(data)
    # protobuf has an error of its own, which is a ValueError.
    except Exception as error:
        raise InputError(f"no message of Chakra's schema ({error}), expected a Chakra trace") from error
    return True


def open_messages(path: StrPath) -> IO[bytes]:
    """Return the bytes of a trace to read messages of, plain or packed (Chakra's ``openFileRd``).

    Raises:
        InputError: it cannot be unpacked.
    """
    return io.BytesIO(bytes(read_unpacked(path, MOST_FILE)))
