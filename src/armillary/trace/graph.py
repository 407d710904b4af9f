"""One distinct rank graph: columns of nodes in file order."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.trace import columns as c
from armillary.trace.attributes import AttributeColumns, triples
from armillary.trace.columns import KIND_NAMES, Columns


def locate(ids: NDArray[np.uint64], wanted: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the position of every wanted id among `ids`, -1 where there is none."""
    n = len(ids)
    if n == 0:
        return np.full(len(wanted), -1, dtype=np.int64)
    if int(ids[-1]) - int(ids[0]) == n - 1 and bool(np.all(ids[1:] > ids[:-1])):
        # Contiguous ids, the common case: a smaller id wraps to a huge offset.
        offset = wanted - ids[0]
        return np.where(offset < n, offset, np.uint64(2**64 - 1)).view(np.int64)
    # Stable: of equal ids, which checks refuse, the first in the file wins.
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    at = np.minimum(np.searchsorted(ordered, wanted), n - 1)
    return np.where(ordered[at] == wanted, order[at], -1)


def distinct(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the distinct keys in order; `numpy.unique` hashes, which is 100 times slower here."""
    # Files mostly list dependencies in order: then nothing is sorted.
    if bool(np.all(keys[1:] > keys[:-1])):
        return keys
    # Control and data dependencies are two ascending runs, which a stable sort (timsort) merges in linear time.
    keys = np.sort(keys, kind="stable")
    return keys[np.concatenate(([True], keys[1:] > keys[:-1]))]


def distinct_types(types: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return the distinct types of nodes, in order."""
    few = len(types) and int(types.min()) >= 0 and int(types.max()) < 1024
    # Without counts `numpy.unique` imports numpy.ma.
    return (
        np.flatnonzero(np.bincount(types))
        if few
        else np.unique(types, return_counts=True)[0].astype(np.int64)
    )


def resolve(
    ids: NDArray[np.uint64], *dependencies: tuple[NDArray[np.int64], NDArray[np.uint64]]
) -> tuple[NDArray[np.int64], NDArray[np.int32], list[tuple[int, int]]]:
    """Return CSR offsets, positions and the dangling (position, id) pairs; see `Graph.parents`.

    Args:
        ids: Ids of all nodes.
        dependencies: For control and for data dependencies, CSR offsets and ids as written.
    """
    n = len(ids)
    nodes = np.arange(n, dtype=np.int64)
    pairs = [(np.repeat(nodes, np.diff(ptr)), deps) for ptr, deps in dependencies if len(deps)]
    if not pairs:
        return np.zeros(n + 1, dtype=np.int64), np.zeros(0, dtype=np.int32), []
    node = np.concatenate([pair[0] for pair in pairs]) if len(pairs) > 1 else pairs[0][0]
    wanted = np.concatenate([pair[1] for pair in pairs]) if len(pairs) > 1 else pairs[0][1]
    at = locate(ids, wanted)
    missing = at < 0
    dangling: list[tuple[int, int]] = []
    if missing.any():
        dangling = sorted(set(zip(node[missing].tolist(), wanted[missing].tolist(), strict=True)))
        node, at = node[~missing], at[~missing]
    # (node, parent) as one integer: sorting it sorts the CSR and brings repeats together. Divisions are slow.
    bits = n.bit_length()
    key = distinct((node << bits) | at)
    node = key >> bits
    at = key & ((1 << bits) - 1)
    ptr = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(np.bincount(node, minlength=n), out=ptr[1:])
    return ptr, at.astype(np.int32), dangling


I64 = NDArray[np.int64]


class Graph(AttributeColumns):
    """The execution trace of one rank, or of many equal ones; immutable.

    Nodes are in file order and a *position* is an index in that order. Columns are views of the
    batch of files that was decoded together.

    Attributes:
        columns: those of the batch.
        index: which graph of the batch this is.
        first: frame of its first node.
        n_nodes: number of nodes.
        source: path of the file, or a label such as "rank 3", for messages.
    """

    def __init__(self, columns: Columns, index: int, source: str) -> None:
        metadata, after = columns.bounds[index : index + 2]
        super().__init__(columns, metadata + 1, after - metadata - 1, source)
        self.index = index

    def __repr__(self) -> str:
        return f"Graph({self.source!r}, {self.n_nodes} nodes)"

    def _field(self, field: int) -> I64:
        return self.columns.rows[field, self.first : self.first + self.n_nodes]

    def _ptr(self, field: int) -> I64:
        ptr = self.columns.rows[field, self.first : self.first + self.n_nodes + 1]
        # The first graph of a batch needs no copy.
        return ptr - ptr[0] if ptr[0] else ptr

    def _slice(self, field: int) -> slice:
        ends = self.columns.rows[field]
        return slice(int(ends[self.first]), int(ends[self.first + self.n_nodes]))

    @property
    def ids(self) -> NDArray[np.uint64]:
        """Node ids, uint64 (n_nodes,)."""
        return self._field(c.ID).view(np.uint64)

    @cached_property
    def types(self) -> NDArray[np.int32]:
        """`NodeType` of every node, int32 (n_nodes,)."""
        return self._field(c.TYPE).astype(np.int32)

    @property
    def start_micros(self) -> NDArray[np.uint64]:
        """Start times in microseconds, uint64 (n_nodes,)."""
        return self._field(c.START).view(np.uint64)

    @property
    def duration_micros(self) -> NDArray[np.uint64]:
        """Durations in microseconds, uint64 (n_nodes,)."""
        return self._field(c.DURATION).view(np.uint64)

    @cached_property
    def ctrl_ptr(self) -> I64:
        """CSR offsets (n_nodes + 1) into `ctrl_deps`."""
        return self._ptr(c.CTRL_AT)

    @property
    def ctrl_deps(self) -> NDArray[np.uint64]:
        """Ids of control dependencies as written, uint64."""
        return self.columns.ctrl[self._slice(c.CTRL_AT)].view(np.uint64)

    @cached_property
    def data_ptr(self) -> I64:
        """CSR offsets (n_nodes + 1) into `data_deps`."""
        return self._ptr(c.DATA_AT)

    @property
    def data_deps(self) -> NDArray[np.uint64]:
        """Ids of data dependencies as written, uint64."""
        return self.columns.data[self._slice(c.DATA_AT)].view(np.uint64)

    @cached_property
    def attr_ptr(self) -> I64:
        """CSR offsets (n_nodes + 1) into `attr_name`, `attr_kind` and `attr_value`."""
        return self._ptr(c.ATTR_AT)

    @property
    def attr_name(self) -> NDArray[np.int32]:
        """Index of every attribute's name in `attr_names`."""
        return self.columns.attr_name[self._slice(c.ATTR_AT)]

    @property
    def attr_kind(self) -> NDArray[np.uint8]:
        """Kind of every attribute: index into `schema.KIND_NAMES`."""
        return self.columns.attr_kind[self._slice(c.ATTR_AT)]

    @property
    def attr_value(self) -> I64:
        """Value of every attribute, see `Columns.attr_value`."""
        return self.columns.attr_value[self._slice(c.ATTR_AT)]

    @property
    def attr_names(self) -> list[str]:
        """Attribute names (some may belong to other graphs of the same batch)."""
        return self.columns.names

    @property
    def unknown_fields(self) -> int:
        """Number of protobuf fields that the schema does not have; they were skipped."""
        return int(self.columns.unknown[self.index])

    @property
    def version(self) -> str:
        """GlobalMetadata.version."""
        return self.columns.text(int(self.columns.rows[c.NAME_AT, self.first - 1]))

    @cached_property
    def metadata(self) -> list[tuple[str, str, Any]]:
        """GlobalMetadata.attr as (name, kind, value) triples."""
        ends = self.columns.rows[c.ATTR_AT]
        return triples(self.columns, int(ends[self.first - 1]), int(ends[self.first]))

    def attrs(self, position: int) -> list[tuple[str, str, Any]]:
        """Return the attributes of one node as (name, kind, value) triples."""
        ends, frame = self.columns.rows[c.ATTR_AT], self.first + position
        return triples(self.columns, int(ends[frame]), int(ends[frame + 1]))

    def attrs_with_docs(self, position: int) -> list[tuple[str, str, Any] | tuple[str, str, Any, str]]:
        """Return `attrs` of one node, with its doc string as a fourth member where there is one."""
        return self._with_docs(self.attrs(position), self.first + position)

    def metadata_with_docs(self) -> list[tuple[str, str, Any] | tuple[str, str, Any, str]]:
        """Return `metadata` with doc strings, as in `attrs_with_docs`."""
        return self._with_docs(self.metadata, self.first - 1)

    def _with_docs(
        self, found: list[tuple[str, str, Any]], frame: int
    ) -> list[tuple[str, str, Any] | tuple[str, str, Any, str]]:
        # Doc strings are sorted by attribute, so those of a frame are a range.
        first = int(self.columns.rows[c.ATTR_AT, frame])
        low, high = np.searchsorted(self.columns.docs[0], (first, first + len(found)))
        docs = {
            int(at) - first: self.columns.text(int(text)) for at, text in self.columns.docs[:, low:high].T
        }
        return [(*triple, docs[i]) if i in docs else triple for i, triple in enumerate(found)]

    @cached_property
    def _names(self) -> list[str]:
        codes, names = self.name_codes()
        return [names[code] for code in codes.tolist()]

    def names(self) -> list[str]:
        """Return the names of all nodes."""
        return self._names

    def io(self, position: int) -> dict[str, tuple[str, str, str]]:
        """Return the IOInfo of one node: (values, shapes, types) of "inputs" and "outputs", where present."""
        frame = self.first + position
        low, high = np.searchsorted(self.columns.io[0], (frame, frame + 1))
        return {
            ("inputs", "outputs")[int(row[1])]: tuple(self.columns.text(int(text)) for text in row[2:])  # type: ignore[misc]
            for row in self.columns.io[:, low:high].T
        }

    def io_inputs(self, position: int) -> str:
        """Return IOInfo.inputs.values of one node, "" where absent."""
        return self.io(position).get("inputs", ("", "", ""))[0]

    @cached_property
    def _parents(self) -> tuple[I64, NDArray[np.int32], list[tuple[int, int]]]:
        return resolve(self.ids, (self.ctrl_ptr, self.ctrl_deps), (self.data_ptr, self.data_deps))

    def parents(self) -> tuple[I64, NDArray[np.int32]]:
        """Return the dependencies of all nodes as positions, in CSR.

        Control and data dependencies together, sorted, without repetition, dangling ones dropped.

        Returns:
            Offsets, int64 (n_nodes + 1), and positions, int32.
        """
        return self._parents[:2]

    @property
    def dangling(self) -> list[tuple[int, int]]:
        """Dependencies on absent nodes: (position of the node, missing id)."""
        return self._parents[2]

    def attribute_kinds(self) -> dict[str, dict[str, int]]:
        """Return how often each attribute occurs with each kind."""
        # Kinds are below 64: name and kind make one integer.
        keys, counts = np.unique(self.attr_name.astype(np.int64) * 64 + self.attr_kind, return_counts=True)
        kinds: dict[str, dict[str, int]] = {}
        for key, count in zip(keys.tolist(), counts.tolist(), strict=True):
            kinds.setdefault(self.attr_names[key // 64], {})[KIND_NAMES[key % 64]] = count
        return kinds


LIMIT = 1 << 60
"""Ticks, nanoseconds and bytes from here on are refused: sums must stay within int64."""


def duration_ns(graph: Graph) -> NDArray[np.int64]:
    """Return the duration of every node in ns: ``duration_ns`` where present, else ``duration_micros``.

    Raises:
        InputError: a duration is below 0 or 2**60 ns or more, or their sum 2**62 ns.
    """
    micros = graph.duration_micros
    # Clipped above the limit before the multiplication, which would wrap.
    found = np.minimum(micros, np.uint64(LIMIT // 1000 + 1)).astype(np.int64) * 1000
    if "duration_ns" in graph.attr_names:
        found = np.where(graph.has("duration_ns"), graph.ints("duration_ns"), found)
    wrong = np.flatnonzero((found < 0) | (found >= LIMIT))
    if len(wrong):
        at = int(wrong[0])
        exact = graph.ints("duration_ns")[at] if graph.has("duration_ns")[at] else f"{micros[at]} µs"
        raise InputError(f"{graph.node(at)} takes {exact}, expected less than 2**60 ns and no less than 0")
    # In float64 the sum cannot wrap; 2**62 leaves room for its rounding.
    if float(found.sum(dtype=np.float64)) >= 2**62:
        raise InputError(f"{graph.source}: the durations sum to 2**62 ns or more, expected less")
    return found


def exact_sum(values: NDArray[Any]) -> int:
    """Return the sum of integers of 64 bits without wrapping."""
    # Sums of 32-bit halves fit 64 bits for fewer than 2**32 values.
    # Of the same dtype as `values`: uint64 with a Python int would become float64.
    half = np.array(32, dtype=values.dtype)
    low, high = values & np.array(0xFFFF_FFFF, dtype=values.dtype), values >> half
    return int(low.sum()) + (int(high.sum()) << 32)
