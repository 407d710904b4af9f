"""A plain `overlap.settle` for kernels beside collectives: every rank on its own, intervals one by one."""

from __future__ import annotations

from math import ceil

from armillary.engine.common.items import MEMORY_OPERATIONS
from armillary.engine.physical.terms.overlap import ROUNDS
from armillary.platform.model import Platform
from armillary.trace import NodeType, Trace
from tests.engine.physical.reference.choice import Instance
from tests.engine.physical.reference.evaluate import Machine
from tests.engine.physical.reference.nodes import Node

Place = tuple[int, int]
"""Rank and id of a node."""


class Watched(Machine):
    """A machine that remembers when the first byte of a collective moved on each rank."""

    def __init__(self, trace: Trace, platform: Platform) -> None:
        super().__init__(trace, platform)
        self.began: dict[Place, int] = {}

    def starts(self) -> None:
        """See `Machine`."""
        super().starts()
        for instance in self.instances.values():
            for (_, line, _), chunk_flow in instance.chunk_flows.items():
                if chunk_flow.head:
                    self._note(instance, line)

    def _note(self, instance: Instance, line: tuple[int, ...]) -> None:
        for rank in line:
            if instance.call.operation not in MEMORY_OPERATIONS:
                self.began.setdefault((rank, instance.nodes[rank].id), self.now)


def settle_slowly(trace: Trace, platform: Platform) -> list[int]:
    """Return the finish tick of every rank."""
    share = platform.terms.overlap_compute
    slower: dict[Place, float] = {}
    for number in range(ROUNDS + 1):
        machine = Watched(trace, platform)
        kernels = [node for nodes in machine.ranks.values() for node in nodes if _is_kernel(node)]
        for node in kernels:
            node.ticks = ceil(node.ticks * slower.get((node.rank, node.id), 1.0))
        machine.run()
        before, slower = slower, {}
        for node in kernels:
            beside = [
                (machine.began[other.rank, other.id], other.end)
                for other in machine.ranks[node.rank]
                if (other.rank, other.id) in machine.began
            ]
            part = _covered(node, beside) / max(node.end - node.start, 1)
            slower[node.rank, node.id] = 1 / (1 - part * (share / (1 + share)))
        if number and slower == before:
            break
    return [max((node.end for node in machine.ranks[rank]), default=0) for rank in machine.ranks]


def _is_kernel(node: Node) -> bool:
    return node.kind == NodeType.COMP_NODE and not node.attrs.get("is_cpu_op")


def _covered(node: Node, others: list[tuple[int, int]]) -> int:
    """Return the ticks of a node that lie in any of the others."""
    at, found = node.start, 0
    for start, end in sorted(others):
        since, until = max(start, at), min(end, node.end)
        found += max(until - since, 0)
        at = max(at, until)
    return found
