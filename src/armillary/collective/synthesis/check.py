"""Does a synthesised schedule compute what it should? Real numbers say so."""

from __future__ import annotations

import numpy as np

from armillary.base.jit import Mode, load
from armillary.collective.synthesis.greedy import INTERPRETED_SENDS
from armillary.collective.synthesis.spread import Spread
from armillary.collective.synthesis.synthesize import SynthesizedSchedule


def check_schedule(schedule: SynthesizedSchedule, mode: Mode | None = None) -> None:
    """Run a schedule on random numbers of every NPU, and compare what each ends with the definition.

    Raises:
        ValueError: a send has no data, a link is taken twice at once, or a result is wrong.
    """
    parts = [part for part in (schedule.scatter, schedule.gather) if part]
    for part in parts:
        check_times(part, mode)
    n, chunks = schedule.n, schedule.n * schedule.per_npu
    value = np.random.default_rng(1).integers(0, 1 << 40, (n, chunks))
    owner = np.arange(chunks) // schedule.per_npu
    # The definition: a sum of all vectors, or the owner's value.
    result = value.sum(axis=0) if schedule.scatter else value[owner, np.arange(chunks)]
    if schedule.scatter is None:  # nobody but its owner has a chunk
        value[owner[None] != np.arange(n)[:, None]] = -1
    kernel = load("armillary.collective.synthesis.move_kernel", _mode(parts[0], mode))
    for part in parts:
        move = kernel.scatter if part is schedule.scatter else kernel.gather
        move(part.edge, part.chunk, part.edges.source, part.edges.target, chunks, value.ravel())
    wrong = value != result
    # After a reduce-scatter only the owner's part is defined.
    if schedule.gather is None:
        wrong &= owner[None] == np.arange(n)[:, None]
    if wrong.any():
        node, chunk = np.argwhere(wrong)[0].tolist()
        raise ValueError(f"{schedule.operation}: chunk {chunk} ends wrong at NPU {node}")


def check_times(spread: Spread, mode: Mode | None = None) -> None:
    """Check that each send of an all-gather has its data and its links, and that nobody gets anything twice.

    Raises:
        ValueError: the first send that does not.
    """
    edges, chunks = spread.edges, spread.chunks
    since = np.full((edges.n, chunks), -1, np.int64)
    since[np.arange(chunks) // spread.per_npu, np.arange(chunks)] = 0
    kernel = load("armillary.collective.synthesis.move_kernel", _mode(spread, mode))
    wrong = kernel.check(
        spread.edge, spread.chunk, spread.start, edges.source, edges.target, edges.paths.first, edges.paths.link,
        edges.duration, edges.latency, edges.after, chunks, np.zeros(edges.topology.links, np.int64), since.ravel(),
    )  # fmt: skip
    if wrong >= 0:
        w, c = int(spread.edge[wrong]), int(spread.chunk[wrong])
        name = edges.topology.node_name
        ends = f"{name(int(edges.source[w]))} → {name(int(edges.target[w]))}"
        raise ValueError(f"send {wrong}, chunk {c} {ends} at {int(spread.start[wrong])} ps, cannot be")
    missing = since < 0
    if missing.any():
        node, chunk = np.argwhere(missing)[0].tolist()
        raise ValueError(f"chunk {chunk} never comes to NPU {node}")
    if since.max() != spread.end:
        raise ValueError(f"ends at {spread.end} ps, but the last chunk comes at {int(since.max())} ps")


def _mode(spread: Spread, mode: Mode | None) -> Mode:
    return mode or ("interpreted" if len(spread.edge) <= INTERPRETED_SENDS else "compiled")
