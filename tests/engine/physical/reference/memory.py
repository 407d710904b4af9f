"""The memories of the reference: what an access waits for."""

from __future__ import annotations

from math import ceil

from armillary.platform.memory import fill_ns
from armillary.platform.model import Platform
from tests.engine.physical.reference.flows import ChunkFlow, Port
from tests.engine.physical.reference.nodes import Node


class Memories:
    """The remote memories of a machine."""

    def __init__(self, platform: Platform) -> None:
        self.platform, self.memory = platform, platform.remote_memory
        self.server_free: dict[int, int] = {}
        self.chunk_flows: dict[tuple[int, bool], ChunkFlow] = {}

    def rates(self, unit: int) -> dict[tuple[int, str], int]:
        """Return the rates of the ports of stages, in units per tick."""
        return {
            (number, way): int(stage.count * getattr(stage, way) * unit)
            for number, stage in enumerate(self.memory.stages) for way in ("read", "write")
        }  # fmt: skip

    def wait(self, node: Node, now: int) -> int:
        """Return the ticks of an access; what ranks share serves one after the other, the lowest rank first."""
        memory = self.memory
        size = node.attrs["tensor_size"]
        took = memory.latency + (-(-size // memory.bandwidth) if memory.bandwidth else 0)
        start = now
        if memory.kind != "per-npu":
            server = 0 if memory.kind == "pool" else node.rank // memory.npus_per_node
            start = max(start, self.server_free.get(server, 0))
            self.server_free[server] = start + took
        return start - now + took

    def chunk_flow(self, rank: int, store: bool) -> ChunkFlow:
        """Return the chunk flow of the loads or stores of a rank in a hierarchical memory."""
        if (rank, store) not in self.chunk_flows:
            self.chunk_flows[rank, store] = ChunkFlow(dict.fromkeys(self.stages(rank, store), 1))
        return self.chunk_flows[rank, store]

    def fill(self, size: int, store: bool) -> int:
        """Return the ticks of a transfer besides its bytes."""
        return ceil(fill_ns(self.memory, size, store, self.platform.npus))

    def stages(self, rank: int, store: bool) -> list[Port]:
        """Return the ports of a hierarchical memory that an access of a rank uses."""
        memory = self.memory
        node = rank // max(memory.npus_per_node, 1) * memory.npus_per_node
        first = {"npu": rank, "node": node, "machine": 0}
        return [
            (first[s.per], number, "write" if store else "read") for number, s in enumerate(memory.stages)
        ]
