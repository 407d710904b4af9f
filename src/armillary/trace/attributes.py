"""Attribute columns of a graph: one attribute of all nodes, converted and checked."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.trace import columns as c
from armillary.trace.columns import Columns
from armillary.trace.schema import (
    BOOL,
    BOOL_LIST,
    BYTES,
    DOUBLE,
    FIXED64,
    FLOAT,
    FLOAT_KINDS,
    INTEGER_KINDS,
    KIND_NAMES,
    STRING,
    UINT64,
)
from armillary.trace.texts import intern

if TYPE_CHECKING:
    from armillary.trace.graph import Graph

I64 = NDArray[np.int64]


def _find(graph: Graph, name: str) -> tuple[I64, I64]:
    """Return the attributes called `name` (indices into the batch) and their nodes."""
    found: tuple[I64, I64] = graph._cached(_search, name)
    return found


def names(graph: Graph) -> tuple[I64, list[str]]:
    """See `Graph.name_codes`."""
    codes, first = intern(graph.columns, graph._field(c.NAME_AT))
    return codes, [raw.decode() for raw in graph.columns.raws(first)]


def _search(graph: Graph, name: str) -> tuple[I64, I64]:
    by_name, bounds, nodes = graph._cached(_by_name)
    code = graph.columns.name_code.get(name, -1)
    if code < 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    found = by_name[bounds[code] : bounds[code + 1]]
    return found + int(graph.columns.rows[c.ATTR_AT, graph.first]), nodes[found]


def _by_name(graph: Graph) -> tuple[I64, list[int], I64]:
    """Return the attributes of a graph ordered by name, where those of each name begin, and the node of each."""
    names, count = graph.attr_name, len(graph.columns.names)
    # Of 16 bits, they are sorted by counting.
    by_name = np.argsort(names.astype(np.int16) if count < 1 << 15 else names, kind="stable")
    bounds = np.concatenate([[0], np.cumsum(np.bincount(names, minlength=count))])
    nodes = np.repeat(np.arange(graph.n_nodes), np.diff(graph.attr_ptr))
    return by_name, bounds.tolist(), nodes


def _require(graph: Graph, name: str, found: I64, nodes: I64, kinds: frozenset[int], wanted: str) -> None:
    kind = graph.columns.attr_kind[found]
    right = np.zeros(256, np.bool_)
    right[list(kinds)] = True
    wrong = np.flatnonzero(~right[kind])
    if len(wrong):
        first = int(wrong[0])
        raise InputError(
            f"{graph.node(int(nodes[first]))}: attribute '{name}' is of kind {KIND_NAMES[kind[first]]}, "
            f"expected {wanted}"
        )


def has(graph: Graph, name: str) -> NDArray[np.bool_]:
    """See `Graph.has`."""
    result = np.zeros(graph.n_nodes, dtype=np.bool_)
    result[_find(graph, name)[1]] = True
    return result


def ints(graph: Graph, name: str, default: int) -> I64:
    """See `Graph.ints`."""
    found, nodes = _find(graph, name)
    _require(graph, name, found, nodes, INTEGER_KINDS, "an integer (such as int64)")
    values = graph.columns.attr_value[found]
    kind = graph.columns.attr_kind[found]
    huge = np.flatnonzero((values < 0) & ((kind == UINT64) | (kind == FIXED64)))
    if len(huge):
        first = int(huge[0])
        raise InputError(
            f"{graph.node(int(nodes[first]))}: attribute '{name}' is {int(values[first]) + 2**64}, "
            f"expected at most {2**63 - 1}"
        )
    result = np.full(graph.n_nodes, default, dtype=np.int64)
    result[nodes] = values
    return result


def floats(graph: Graph, name: str, default: float) -> NDArray[np.float64]:
    """See `Graph.floats`."""
    found, nodes = _find(graph, name)
    _require(graph, name, found, nodes, INTEGER_KINDS | FLOAT_KINDS, "a number (such as double or int64)")
    bits, kind = graph.columns.attr_value[found], graph.columns.attr_kind[found]
    values = bits.astype(np.float64)
    unsigned = (kind == UINT64) | (kind == FIXED64)
    values[unsigned] = bits[unsigned].view(np.uint64)
    values[kind == DOUBLE] = bits[kind == DOUBLE].view(np.float64)
    values[kind == FLOAT] = bits[kind == FLOAT].astype(np.uint32).view(np.float32)
    result = np.full(graph.n_nodes, default, dtype=np.float64)
    result[nodes] = values
    return result


def strings(graph: Graph, name: str) -> tuple[NDArray[np.int32], list[str]]:
    """See `Graph.strings`."""
    found, nodes = _find(graph, name)
    _require(graph, name, found, nodes, frozenset((STRING,)), "string")
    codes, first = intern(graph.columns, graph.columns.attr_value[found])
    result = np.full(graph.n_nodes, -1, dtype=np.int32)
    result[nodes] = codes
    return result, [raw.decode() for raw in graph.columns.raws(first)]


def bool_lists(graph: Graph, name: str) -> tuple[NDArray[np.int32], list[tuple[bool, ...]]]:
    """See `Graph.bool_lists`."""
    codes, lists = _lists(graph, name, frozenset((BOOL_LIST,)), "bool_list")
    return codes, [tuple(bool(item) for item in items) for items in lists]


def int_lists(graph: Graph, name: str) -> tuple[NDArray[np.int32], list[tuple[int, ...]]]:
    """See `Graph.int_lists`."""
    return _lists(graph, name, frozenset(kind + 1 for kind in INTEGER_KINDS - {BOOL}), "a list of integers")


def _lists(
    graph: Graph, name: str, kinds: frozenset[int], wanted: str
) -> tuple[NDArray[np.int32], list[tuple[int, ...]]]:
    found, nodes = _find(graph, name)
    _require(graph, name, found, nodes, kinds, wanted)
    columns = graph.columns
    lists = columns.attr_value[found]
    index: dict[tuple[int, ...], int] = {}
    codes = [
        index.setdefault(tuple(columns.items[first:after].tolist()), len(index))
        for first, after in zip(columns.list_ptr[lists], columns.list_ptr[lists + 1], strict=True)
    ]
    result = np.full(graph.n_nodes, -1, dtype=np.int32)
    result[nodes] = codes
    return result, list(index)


def value(columns: Columns, kind: int, bits: int) -> Any:
    """Return one value as a Python object: number, bool, str, bytes, a list of them, None if unset."""
    if kind == 0:
        return None
    if not kind & 1:
        items = columns.items[columns.list_ptr[bits] : columns.list_ptr[bits + 1]]
        return [value(columns, kind - 1, item) for item in items.tolist()]
    if kind in (STRING, BYTES):
        raw = columns.raw(bits)
        return raw.decode() if kind == STRING else raw
    if kind == DOUBLE:
        return struct.unpack("<d", struct.pack("<q", bits))[0]
    if kind == FLOAT:
        return struct.unpack("<f", struct.pack("<I", bits))[0]
    if kind in (UINT64, FIXED64):
        return bits & 0xFFFF_FFFF_FFFF_FFFF
    return bool(bits) if kind == BOOL else bits


def triples(columns: Columns, first: int, after: int) -> list[tuple[str, str, Any]]:
    """Return attributes `first` to `after` as (name, kind, value)."""
    part = slice(first, after)
    rows = zip(
        columns.attr_name[part].tolist(),
        columns.attr_kind[part].tolist(),
        columns.attr_value[part].tolist(),
        strict=True,
    )
    return [(columns.names[name], KIND_NAMES[kind], value(columns, kind, bits)) for name, kind, bits in rows]
