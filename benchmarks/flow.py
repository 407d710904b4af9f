"""How fast network model `flow` shares links; one JSON line per case.

`seconds` is the wall time of the best of `runs`, with warm kernels and without the search for routes: that is
`routing`. `cpu` is the processor time of the best. `events` counts the messages that end and arrive. `limit` is the
claim on `seconds`.

Usage: python benchmarks/flow.py
"""

from __future__ import annotations

import json
import resource
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.jit import load
from armillary.engine.transport import layout as lk
from armillary.engine.transport.flow import Flow
from armillary.engine.transport.network import Routes, Stage, lower_network
from armillary.engine.transport.offer import BUDGET
from armillary.engine.transport.transport import Room, first_state
from armillary.platform.topology.graph import Topology
from armillary.platform.topology.routing import Ecmp
from armillary.platform.topology.trees import fat_tree, leaf_spine

Ints = NDArray[np.int64]


class Rounds:
    """Messages on a network in rounds: each begins when the one before has arrived."""

    def __init__(self, topology: Topology, source: Ints, target: Ints) -> None:
        start = time.perf_counter()
        self.topology, self.transport, routes = topology, Flow(), Routes()
        stage = Stage(0.0, Ecmp(topology))
        routes.add(stage, source, target, np.arange(len(source)))
        transport = self.transport
        self.table = lower_network([stage], routes, transport.options(topology), transport.tables(topology))
        self.routes = routes.count
        self.routing = time.perf_counter() - start

    def run(self, rounds: list[tuple[Ints, Ints]]) -> tuple[float, float, int, int]:
        """Run rounds of (routes, sizes); returns seconds, those of the processor, ps of the end, and events."""
        kernel = load(
            "armillary.engine.transport.offer_kernel",
            "compiled",
            "armillary.engine.transport.flow.flow_kernel",
        )
        net, room = (
            first_state(self.transport, self.topology, "compiled", self.routes),
            Room(self.transport, "compiled"),
        )
        now = 0
        start, cpu = time.perf_counter(), time.process_time()
        for routes, sizes in rounds:
            offers = np.zeros((len(routes), 4), np.int64)
            offers[:, 0], offers[:, 1], offers[:, 2] = now, routes, sizes
            arrived = np.full(len(routes), -1, np.int64)
            number = 0
            while number < len(routes) or net[lk.N_IN_FLIGHT] > 0:
                room.fit(net)
                number = kernel.run(
                    self.table, net, room.pool, room.queue, offers.ravel(), arrived, number, BUDGET
                )
            now = int(arrived.max())
        return time.perf_counter() - start, time.process_time() - cpu, now, int(net[lk.N_EVENTS])


def row(
    name: str, made: Rounds, rounds: list[tuple[Ints, Ints]], runs: int = 1, **claims: float
) -> dict[str, Any]:
    """Return what a case takes."""
    best = min(made.run(rounds) for _ in range(runs))
    messages = sum(len(routes) for routes, _ in rounds)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "name": name, "seconds": round(best[0], 3), "cpu": round(best[1], 3), "peak_mib": round(peak),
        "routing": round(made.routing, 3), "messages": messages, "events": best[3],
        "ends_ms": best[2] / 1e9, "runs": runs, **claims,
    }  # fmt: skip


def shift_rounds(name: str, topology: Topology, **claims: float) -> dict[str, Any]:
    """All-to-all of 1 MB: in round k every NPU sends to the one k further."""
    count = topology.npus
    shift, npu = (part.ravel() for part in np.indices((count - 1, count)))
    made = Rounds(topology, npu, (npu + shift + 1) % count)
    sizes = np.full(count, 10**6)
    return row(
        name, made, [(np.arange(k * count, (k + 1) * count), sizes) for k in range(count - 1)], **claims
    )


def random(name: str, topology: Topology, messages: int) -> dict[str, Any]:
    """Messages of random sizes between random NPUs, all at once."""
    rng = np.random.default_rng(1)
    source = rng.integers(0, topology.npus, messages)
    target = (source + rng.integers(1, topology.npus, messages)) % topology.npus
    made = Rounds(topology, source, target)
    return row(name, made, [(np.arange(messages), rng.integers(10_000, 2_000_000, messages))])


def at_once(name: str, topology: Topology, **claims: float) -> dict[str, Any]:
    """Direct all-to-all of 64 KiB: every NPU sends to all others at once."""
    count = topology.npus
    source, step = np.divmod(np.arange(count * (count - 1)), count - 1)
    made = Rounds(topology, source, (source + step + 1) % count)
    every = np.arange(len(source))
    return row(name, made, [(every, np.full(len(source), 1 << 16))], **claims)


def main() -> None:
    """Measure all cases."""
    Rounds(leaf_spine(2, 1, 2, 50.0, 500.0), np.zeros(1, np.int64), np.ones(1, np.int64)).run(
        [(np.zeros(1, np.int64), np.ones(1, np.int64))]
    )
    tree = fat_tree(16, 50.0, 500.0)
    for case in (
        lambda: shift_rounds("fat tree of 128, all-to-all in 127 rounds", fat_tree(8, 50.0, 500.0)),
        lambda: shift_rounds("fat tree of 1024, all-to-all in 1023 rounds", tree, limit=20),
        lambda: at_once(
            "leaf-spine of 512, all-to-all at once", leaf_spine(16, 32, 32, 50.0, 500.0), limit=1
        ),
        lambda: random("fat tree of 1024, 2000 random messages at once", tree, 2000),
        lambda: random("fat tree of 1024, 20000 random messages at once", tree, 20_000),
    ):
        print(json.dumps(case()), flush=True)


if __name__ == "__main__":
    main()
