"""Attribute columns of a graph: one attribute of all nodes, converted and checked."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.trace import columns as c
from armillary.trace.columns import (
    BOOL,
    BOOL_LIST,
    BYTES,
    DOUBLE,
    FIXED64,
    FLOAT,
    FLOAT_KINDS,
    INTEGER_KINDS,
    KIND_NAMES,
    RAW,
    STRING,
    UINT64,
    Columns,
    intern,
)

I64 = NDArray[np.int64]
_Read = TypeVar("_Read", bound=Callable[..., Any])


def _kept(read: _Read) -> _Read:
    """Cache what a method of `AttributeColumns` returns, by its arguments; graphs are immutable."""

    @wraps(read)
    def kept(self: AttributeColumns, *key: Any) -> Any:
        of = (read.__name__, *key)
        found = self.kept.get(of)
        if found is None:
            found = self.kept[of] = read(self, *key)
        return found

    return cast(_Read, kept)


class AttributeColumns:
    """The attributes of the nodes of one graph of a batch.

    Attributes:
        columns: those of the batch.
        first: frame of the graph's first node.
        n_nodes: number of nodes.
        source: path of the file, or a label such as "rank 3", for messages.
        kept: results of earlier reads.
    """

    def __init__(self, columns: Columns, first: int, n_nodes: int, source: str) -> None:
        self.columns = columns
        self.first = first
        self.n_nodes = n_nodes
        self.source = source
        self.kept: dict[tuple[Any, ...], Any] = {}

    def name(self, position: int) -> str:
        """Return the name of one node."""
        return self.columns.text(int(self.columns.rows[c.NAME_AT, self.first + position]))

    def node(self, position: int) -> str:
        """Return the text by which messages identify one node: source, id and name."""
        # Ids are uint64 kept in int64: the mask undoes the sign.
        found = int(self.columns.rows[c.ID, self.first + position]) & 0xFFFF_FFFF_FFFF_FFFF
        return f"{self.source}: node {found} '{self.name(position)}'"

    @_kept
    def name_codes(self) -> tuple[I64, list[str]]:
        """Return the names of all nodes as codes, int64 (n_nodes,), and the distinct names."""
        codes, first = intern(self.columns, self.columns.rows[c.NAME_AT, self._frames])
        return codes, [raw.decode() for raw in self.columns.raws(first)]

    @_kept
    def has(self, name: str) -> NDArray[np.bool_]:
        """Return for every node whether it has the attribute, bool (n_nodes,)."""
        result = np.zeros(self.n_nodes, dtype=np.bool_)
        result[self._find(name)[1]] = True
        return result

    @_kept
    def ints(self, name: str, default: int = 0) -> I64:
        """Return an integer attribute of every node, int64 (n_nodes,).

        Args:
            name: the attribute; every integer kind and bool converts.
            default: value of the nodes that do not have it.

        Raises:
            InputError: it is of another kind somewhere, or does not fit into int64.
        """
        nodes, values = self.integers(name)
        if len(nodes) == self.n_nodes and bool(np.all(nodes[1:] > nodes[:-1])):
            return values
        # Zeros take no memory where nothing is written; most attributes are those of few nodes.
        result = np.full(self.n_nodes, default) if default else np.zeros(self.n_nodes, np.int64)
        result[nodes] = values
        return result

    def ints_at(self, at: I64, name: str, default: int = 0) -> I64:
        """Return an integer attribute of the nodes `at`, int64 (len(at),); see `ints`."""
        nodes, values = self.integers(name)
        if not len(nodes):
            return np.full(len(at), default)
        # Mostly an attribute is that of all nodes of a type, and these are asked for.
        return values if np.array_equal(nodes, at) else self.ints(name, default)[at]

    @_kept
    def integers(self, name: str) -> tuple[I64, I64]:
        """Return the nodes that have an integer attribute, ascending, and their values, int64; errors as of `ints`."""
        found, nodes = self._of_kind(name, INTEGER_KINDS, "an integer (such as int64)")
        values = self.columns.attr_value[found]
        kind = self.columns.attr_kind[found]
        # Unsigned values keep their bits, so those from 2**63 on read as negative.
        huge = np.flatnonzero((values < 0) & ((kind == UINT64) | (kind == FIXED64)))
        if len(huge):
            first = int(huge[0])
            raise InputError(
                f"{self.node(int(nodes[first]))}: attribute '{name}' is {int(values[first]) + 2**64}, "
                f"expected at most {2**63 - 1}"
            )
        return nodes, values

    @_kept
    def floats(self, name: str, default: float = 0.0) -> NDArray[np.float64]:
        """Return a numeric attribute of every node as float64 (n_nodes,); see `ints`."""
        kinds = INTEGER_KINDS | FLOAT_KINDS
        found, nodes = self._of_kind(name, kinds, "a number (such as double or int64)")
        bits, kind = self.columns.attr_value[found], self.columns.attr_kind[found]
        # Right for signed integers and bool only; the other kinds reinterpret the bits.
        values = bits.astype(np.float64)
        unsigned = (kind == UINT64) | (kind == FIXED64)
        values[unsigned] = bits[unsigned].view(np.uint64)
        values[kind == DOUBLE] = bits[kind == DOUBLE].view(np.float64)
        values[kind == FLOAT] = bits[kind == FLOAT].astype(np.uint32).view(np.float32)
        result = np.full(self.n_nodes, default, dtype=np.float64)
        result[nodes] = values
        return result

    @_kept
    def strings(self, name: str) -> tuple[NDArray[np.int32], list[str]]:
        """Return a string attribute: codes int32 (n_nodes,), -1 where absent, and the distinct values.

        Raises:
            InputError: it is of another kind somewhere.
        """
        found, nodes = self._of_kind(name, frozenset((STRING,)), "string")
        codes, first = intern(self.columns, self.columns.attr_value[found])
        result = np.full(self.n_nodes, -1, dtype=np.int32)
        result[nodes] = codes
        return result, [raw.decode() for raw in self.columns.raws(first)]

    @_kept
    def bool_lists(self, name: str) -> tuple[NDArray[np.int32], list[tuple[bool, ...]]]:
        """Return a bool_list attribute: codes int32 (n_nodes,), -1 where absent, and the distinct lists.

        Raises:
            InputError: it is of another kind somewhere.
        """
        codes, lists = self._lists(name, frozenset((BOOL_LIST,)), "bool_list")
        return codes, [tuple(bool(item) for item in items) for items in lists]

    @_kept
    def int_lists(self, name: str) -> tuple[NDArray[np.int32], list[tuple[int, ...]]]:
        """Return an attribute that is a list of integers: codes int32 (n_nodes,), -1 where absent, and the lists.

        Raises:
            InputError: it is of another kind somewhere.
        """
        return self._lists(name, frozenset(kind + 1 for kind in INTEGER_KINDS - {BOOL}), "a list of integers")

    def _lists(
        self, name: str, kinds: frozenset[int], wanted: str
    ) -> tuple[NDArray[np.int32], list[tuple[int, ...]]]:
        found, nodes = self._of_kind(name, kinds, wanted)
        columns = self.columns
        lists = columns.attr_value[found]
        index: dict[tuple[int, ...], int] = {}
        # Equal lists share a code, so a caller interprets each distinct list once.
        codes = [
            index.setdefault(tuple(columns.items[first:after].tolist()), len(index))
            for first, after in zip(columns.list_ptr[lists], columns.list_ptr[lists + 1], strict=True)
        ]
        result = np.full(self.n_nodes, -1, dtype=np.int32)
        result[nodes] = codes
        return result, list(index)

    @property
    def _frames(self) -> slice:
        return slice(self.first, self.first + self.n_nodes)

    @_kept
    def _by_name(self) -> tuple[I64, list[int], I64]:
        """Return the attributes of a graph ordered by name, where those of each name begin, and the node of each."""
        # One sort serves all names: a lookup by name is then a slice instead of a scan.
        columns = self.columns
        ends = columns.rows[c.ATTR_AT, self.first : self.first + self.n_nodes + 1]
        names, count = columns.attr_name[int(ends[0]) : int(ends[-1])], len(columns.names)
        # NumPy sorts 16-bit integers by radix, in linear time.
        by_name = np.argsort(names.astype(np.int16) if count < 1 << 15 else names, kind="stable")
        bounds = np.concatenate([[0], np.cumsum(np.bincount(names, minlength=count))])
        return by_name, bounds.tolist(), np.repeat(np.arange(self.n_nodes), np.diff(ends))

    @_kept
    def _find(self, name: str) -> tuple[I64, I64]:
        """Return the attributes called `name` (indices into the batch) and their nodes."""
        code = self.columns.name_code.get(name, -1)
        if code < 0:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        by_name, bounds, nodes = self._by_name()
        found = by_name[bounds[code] : bounds[code + 1]]
        return found + int(self.columns.rows[c.ATTR_AT, self.first]), nodes[found]

    def _of_kind(self, name: str, kinds: frozenset[int], wanted: str) -> tuple[I64, I64]:
        """Return the result of `_find`; refuse attributes of other kinds."""
        found, nodes = self._find(name)
        kind = self.columns.attr_kind[found]
        # A table over all uint8 kinds costs one gather; `np.isin` would sort.
        right = np.zeros(256, np.bool_)
        right[list(kinds)] = True
        wrong = np.flatnonzero(~right[kind])
        if len(wrong):
            first = int(wrong[0])
            raise InputError(
                f"{self.node(int(nodes[first]))}: attribute '{name}' is of kind {KIND_NAMES[kind[first]]}, "
                f"expected {wanted}"
            )
        return found, nodes


def value(columns: Columns, kind: int, bits: int) -> Any:
    """Return one value as a Python object: number, bool, str, bytes, a list of them, None if unset."""
    if kind == 0:
        return None
    # An even kind is the list of the scalar kind before it.
    if not kind & 1:
        items = columns.items[columns.list_ptr[bits] : columns.list_ptr[bits + 1]]
        return [value(columns, kind - 1, item) for item in items.tolist()]
    if kind in (STRING, BYTES, RAW):
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
