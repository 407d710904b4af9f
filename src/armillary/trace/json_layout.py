"""Graphs as JSON, without loss.

The layout is an object with ``format``, ``version`` (GlobalMetadata.version), ``metadata``
(attributes) and ``nodes``; or just the list of nodes. A node has ``id``, ``name``, ``type`` (name, or
number where the schema has none), ``ctrl_deps``, ``data_deps``, ``start_micros``, ``duration_micros``,
``inputs`` and ``outputs`` (IOInfo as [values, shapes, types]) and ``attrs``; what is left out has the
default. An attribute is [name, kind, value] or [name, kind, value, doc string]. Bytes are base64;
NaN and the infinities are the strings "NaN", "Infinity" and "-Infinity".
"""

from __future__ import annotations

import base64
import binascii
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from armillary.base.errors import InputError, nearest, one_of
from armillary.base.files import replacing
from armillary.base.json_text import parse_json
from armillary.base.text import json_text
from armillary.trace.columns import VERSION, NodeType, type_name
from armillary.trace.graph import Graph
from armillary.trace.node import Attribute, Node, graph_of, node_at

FORMAT = "armillary-trace-1"

_PIECE = 4096

_FILE_KEYS = ("format", "version", "metadata", "nodes")
_NODE_KEYS = (
    "id", "name", "type", "ctrl_deps", "data_deps", "start_micros", "duration_micros", "inputs", "outputs",
    "attrs",
)  # fmt: skip
_TYPES = {member.name: int(member) for member in NodeType}
_DEFAULTS = Node()


def graph_to_json(graph: Graph) -> str:
    """Return the graph as JSON text, one line per node."""
    return "".join(json_pieces(graph))


def json_pieces(graph: Graph) -> Iterator[str]:
    """Yield the text of `graph_to_json` piece by piece, for graphs that are big."""
    head = {"format": FORMAT, "version": graph.version, "metadata": _attrs(graph.metadata_with_docs())}
    # The head without its closing brace, so that nodes can be streamed behind it.
    yield f'{json_text(head)[:-1]}, "nodes": [\n'
    for first in range(0, graph.n_nodes, _PIECE):
        positions = range(first, min(first + _PIECE, graph.n_nodes))
        lines = [json_text(node_to_dict(node_at(graph, i))) for i in positions]
        yield (",\n" if first else "") + ",\n".join(lines)
    yield "\n]}\n"


def write_json(path: str | os.PathLike[str], graph: Graph) -> None:
    """Write the text of `graph_to_json` to a file, without ever holding all of it.

    Raises:
        InputError: the file cannot be written.
    """
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as stream:
        stream.writelines(json_pieces(graph))


def graph_from_json(text: str | bytes, source: str = "<json>") -> Graph:
    """Read a graph that `graph_to_json` wrote, or a list of nodes in that layout.

    Raises:
        InputError: the text is not such JSON; names the node, the key and what was expected.
    """
    try:
        data = parse_json(text, source)
    except ValueError as error:
        raise InputError(f"{source}: not JSON ({error}), expected a trace in JSON") from error
    if isinstance(data, list):
        return graph_from_nodes(data, source)
    if not isinstance(data, dict):
        raise InputError(f"{source}: expected an object with 'nodes', or a list of nodes")
    _known(data, _FILE_KEYS, source)
    if data.get("format", FORMAT) != FORMAT:
        raise InputError(f"{source}: format is {data['format']!r}, expected {FORMAT!r}")
    if not isinstance(data.get("nodes"), list):
        raise InputError(f"{source}: 'nodes' is {data.get('nodes')!r}, expected a list of nodes")
    metadata = _read_attrs(data.get("metadata", []), f"{source}: metadata")
    return graph_from_nodes(data["nodes"], source, data.get("version", ""), metadata)


