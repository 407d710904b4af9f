"""Collectives of one group that two threads of the backend work on."""

from __future__ import annotations

from pathlib import Path

import armillary
from armillary.convert.pytorch.job import convert_job
from tests.convert.pytorch.recording import Recording, tensor


def rank(number: int, threads: tuple[int, ...]) -> Recording:
    """Return broadcasts issued at once, each of another size, and done by the given threads."""
    rec = Recording(rank=number, world=2)
    free = dict.fromkeys(threads, 5000)
    for at, tid in enumerate(threads):
        elements = 4_000_000 if at == 0 else 1000 * (5 - at)
        inputs = ([tensor(10 + at, elements)], "<Object>", 0, 0, True, -1)
        rec.op("c10d::broadcast_", 1000 * at, 1000 * at + 900, inputs=inputs)
        start, free[tid] = free[tid], free[tid] + 100_000
        rec.gloo("gloo:broadcast", 1000 * at + 800, start, start + 100_000, tid=tid)
    return rec


def test_they_start_in_order_whatever_thread_does_them(tmp_path: Path) -> None:
    """On rank 0 the long one is before the third, on rank 1 before the fourth."""
    converted = convert_job([rank(0, (90, 91, 90, 91)).linked(), rank(1, (90, 91, 91, 90)).linked()])
    study = tmp_path / "study.yaml"
    study.write_text("platform: {network: [{topology: Switch, size: 2, bandwidth: 1 GB/s, latency: 1 us}]}\n")
    result = armillary.simulate(converted.trace, armillary.load_platform(study))
    assert result.total_ticks > 0


def test_none_waits_for_the_end_of_the_one_before() -> None:
    graph = convert_job([rank(0, (90, 91, 92, 93)).linked()]).trace.graph(0)
    ours = [at for at in range(graph.n_nodes) if graph.types[at] == 7]
    assert len(ours) == 4
    waits = [set(graph.data_deps[graph.data_ptr[at] : graph.data_ptr[at + 1]]) for at in ours]
    assert not any(wait & set(graph.ids[ours]) for wait in waits)
