"""Memories of a study file as values, and what a transfer through a hierarchical one takes.

A hierarchical memory is a row of stages from the memory to the NPU, each of some alike devices or links for every
NPU, every node or the whole machine. A transfer of W bytes is cut into m chunks of c bytes that are spread evenly over
the devices of a stage and follow each other from stage to stage, as in a pipeline. A stage of n devices of B bytes/ns
shared by k NPUs gives each ``r = n B / k`` when all transfer together. The slowest one, b, is never idle from its first
chunk to its last; before and after that a chunk crosses the other stages alone::

    T = sum(latency) + sum(c / B_i for i != b) + W / r_b

With one chunk per device and round this is the time of the textbook pipeline, ``sum(t_i) + (m - 1) max(t_i)``. For an
in-switch collective switches copy, or add up, what is the same for all NPUs: every stage carries it once, k = 1.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from armillary.platform.memory import LocalMemory, MemoryStage, RemoteMemory
from armillary.platform.model import Platform

if TYPE_CHECKING:
    from armillary.platform.files import memory_schema

CHUNK = 1 << 20


def local_memory(given: memory_schema.Memory | None) -> LocalMemory:
    """Return the local memory that a study file describes."""
    if given is None:
        return LocalMemory()
    read, write = given.read or given.bandwidth, given.write or given.bandwidth
    return LocalMemory(given.capacity or 0, given.latency, read, write)


def local_speed(platform: Platform, store: bool) -> float:
    """Return the bytes per ns of accesses of local memory, 0 if nothing says so."""
    own = platform.physical.memory
    return (own.write if store else own.read) or platform.system.local_mem_bandwidth / 1e9


def remote_memory(given: memory_schema.RemoteMemory) -> RemoteMemory:
    """Return the remote memory that a study file describes."""
    assert given.kind is not None
    if given.kind != "hierarchical":
        return RemoteMemory(
            given.kind, given.latency or 0, int(given.bandwidth or 0), given.npus_per_node or 0
        )
    stages = []
    for stage in given.stages or ():
        stated = stage.bandwidth
        read, write = (stated, stated) if isinstance(stated, float) else (stated.read, stated.write)
        stages.append(MemoryStage(stage.name, stage.per, stage.count, read, write, stage.latency))
    return RemoteMemory(
        "hierarchical",
        npus_per_node=given.npus_per_node or 0,
        stages=tuple(stages),
        chunk=given.chunk or CHUNK,
    )


def speed(stage: MemoryStage, store: bool) -> float:
    """Return the bytes per ns of one device of a stage."""
    return stage.write if store else stage.read


def share(memory: RemoteMemory, stage: MemoryStage, npus: int) -> int:
    """Return how many NPUs have a stage in common."""
    return {"npu": 1, "node": min(memory.npus_per_node, npus), "machine": npus}[stage.per]


def fill_ns(memory: RemoteMemory, size: int, store: bool, npus: int, collective: bool = False) -> float:
    """Return what a transfer takes besides its bytes over the rate of the slowest stage, see the top of the module.

    Which stage is the slowest is judged for all NPUs together; for fewer, this is off by a chunk at most.

    Args:
        memory: A hierarchical one.
        size: Bytes of the transfer.
        store: Whether it goes away from the NPU.
        npus: Of the machine.
        collective: Whether all NPUs transfer the same.
    """
    chunk = size / max(1, -(-size // memory.chunk))
    times = [chunk / speed(stage, store) for stage in memory.stages]
    each = [_rate(memory, stage, store, 1 if collective else npus) for stage in memory.stages]
    slowest = each.index(min(each))
    return sum(stage.latency for stage in memory.stages) + sum(times) - times[slowest]


def together_ns(memory: RemoteMemory, size: int, store: bool, npus: int, collective: bool = False) -> int:
    """Return the time in which all NPUs of a machine load or store `size` bytes each, together."""
    slowest = min(_rate(memory, stage, store, 1 if collective else npus) for stage in memory.stages)
    return ceil(fill_ns(memory, size, store, npus, collective)) + ceil(size / slowest)


def _rate(memory: RemoteMemory, stage: MemoryStage, store: bool, npus: int) -> float:
    return stage.count * speed(stage, store) / share(memory, stage, npus)
