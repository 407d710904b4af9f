"""The memory of an NPU, and remote memory, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from armillary.base.hints import show
from armillary.platform.limits import (
    BYTES,
    COUNT,
    MOST_COUNT,
    RATE,
    TEXT,
    TIME,
    Choice,
    Kind,
    Maybe,
    Number,
    check,
    refuse,
)

_STAGES = Choice(("npu", "node", "machine"))
_MEMORIES = Choice(("none", "per-npu", "per-node", "pool", "hierarchical"))


@dataclass(frozen=True)
class LocalMemory:
    """What only profile ``physical`` models of an NPU's memory.

    Attributes:
        capacity: Bytes; 0: not given.
        latency: ns until the first byte.
        read: Bytes per ns of a load from it; 0: not given.
        write: The same of a store.
    """

    capacity: int = 0
    latency: float = 0.0
    read: float = 0.0
    write: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what cannot be, see `armillary.platform.limits`."""
        check(self, capacity=BYTES, latency=TIME, read=Maybe(RATE, 0), write=Maybe(RATE, 0))


@dataclass(frozen=True)
class MemoryStage:
    """Alike devices or links that every transfer to or from a hierarchical memory crosses; it is spread over all.

    Attributes:
        name: For people.
        per: What has them for itself: an ``npu``, a ``node`` or the whole ``machine``.
        count: How many it has.
        read: Bytes per ns of one, towards the NPU.
        write: The same away from it, at the same time.
        latency: ns.
    """

    name: str
    per: Literal["npu", "node", "machine"]
    count: int
    read: float
    write: float
    latency: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what cannot be, see `armillary.platform.limits`."""
        check(self, name=TEXT, per=_STAGES, count=COUNT, read=RATE, write=RATE, latency=TIME)


@dataclass(frozen=True)
class RemoteMemory:
    """Remote memory: latency ns, bandwidth bytes per ns (whole number; 0 = infinite).

    A hierarchical one has neither, but `stages`, from the memory to the NPU, and moves `chunk` bytes at a time.
    """

    kind: Literal["none", "per-npu", "per-node", "pool", "hierarchical"] = "none"
    latency: int = 0
    bandwidth: int = 0
    npus_per_node: int = 0
    stages: tuple[MemoryStage, ...] = ()
    chunk: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be, see `armillary.platform.limits`."""
        whole = Number(high=2**63 - 1, whole=True)
        check(
            self, kind=_MEMORIES, latency=whole, bandwidth=whole, npus_per_node=Number(high=MOST_COUNT, whole=True),
            stages=Kind(tuple, "a tuple of MemoryStage"), chunk=BYTES,
        )  # fmt: skip
        for at, stage in enumerate(self.stages):
            if not isinstance(stage, MemoryStage):
                raise refuse(self, ("stages", at), f"got {show(stage)}, expected a MemoryStage")
        if (self.kind == "hierarchical") != bool(self.stages) or (self.stages and not self.chunk):
            raise refuse(self, (), "expected stages and chunk with kind hierarchical, and only there")
        if self.kind == "per-node" and not self.npus_per_node:
            raise refuse(self, (), "expected npus_per_node with kind per-node, and only there")
