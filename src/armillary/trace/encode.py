"""From columns to Chakra ET bytes."""

from __future__ import annotations

import sys

import numpy as np

from armillary import jit
from armillary.trace import columns as c
from armillary.trace.graph import Graph
from armillary.trace.schema import STRING

KERNEL = "armillary.trace.encode_kernel"

COMPILED_FROM = 8000
"""Nodes from which the compiled encoder wins over the interpreted one, loading Numba included."""

COMPILED_FROM_WARM = 100
"""The same once the compiled encoder is loaded."""


def encode(graph: Graph, mode: jit.Mode | None = None) -> bytes:
    """Encode a graph as an uncompressed Chakra ET file, in protobuf's canonical form.

    Args:
        graph: the graph.
        mode: which twin of the encoder; by default the one that is faster for this size.
    """
    columns, first, after = graph.columns, graph.first - 1, graph.first + graph.n_nodes
    mode = mode or choose_mode(graph.n_nodes)
    names = [name.encode() for name in columns.names]
    name_ptr = np.zeros(len(names) + 1, dtype=np.int64)
    np.cumsum([len(name) for name in names], out=name_ptr[1:])
    attrs = slice(int(columns.rows[c.ATTR_AT, first]), int(columns.rows[c.ATTR_AT, after]))
    name_pool = np.frombuffer(b"".join(names), dtype=np.uint8)
    table = (
        columns.ctrl, columns.data, columns.attr_name, columns.attr_kind, columns.attr_value,
        columns.list_ptr, columns.items, columns.string_ptr, columns.pool, columns.io, columns.docs,
        name_ptr, name_pool,
    )  # fmt: skip
    io = np.searchsorted(columns.io[0], (first, after))
    docs = np.searchsorted(columns.docs[0], (attrs.start, attrs.stop))
    out = np.empty(_bound(graph, first, after, attrs, slice(*io), slice(*docs), name_ptr), dtype=np.uint8)
    kernel = jit.load(KERNEL, mode)
    ends = int(io[1]), int(docs[1])
    if mode == "compiled":
        start = kernel.encode(columns.rows, first, after, table, *ends, out)
    else:  # memory views give Python integers
        start = kernel.encode(columns.rows.data, first, after, tuple(a.data for a in table), *ends, out.data)
    return out[start:].tobytes()


def choose_mode(nodes: int) -> jit.Mode:
    """Return the twin of the encoder that is faster for so many nodes in all."""
    warm = f"{KERNEL}:compiled" in sys.modules
    return "compiled" if nodes >= (COMPILED_FROM_WARM if warm else COMPILED_FROM) else "interpreted"


def _bound(
    graph: Graph, first: int, after: int, attrs: slice, io: slice, docs: slice, name_ptr: c.I64
) -> int:
    """Return a number of bytes that suffices; what stays unused is never touched."""
    columns = graph.columns
    texts = np.diff(columns.string_ptr)
    rows = columns.rows[:, first : after + 1]
    deps = int(rows[c.CTRL_AT, -1] - rows[c.CTRL_AT, 0] + rows[c.DATA_AT, -1] - rows[c.DATA_AT, 0])
    kind, value = columns.attr_kind[attrs], columns.attr_value[attrs]
    in_lists = value[(kind & 1 == 0) & (kind > 0)]
    sizes = np.diff(columns.list_ptr)[in_lists]
    total: int = 100 * (after - first) + 10 * deps + 60 * len(kind) + 11 * int(sizes.sum())
    total += int(texts[rows[c.NAME_AT, :-1]].sum() + np.diff(name_ptr)[columns.attr_name[attrs]].sum())
    total += int(texts[value[(kind & 1 == 1) & (kind >= STRING)]].sum() + texts[columns.docs[1, docs]].sum())
    total += 50 * (io.stop - io.start) + int(texts[columns.io[2:, io]].sum())
    text_lists = value[(kind & 1 == 0) & (kind > STRING)]
    if len(text_lists):
        uses = np.repeat(
            np.bincount(text_lists, minlength=len(columns.list_ptr) - 1), np.diff(columns.list_ptr)
        )
        used = uses > 0
        total += int((uses[used] * texts[columns.items[used]]).sum())
    return total
