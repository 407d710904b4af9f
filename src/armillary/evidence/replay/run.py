"""Start the ranks of a replay, wait for them, and gather what they measured."""

from __future__ import annotations

import json
import pickle
import tempfile
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import ArmillaryError, InputError, StuckError, nearest, one_of
from armillary.convert.processes import RankProcesses
from armillary.convert.torch_import import import_torch
from armillary.engine.common.diagnose import format_stuck
from armillary.evidence.replay.plan import Instance, Job, Key, Plan, plan_of
from armillary.platform import Platform
from armillary.trace import Trace

BACKENDS = ("gloo", "nccl")
COMPUTE = ("durations", "shapes", "none")
LAST_WORDS_SECONDS = 30.0
"""Time for ranks to report what they wait for, once one is stuck."""

Times = NDArray[np.int64]


@dataclass(frozen=True)
class Replay:
    """A trace as it ran: times in ns, one row per iteration, of a clock that all ranks share."""

    trace: Trace
    backend: str
    compute: str
    begin: Times
    """When each rank began, (iterations, ranks)."""
    finish: Times
    """When each rank finished, likewise."""
    start: list[Times]
    """By rank: when each node started, (iterations, nodes), in graph order."""
    end: list[Times]
    """By rank: when each node ended."""
    instances: list[Instance]
    """All collectives and messages."""

    @property
    def totals(self) -> Times:
        """From when the first rank began to when the last finished, in ns, (iterations,)."""
        totals: Times = self.finish.max(axis=1) - self.begin.min(axis=1)
        return totals

    @cached_property
    def median(self) -> int:
        """The iteration whose total is the median; of two in the middle the shorter."""
        # A real iteration, not the mean of two: its nodes can be shown.
        return int(np.argsort(self.totals, kind="stable")[(len(self.totals) - 1) // 2])

    @property
    def total_ns(self) -> int:
        """The median of `totals`."""
        return int(self.totals[self.median])

    @cached_property
    def transfer_ns(self) -> NDArray[np.float64]:
        """By instance: the median over iterations of what `transfer_time` says."""
        times = [np.median(transfer_time(instance, self.start, self.end)) for instance in self.instances]
        return np.array(times, np.float64)


def transfer_time(instance: Instance, start: list[Times], end: list[Times]) -> Times:
    """Return how long a collective or message took once all who take part were there.

    That is from the last start to the last end; of a message, to the end of its receive, and nothing if that was
    posted ahead and the message came before its turn.

    Args:
        instance: Who took part.
        start: By rank: starts of the nodes, (…, nodes), in any unit.
        end: By rank: their ends.

    Returns:
        The time, shape (…).
    """
    # Once all are there: before, the first ones only waited.
    began = np.max([start[rank][..., at] for rank, at in instance.nodes], axis=0)
    nodes = instance.nodes
    if instance.operation.key[0] == "message":
        # A send may end as soon as its data is buffered.
        nodes = [(rank, at) for rank, at in nodes if rank == instance.operation.members[1]]
    ended: Times = np.max([end[rank][..., at] for rank, at in nodes], axis=0)
    # A receive that was posted ahead may end before its node begins.
    times: Times = np.maximum(ended - began, 0)
    return times


def replay(
    trace: Trace,
    *,
    backend: str | None = None,
    compute: str = "durations",
    iterations: int = 5,
    warmup: int = 1,
    timeout: float = 60.0,
    platform: Platform | None = None,
) -> Replay:
    """Execute a trace on this machine through torch.distributed, one process for each rank.

    Communication is executed as it stands in the trace, on buffers of its size. Nodes wait for what they
    depend on; operations of one group, or of one sender, receiver and tag, start in the order of their
    numbers.

    Args:
        trace: One graph for each rank.
        backend: ``gloo`` on CPUs or ``nccl`` on GPUs, one for each rank; by default nccl where there are
            enough GPUs.
        compute: ``durations``: compute nodes take the time that the trace says; ``shapes``: they do as many
            FLOPs, or move as many bytes, as it says, and take that time where it says neither; ``none``.
        iterations: How often it is measured.
        warmup: How often it runs before that.
        timeout: Seconds without any progress after which it is given up.
        platform: Where groups may be defined besides the trace itself.

    Raises:
        InputError: PyTorch is absent, or the trace cannot be executed.
        StuckError: ranks wait for each other; the message is a table of who waits for what.
        ArmillaryError: a rank failed.
    """
    torch = import_torch("armillary trace replay")
    # NCCL needs a GPU per rank.
    if backend is None:
        enough = torch.cuda.device_count() >= trace.n_ranks and torch.distributed.is_nccl_available()
        backend = "nccl" if enough else "gloo"
    _check(torch, trace, backend, compute, iterations, warmup, timeout)
    plan = plan_of(trace, platform)
    with tempfile.TemporaryDirectory(prefix="armillary-replay-") as folder:
        # Ranks are processes of their own and read their job from a file.
        for rank in plan.ranks:
            job = Job(rank, plan.shared, trace.n_ranks, backend, compute, warmup, iterations, timeout, folder)
            (Path(folder) / f"job_{rank.rank}.pickle").write_bytes(pickle.dumps(job))
        _run(trace, plan, Path(folder))
        times: list[dict[str, Times]] = []
        for rank in plan.ranks:
            with np.load(Path(folder) / f"times_{rank.rank}.npz") as found:
                times.append(dict(found))
    return Replay(
        trace,
        backend,
        compute,
        # (iterations, ranks).
        np.stack([rank["begin"] for rank in times], axis=1),
        np.stack([rank["finish"] for rank in times], axis=1),
        [rank["start"] for rank in times],
        [rank["end"] for rank in times],
        plan.instances,
    )


def _check(
    torch: Any, trace: Trace, backend: str, compute: str, iterations: int, warmup: int, timeout: float
) -> None:
    for name, value, known in (("backend", backend, BACKENDS), ("compute", compute, COMPUTE)):
        if value not in known:
            raise InputError(f"replay: {name} is '{value}', expected {one_of(known)}{nearest(value, known)}")
    for name, number, least in (("iterations", iterations, 1), ("warmup", warmup, 0)):
        if number < least:
            raise InputError(f"replay: {name} is {number}, expected {least} or more")
    # Also refuses NaN.
    if not timeout > 0:
        raise InputError(f"replay: timeout is {timeout}, expected more than 0 seconds")
    if backend == "nccl" and torch.cuda.device_count() < trace.n_ranks:
        raise InputError(
            f"replay: {trace.n_ranks} ranks on nccl need as many GPUs, found {torch.cuda.device_count()}; "
            "expected backend gloo, or a trace of fewer ranks"
        )


def _run(trace: Trace, plan: Plan, folder: Path) -> None:
    """Run all ranks to their end."""
    n = trace.n_ranks

    def left(name: str) -> list[Path]:
        return sorted(folder.glob(f"{name}_*"))

    # PyTorch renames functions of torch.distributed now and then, and warns of it.
    words = ["-W", "ignore", "-m", "armillary.evidence.replay.worker", str(folder)]
    with RankProcesses(words, n) as processes:
        while processes.running():
            if processes.failures():
                break
            # One rank gave up: tell the others to say what they wait for, and give them time to.
            if left("stuck") or left("failed"):
                (folder / "stop").touch()
                end = time.monotonic() + LAST_WORDS_SECONDS
                while processes.running() and time.monotonic() < end:
                    processes.wait()
                break
            processes.wait()
        failures = processes.failures()
    # Stuck explains more than a failure that follows from it.
    if stuck := left("stuck"):
        said = {int(file.stem.partition("_")[2]): json.loads(file.read_text()) for file in stuck}
        raise StuckError("the replay cannot go on\n" + _table(trace, plan, said))
    for how in failures.values():
        raise ArmillaryError(f"replay: {how}")
    for file in left("failed"):
        raise ArmillaryError(f"replay: rank {file.stem.partition('_')[2]}: {file.read_text()}")


def _table(trace: Trace, plan: Plan, said: dict[int, dict[str, Any]]) -> str:
    """Return a table of which rank waits for what, from the operations that ranks have issued."""
    issued: dict[int, dict[Key, int]] = {
        rank: {tuple(key): count for key, count in words["issued"]} for rank, words in said.items()
    }
    # Ranks that did not answer: they hang where nobody can ask them.
    rows = [(rank.rank, -1, "", "no answer", "") for rank in plan.ranks if rank.rank not in said]
    for rank, words in sorted(said.items()):
        if not words["running"] and not words["held"]:
            rows.append((rank, -1, "", "between iterations", "the other ranks"))
        graph, mine = trace.graph(rank), plan.ranks[rank]
        for at in [node for node in words["running"] if node in mine.operations]:
            operation, turn = mine.operations[at], mine.turn[at]
            # Of members that answered, those that have not issued this operation are the cause.
            others = [other for other in operation.members if other in issued]
            absent = [str(other) for other in others if issued[other].get(operation.key, 0) <= turn]
            what = (
                f"{'rank' if len(absent) == 1 else 'ranks'} {', '.join(absent[:8])}" if absent else "network"
            )
            where = (
                f" in group {operation.key[1]}" if operation.key[0] == "group" and operation.key[1] else ""
            )
            rows.append((rank, int(graph.ids[at]), graph.name(at), f"{operation.kind}{where}", what))
        for at in words["held"]:
            what = f"the {mine.turn[at] - issued[rank][mine.operations[at].key]} before it in its group"
            rows.append((rank, int(graph.ids[at]), graph.name(at), "ready", what))
    return format_stuck(sorted(rows, key=lambda row: row[0]))
