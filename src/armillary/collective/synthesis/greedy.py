"""All-gather on any graph: prepare the tables of `greedy_kernel` and run it."""

from __future__ import annotations

from typing import Any

import numpy as np

from armillary.base.errors import InputError
from armillary.base.jit import Mode, load
from armillary.base.tables import at_least
from armillary.collective.synthesis.edges import Edges
from armillary.collective.synthesis.event_kernel import (
    H_COLUMNS,
    S_END,
    S_HEAP,
    S_MISSING,
    S_RANDOM,
    S_SENDS,
    STATE,
)
from armillary.collective.synthesis.spread import Options, Spread, levels_of, regions_of
from armillary.platform.topology.graph import Ints

INTERPRETED_SENDS = 2_000
"""Up to this many sends the interpreted kernel finishes before the compiled one is loaded."""


def greedy(edges: Edges, per_npu: int, options: Options = Options(), mode: Mode | None = None) -> Spread:  # noqa: B008
    """Return an all-gather of `per_npu` chunks of every NPU, found by matching ports with chunks as they become free.

    Raises:
        InputError: an NPU cannot be reached.
    """
    n, chunks = edges.n, edges.n * per_npu
    total = (n - 1) * chunks
    if mode is None:
        mode = "interpreted" if total <= INTERPRETED_SENDS else "compiled"
    level = levels_of(edges.cost)
    rows, region = regions_of(edges, level)
    port_first, port_entry, port_of = edges.ports
    port_source = edges.source[port_entry[port_first[:-1]]]
    # Sets of chunks as rows of 32-bit words.
    words = -(-chunks // 32)
    full = np.full((int(rows.max()) + 1, words), 0xFFFFFFFF, np.int64)
    # The last word has bits of real chunks only, or searches would find others.
    if chunks % 32:
        full[:, -1] = (1 << chunks % 32) - 1
    have = np.zeros((n, words), np.int64)
    own = np.arange(chunks)
    bit = 1 << (own % 32)
    np.bitwise_or.at(have, (own // per_npu, own // 32), bit)
    # A region lacks a chunk only if none of its NPUs owns it.
    for row in rows:
        np.bitwise_and.at(full, (row[own // per_npu], own // 32), ~bit)
    graph: tuple[Ints, ...] = (
        port_of, edges.target, region, np.arange(n + 1) * len(rows), np.ascontiguousarray(rows.T).ravel(),
        edges.paths.first, edges.paths.link, edges.duration, edges.latency,
    )  # fmt: skip
    st = np.zeros(STATE, np.int64)
    st[S_RANDOM], st[S_MISSING] = (options.seed * 7919 + 17) & 0x7FFFFFFF, total
    ports = len(port_first) - 1
    heap = np.zeros(ports * H_COLUMNS, np.int64)
    kernel = load("armillary.collective.synthesis.greedy_kernel", mode)
    events = load("armillary.collective.synthesis.event_kernel", "interpreted")
    # Ports with the fastest edges are matched first at time 0.
    best = np.lexsort((np.arange(ports), level[port_entry[port_first[:-1]]]))
    for port in best.tolist():
        events.push(st, heap, 0, -1 - port)
    sends = np.zeros(total, np.int32), np.zeros(total, np.int32), np.zeros(total, np.int64)
    par = np.array([chunks, words, options.draws, options.loose, edges.after], np.int64)
    node_first = np.searchsorted(port_source, np.arange(n + 1))
    tables: list[Any] = [
        node_first, port_first, port_entry, port_source, graph, have.ravel(), full.ravel(),
        np.zeros(chunks, np.int64), np.zeros(edges.topology.links, np.int64), np.full(ports, -1), sends,
    ]  # fmt: skip
    most = 2 * int(np.diff(node_first).max(initial=1))
    more = True
    while more:
        heap = at_least(heap, (int(st[S_HEAP]) + most) * H_COLUMNS, "compiled")
        more = kernel.run(par, st, heap, *tables)
    if st[S_MISSING]:
        # Strict: slow links bring only what a region lacks. If that does not reach all NPUs, start again
        # loosely.
        if not options.loose:
            return greedy(edges, per_npu, Options(options.seed, options.draws, True), mode)
        raise _lost(edges, tables[6].reshape(-1, words)[:n], per_npu)
    assert st[S_SENDS] == total
    return Spread(edges, per_npu, *sends, int(st[S_END]))


def _lost(edges: Edges, want: Ints, per_npu: int) -> InputError:
    node = int(np.argmax(want.any(axis=1)))
    word = int(np.argmax(want[node] != 0))
    value = int(want[node, word])
    owner = (word * 32 + (value & -value).bit_length() - 1) // per_npu
    name = edges.topology.node_name
    return InputError(
        f"{edges.topology.called}: no way from {name(owner)} to {name(node)}; expected one for an all-gather"
    )