def graph_from_nodes(
    nodes: Sequence[Mapping[str, Any]],
    source: str = "<nodes>",
    version: str = VERSION,
    metadata: Sequence[Attribute] = (),
) -> Graph:
    """Return the graph of nodes given as mappings, in the layout of this module."""
    return graph_of([_read_node(node, i, source) for i, node in enumerate(nodes)], source, version, metadata)


def plain(value: Any) -> Any:
    """Return an attribute's value as JSON can hold it."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return [plain(item) for item in value] if isinstance(value, list) else value


def node_to_dict(node: Node) -> dict[str, Any]:
    """Return the node as a JSON object, without the keys that have their default."""
    found: dict[str, Any] = {"id": node.id, "name": node.name, "type": type_name(node.type)}
    if found["type"] == str(node.type):
        # Types without a name stay numbers: a text would not be read back.
        found["type"] = node.type
    for key in _NODE_KEYS[3:-1]:
        value = getattr(node, key)
        if value != getattr(_DEFAULTS, key):
            found[key] = list(value) if isinstance(value, tuple) else value
    # A list without entries is the default, too, but not equal to an empty tuple.
    for key in ("ctrl_deps", "data_deps"):
        if not found.get(key, True):
            del found[key]
    return found | {"attrs": _attrs(node.attrs)}


def _attrs(attrs: Sequence[Attribute]) -> list[list[Any]]:
    return [[name, kind, plain(value), *doc] for name, kind, value, *doc in attrs]


def _known(data: Mapping[str, Any], keys: Sequence[str], where: str) -> None:
    for key in data:
        if key not in keys:
            raise InputError(
                f"{where}: unknown key {key!r}, expected {one_of(keys)}{nearest(str(key), keys)}"
            )


def _read_node(data: Any, index: int, source: str) -> Node:
    if not isinstance(data, Mapping):
        raise InputError(f"{source}: node number {index} is {data!r}, expected an object")
    where = f"{source}: node {data.get('id', f'number {index}')}"
    _known(data, _NODE_KEYS, where)
    node = Node(**{key: data[key] for key in _NODE_KEYS[:-1] if key in data})
    if isinstance(node.type, str):
        if node.type not in _TYPES:
            raise InputError(
                f"{where}: type is {node.type!r}, expected {one_of(_TYPES)}{nearest(node.type, _TYPES)}"
            )
        node.type = _TYPES[node.type]
    for key in ("ctrl_deps", "data_deps"):
        if not isinstance(getattr(node, key), (list, tuple)):
            raise InputError(f"{where}: {key} is {getattr(node, key)!r}, expected a list of node ids")
    for key in ("inputs", "outputs"):
        info = getattr(node, key)
        if info is not None:
            if not isinstance(info, (list, tuple)) or len(info) != 3:
                raise InputError(f"{where}: {key} is {info!r}, expected [values, shapes, types]")
            setattr(node, key, tuple(info))
    node.attrs = _read_attrs(data.get("attrs", []), where)
    return node


def _read_attrs(attrs: Any, where: str) -> list[Attribute]:
    if not isinstance(attrs, (list, tuple)):
        raise InputError(f"{where}: attributes are {attrs!r}, expected a list of [name, kind, value]")
    found: list[Attribute] = []
    for attr in attrs:
        if not isinstance(attr, (list, tuple)) or len(attr) not in (3, 4):
            raise InputError(f"{where}: attribute {attr!r}, expected [name, kind, value]")
        name, kind, value, *doc = attr
        found.append((name, kind, _value(kind, value, f"{where}: attribute {name!r}"), *doc))
    return found


def _value(kind: Any, value: Any, where: str) -> Any:
    if isinstance(kind, str) and kind.endswith("_list") and isinstance(value, list):
        return [_value(kind.removesuffix("_list"), item, where) for item in value]
    if kind in ("bytes", "field") and isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError) as error:
            raise InputError(f"{where} is {value!r}, expected base64 ({error})") from error
    if kind in ("double", "float") and value in ("NaN", "Infinity", "-Infinity"):
        return float(value)
    return value
