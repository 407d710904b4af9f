"""A plain `overlap.settle` for kernels beside collectives: every rank on its own, intervals one by one."""

from __future__ import annotations

from itertools import pairwise
from math import ceil

from armillary.collective.fitted import load_fit
from armillary.engine.common.items import MEMORY_OPERATIONS
from armillary.engine.physical.terms.overlap import ROUNDS
from armillary.engine.physical.terms.resources import MOST, WHOLE
from armillary.platform.model import Platform
from armillary.trace import NodeType, Trace
from tests.engine.physical.reference.choice import Instance
from tests.engine.physical.reference.evaluate import Machine
from tests.engine.physical.reference.nodes import Node

A100 = load_fit("a100-sxm").sheet
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
            for (_, line, _, _), chunk_flow in instance.chunk_flows.items():
                if chunk_flow.head:
                    self._note(instance, line)

    def _note(self, instance: Instance, line: tuple[int, ...]) -> None:
        for rank in line:
            if instance.call.operation not in MEMORY_OPERATIONS:
                self.began.setdefault((rank, instance.nodes[rank].id), self.now)


def settle_slowly(trace: Trace, platform: Platform) -> list[int]:
    """Return the finish tick of every rank."""
    terms = platform.terms
    share = terms.overlap_compute
    slower: dict[Place, float] = {}
    for number in range(ROUNDS + 1):
        machine = Watched(trace, platform)
        kernels = [node for nodes in machine.ranks.values() for node in nodes if _is_kernel(node)]
        for node in kernels:
            node.ticks = ceil(node.ticks * slower.get((node.rank, node.id), 1.0))
        machine.run()
        before, slower = slower, {}
        for node in kernels:
            others = [other for other in machine.ranks[node.rank] if (other.rank, other.id) in machine.began]
            beside = [(machine.began[other.rank, other.id], other.end) for other in others]
            lost = _covered(node, beside) / max(node.end - node.start, 1) * (share / (1 + share))
            if terms.overlap_processors or terms.overlap_traffic:
                units = [
                    _units(node, other, since, machine)
                    for other, (since, _) in zip(others, beside, strict=True)
                ]
                lost = min(lost + _lacked(node, beside, units), MOST / WHOLE)
            slower[node.rank, node.id] = 1 / (1 - lost)
        if number and slower == before:
            break
    return [max((node.end for node in machine.ranks[rank]), default=0) for rank in machine.ranks]


def _is_kernel(node: Node) -> bool:
    return node.kind == NodeType.COMP_NODE and not node.attrs.get("is_cpu_op")


def _units(node: Node, other: Node, since: int, machine: Machine) -> int:
    """Return what a collective takes of the device from a kernel, in units of `WHOLE`."""
    platform, attrs = machine.platform, node.attrs
    moved = attrs.get("tensor_size", 0)
    peak = platform.npu.peaks.get(attrs.get("precision", ""), platform.npu.peak_flops) / 1e9
    if not moved or moved * peak < attrs.get("num_ops", 0) * platform.npu.memory.bandwidth:
        of = platform.terms.overlap_processors
        return int(WHOLE * of / A100.processors) if of else 0
    call = other.call
    assert call is not None
    n = len(machine.comms.get(call.comm).members)
    kind = call.operation.removesuffix("-v").removesuffix("-block")
    size = call.size * n if kind == "all-gather" else call.size
    part = {"all-reduce": 2 * (n - 1) / n, "broadcast": 1.0}.get(kind, (n - 1) / n if "-" in kind else 1.0)
    carried = max(other.end - since, 1) * platform.npu.memory.bandwidth
    return int(WHOLE * min(platform.terms.overlap_traffic * (size * part) / carried, 1.0))


def _lacked(node: Node, others: list[tuple[int, int]], units: list[int]) -> float:
    """Return the mean share of the device that others take while a node runs."""
    ticks = sorted({node.start, node.end, *(t for span in others for t in span if node.start < t < node.end)})
    area = 0
    for since, until in pairwise(ticks):
        active = sum(own for (a, b), own in zip(others, units, strict=True) if a <= since and until <= b)
        area += min(active, MOST) * (until - since)
    return area / (max(node.end - node.start, 1) * WHOLE)


def _covered(node: Node, others: list[tuple[int, int]]) -> int:
    """Return the ticks of a node that lie in any of the others."""
    at, found = node.start, 0
    for start, end in sorted(others):
        since, until = max(start, at), min(end, node.end)
        found += max(until - since, 0)
        at = max(at, until)
    return found
