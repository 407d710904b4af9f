"""Encoding of columns to Chakra ET bytes."""

from __future__ import annotations

import sys

import numpy as np
from numpy.typing import NDArray

from armillary.base import jit
from armillary.trace import columns as c
from armillary.trace.columns import STRING
from armillary.trace.graph import Graph

KERNEL = "armillary.trace.encode_kernel"

COMPILED_FROM = 15_000
"""Nodes from which the compiled encoder wins over the interpreted one, loading Numba included."""

COMPILED_FROM_WARM = 100
"""The same once the compiled encoder is loaded."""


def encode(graph: Graph, mode: jit.Mode | None = None) -> bytes:
    """Encode a graph as an uncompressed Chakra ET file, in protobuf's canonical form.

    Args:
        graph: the graph.
        mode: which form of the encoder; by default the one that is faster for this size.
    """
    return encode_frames(graph, 0, graph.n_nodes + 1, mode or choose_mode(graph.n_nodes)).tobytes()


def encode_frames(
    graph: Graph, begin: int, end: int, mode: jit.Mode, ends: c.I64 | None = None
) -> NDArray[np.uint8]:
    """Encode frames `begin` to `end` of a graph as uint8 (bytes,); frame 0 is its GlobalMetadata, frame n node n - 1.

    Args:
        graph: the graph.
        begin: the first frame.
        end: the frame after the last.
        mode: which form of the encoder.
        ends: filled with the position in the result where the value of each attribute in these frames ends.
    """
    # Frame numbers of the graph become columns of its batch; its GlobalMetadata is first - 1.
    columns, first, after = graph.columns, graph.first - 1 + begin, graph.first - 1 + end
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
    # Both tables are sorted by frame, or attribute: the part of these frames is a range.
    io = np.searchsorted(columns.io[0], (first, after))
    docs = np.searchsorted(columns.docs[0], (attrs.start, attrs.stop))
    out = np.empty(_bound(graph, first, after, attrs, slice(*io), slice(*docs), name_ptr), dtype=np.uint8)
    kernel = jit.load(KERNEL, mode)
    last = int(io[1]), int(docs[1])
    # An empty array means that no ends are wanted: Numba compiles no second signature.
    stops = np.empty(0, np.int64) if ends is None else ends
    if mode == "compiled":
        start = kernel.encode(columns.rows, graph.first - 1, first, after, table, *last, out, stops)
    else:  # memory views give Python integers
        views = tuple(a.data for a in table)
        start = kernel.encode(
            columns.rows.data, graph.first - 1, first, after, views, *last, out.data, stops.data
        )
    if ends is not None:
        # The kernel counts from the start of `out`, the result begins at `start`.
        ends -= start
    return out[start:]


def choose_mode(nodes: int) -> jit.Mode:
    """Return the form of the encoder that is faster for so many nodes in all."""
    warm = f"{KERNEL}:compiled" in sys.modules
    return "compiled" if nodes >= (COMPILED_FROM_WARM if warm else COMPILED_FROM) else "interpreted"


def _bound(
    graph: Graph, first: int, after: int, attrs: slice, io: slice, docs: slice, name_ptr: c.I64
) -> int:
    """Return an upper bound on the encoded bytes; memory that stays unused is never touched."""
    columns = graph.columns
    texts = np.diff(columns.string_ptr)
    rows = columns.rows[:, first : after + 1]
    deps = int(rows[c.CTRL_AT, -1] - rows[c.CTRL_AT, 0] + rows[c.DATA_AT, -1] - rows[c.DATA_AT, 0])
    kind, value = columns.attr_kind[attrs], columns.attr_value[attrs]
    in_lists = value[(kind & 1 == 0) & (kind > 0)]
    sizes = np.diff(columns.list_ptr)[in_lists]
    # Upper bounds in bytes: 10 for a varint of 64 bits, tags and lengths rounded up.
    total: int = 100 * (after - first) + 10 * deps + 60 * len(kind) + 11 * int(sizes.sum())
    total += int(texts[rows[c.NAME_AT, :-1]].sum() + np.diff(name_ptr)[columns.attr_name[attrs]].sum())
    total += int(texts[value[(kind & 1 == 1) & (kind >= STRING)]].sum() + texts[columns.docs[1, docs]].sum())
    total += 50 * (io.stop - io.start) + int(texts[columns.io[2:, io]].sum())
    text_lists = value[(kind & 1 == 0) & (kind > STRING)]
    # A text counts as often as lists that are used repeat it.
    if len(text_lists):
        uses = np.repeat(
            np.bincount(text_lists, minlength=len(columns.list_ptr) - 1), np.diff(columns.list_ptr)
        )
        used = uses > 0
        total += int((uses[used] * texts[columns.items[used]]).sum())
    return total
