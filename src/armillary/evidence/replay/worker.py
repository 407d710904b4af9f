"""One rank of a replay, a process of its own: ``python -m armillary.evidence.replay.worker JOB``.

It reads the pickled `Job` and leaves ``times_<rank>.npz``, or ``stuck_<rank>.json``, or
``failed_<rank>.txt`` in the job's folder. A file ``stop`` there ends all ranks.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from armillary.base.files import replacing, write_text
from armillary.convert.torch_import import import_torch
from armillary.evidence.replay.issue import Network, buffer_bytes
from armillary.evidence.replay.loop import Doing, Loop, Stuck
from armillary.evidence.replay.plan import COMPUTES, INSTANT, Job
from armillary.evidence.replay.work import Work
from armillary.trace import Graph, decode

# More than ours, so that our own table of who waits comes first.
GLOO_SECONDS = 120
"""Seconds that PyTorch waits for other ranks beyond our own timeout."""


class Executor(Protocol):
    """Executes the graph of one rank."""

    def run(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Execute it once; return start and end of every node in ns of `time.perf_counter_ns`."""

    def wait(self, work: Any) -> None:
        """Wait for an operation that is no node."""


def main() -> None:
    """Run the job that the command line names, for the rank that the environment names."""
    rank = int(os.environ["RANK"])
    with (Path(sys.argv[1]) / f"job_{rank}.pickle").open("rb") as stream:
        job: Job = pickle.load(stream)
    folder = Path(job.folder)
    try:
        # Written aside and renamed: a file that is there is complete.
        with replacing(folder / f"times_{rank}.npz") as temporary, temporary.open("wb") as stream:
            times: Any = _replay(job, folder / "stop")
            np.savez(stream, **times)
    except Stuck as stuck:
        # JSON has no tuples as keys.
        issued = [[list(key), count] for key, count in stuck.issued.items()]
        found = {"running": stuck.running, "held": stuck.held, "issued": issued}
        write_text(folder / f"stuck_{rank}.json", json.dumps(found))
    except Exception as error:
        # One line is enough for the parent; it does not unpickle exceptions of others.
        write_text(folder / f"failed_{rank}.txt", f"{type(error).__name__}: {error}")
    # Threads may hang in an operation that never ends, and gloo in its own end.
    os._exit(0)


def _replay(job: Job, stop: Path) -> dict[str, NDArray[np.int64]]:
    torch = import_torch("armillary trace replay")
    plan, graph = job.plan, decode(job.plan.graph, f"rank {job.plan.rank}")
    on_gpu = job.backend == "nccl"
    if on_gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    device = "cuda" if on_gpu else "cpu"
    torch.distributed.init_process_group(
        job.backend,
        rank=plan.rank,
        world_size=job.ranks,
        timeout=timedelta(seconds=job.timeout + GLOO_SECONDS),
    )
    # 4 bytes: buffers must not be empty.
    largest = max(map(buffer_bytes, plan.operations.values()), default=4)
    network = Network(torch, plan.rank, job.shared, largest, device, ordered=on_gpu)
    executor = _executor(job, torch, graph, network, stop)
    rows = []
    for _ in range(job.warmup + job.iterations):
        # All begin together; the barrier is not part of the time.
        executor.wait(torch.distributed.barrier(async_op=True))
        begin = time.perf_counter_ns()
        starts, ends = executor.run()
        rows.append(np.concatenate([[begin, time.perf_counter_ns()], starts, ends]))
    # A rank that left early would break connections that others still use.
    executor.wait(torch.distributed.barrier(async_op=True))
    # Warm-up rows are dropped.
    times = np.array(rows[job.warmup :], np.int64)
    n = graph.n_nodes
    return {
        "begin": times[:, 0],
        "finish": times[:, 1],
        "start": times[:, 2 : n + 2],
        "end": times[:, n + 2 :],
    }


def _executor(job: Job, torch: Any, graph: Graph, network: Network, stop: Path) -> Executor:
    plan, columns = job.plan, job.plan.compute
    if job.compute == "none":
        # In the columns: everything after sees nodes that take no time.
        columns.kind[columns.kind == COMPUTES] = INSTANT

    def issue(node: int) -> Any:
        return network.issue(plan.operations[node])

    if job.backend == "nccl":
        from armillary.evidence.replay.cuda import Streams

        return Streams(plan, graph, torch, issue, job.compute, job.timeout, stop.exists)
    doing = _doing(job, Work(torch, "cpu", lambda: None) if job.compute == "shapes" else None)
    return Loop(plan, graph, issue, doing, job.timeout, stop.exists)


def _doing(job: Job, work: Work | None) -> Doing:
    columns = job.plan.compute
    duration, flops, size = columns.duration_ns.tolist(), columns.flops.tolist(), columns.bytes.tolist()

    # Work to call, or a duration for a timer.
    def doing(node: int) -> Callable[[], None] | int:
        if work is not None and (flops[node] or size[node]):
            return lambda: work.do(flops[node], size[node])
        nanoseconds: int = duration[node]
        return nanoseconds

    return doing


if __name__ == "__main__":
    main()
