"""Which process is which rank, and who is in which communicator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from armillary.base.errors import InputError
from armillary.convert.profilers.process import Process
from armillary.convert.pytorch.communication import MOST_RANKS


def number_ranks(processes: Sequence[Process]) -> list[str]:
    """Give every process its rank and the communicators that it knows, and return what was assumed.

    Raises:
        InputError: two processes are the same rank.
    """
    sizes: dict[str, int] = {}
    for process in processes:
        for comm, (own, size) in process.comms.items():
            if own < size <= MOST_RANKS:
                sizes[comm] = max(sizes.get(comm, 0), size)
    world = max(sizes, key=lambda comm: sizes[comm]) if sizes else ""
    if world and all(world in process.comms for process in processes):
        ranks = [process.comms[world][0] for process in processes]
        notes: list[str] = []
    else:
        order = sorted(range(len(processes)), key=lambda at: (_device(processes[at]), at))
        ranks = [order.index(at) for at in range(len(processes))]
        world = ""
        notes = [f"{len(processes)} processes: their ranks are in the order of their devices and files"]
        notes = notes if len(processes) > 1 else []
    for at, rank in enumerate(ranks):
        if rank in ranks[:at]:
            first = processes[ranks.index(rank)].trace.source
            raise InputError(
                f"{processes[at].trace.source}: is rank {rank} of communicator {world}, as {first} is, expected files "
                "of one run"
            )
    members = {comm: _members(comm, size, processes, ranks) for comm, size in sizes.items()}
    known = max(sizes[world] if world else 0, max(ranks) + 1)
    for rank, process in zip(ranks, processes, strict=True):
        config: list[dict[str, Any]] = [
            {"pg_name": comm, "pg_desc": "", "ranks": found, "group_size": sizes[comm]}
            for comm, found in members.items()
            if found is not None and comm in process.comms
        ]
        process.trace.distributed |= {"rank": rank, "pg_config": config}
        if world or len(processes) > 1:
            process.trace.distributed["world_size"] = known
    return notes


def _members(comm: str, size: int, processes: Sequence[Process], ranks: Sequence[int]) -> list[int] | None:
    """Return the ranks of a communicator in its own order; None if files of some are missing."""
    found = {
        process.comms[comm][0]: rank
        for process, rank in zip(processes, ranks, strict=True)
        if comm in process.comms
    }
    if len(found) == size:
        return [found[at] for at in range(size)] if set(found) == set(range(size)) else None
    # Of the largest, ranks are numbered as in it.
    largest = max(each[1] for process in processes for each in process.comms.values())
    same = all(at == rank for at, rank in found.items())
    return list(range(size)) if size == largest and same else None


def _device(process: Process) -> int:
    return min((kernel.device for kernel in process.trace.kernels), default=0)
