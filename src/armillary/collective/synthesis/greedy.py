"""All-gather on any graph: prepare the tables of `greedy_kernel` and run it."""

from __future__ import annotations

from typing import Any

import numpy as np

from armillary.base.errors import InputError
from armillary.base.jit import Mode, load
from armillary.base.working_memory import at_least
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
from armillary.collective.synthesis.wires import Wires
from armillary.platform.topology.graph import Ints

INTERPRETED_SENDS = 2_000
"""Up to so many sends the interpreted kernel is done before the compiled one is loaded."""


def greedy(wires: Wires, per_npu: int, options: Options = Options(), mode: Mode | None = None) -> Spread:  # noqa: B008
    """Return an all-gather of `per_npu` chunks of every NPU, found by matching lanes with chunks as they become free.

    Raises:
        InputError: an NPU cannot be reached.
    """
    n, chunks = wires.n, wires.n * per_npu
    total = (n - 1) * chunks
    if mode is None:
        mode = "interpreted" if total <= INTERPRETED_SENDS else "compiled"
    level = levels_of(wires.cost)
    rows, region = regions_of(wires, level)
    lane_first, lane_entry, lane_of = wires.lanes
    lane_source = wires.source[lane_entry[lane_first[:-1]]]
    words = -(-chunks // 32)
    full = np.full((int(rows.max()) + 1, words), 0xFFFFFFFF, np.int64)
    if chunks % 32:
        full[:, -1] = (1 << chunks % 32) - 1
    have = np.zeros((n, words), np.int64)
    own = np.arange(chunks)
    bit = 1 << (own % 32)
    np.bitwise_or.at(have, (own // per_npu, own // 32), bit)
    for row in rows:
        np.bitwise_and.at(full, (row[own // per_npu], own // 32), ~bit)
    graph: tuple[Ints, ...] = (
        lane_of, wires.target, region, np.arange(n + 1) * len(rows), np.ascontiguousarray(rows.T).ravel(),
        wires.paths.first, wires.paths.link, wires.duration, wires.latency,
    )  # fmt: skip
    st = np.zeros(STATE, np.int64)
    st[S_RANDOM], st[S_MISSING] = (options.seed * 7919 + 17) & 0x7FFFFFFF, total
    lanes = len(lane_first) - 1
    heap = np.zeros(lanes * H_COLUMNS, np.int64)
    kernel = load("armillary.collective.synthesis.greedy_kernel", mode)
    events = load("armillary.collective.synthesis.event_kernel", "interpreted")
    best = np.lexsort((np.arange(lanes), level[lane_entry[lane_first[:-1]]]))
    for lane in best.tolist():
        events.push(st, heap, 0, -1 - lane)
    sends = np.zeros(total, np.int32), np.zeros(total, np.int32), np.zeros(total, np.int64)
    par = np.array([chunks, words, options.draws, options.loose, wires.after], np.int64)
    node_first = np.searchsorted(lane_source, np.arange(n + 1))
    tables: list[Any] = [
        node_first, lane_first, lane_entry, lane_source, graph, have.ravel(), full.ravel(),
        np.zeros(chunks, np.int64), np.zeros(wires.topology.links, np.int64), np.full(lanes, -1), sends,
    ]  # fmt: skip
    most = 2 * int(np.diff(node_first).max(initial=1))
    more = True
    while more:
        heap = at_least(heap, (int(st[S_HEAP]) + most) * H_COLUMNS, "compiled")
        more = kernel.run(par, st, heap, *tables)
    if st[S_MISSING]:
        if not options.loose:
            return greedy(wires, per_npu, Options(options.seed, options.draws, True), mode)
        raise _lost(wires, tables[6].reshape(-1, words)[:n], per_npu)
    assert st[S_SENDS] == total
    return Spread(wires, per_npu, *sends, int(st[S_END]))


def _lost(wires: Wires, want: Ints, per_npu: int) -> InputError:
    node = int(np.argmax(want.any(axis=1)))
    word = int(np.argmax(want[node] != 0))
    value = int(want[node, word])
    owner = (word * 32 + (value & -value).bit_length() - 1) // per_npu
    name = wires.topology.node_name
    return InputError(
        f"{wires.topology.called}: no way from {name(owner)} to {name(node)}; expected one for an all-gather"
    )
