"""The least time of the collectives of a program whose messages cross a network: what a lower bound may count on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from armillary.collective.physical import rounds_for
from armillary.engine.messages.window import moving_of
from armillary.engine.physical.jobs import PhysicalPhase, reduction_ns
from armillary.engine.physical.program import Plan
from armillary.platform.bandwidth import ports
from armillary.platform.model import Platform


def least_of(plan: Plan, platform: Platform) -> int:
    """Return the least ticks of a plan: of one chunk through all phases, or of all chunks in the fullest dimension.

    Chunks, and rounds in which not all members do the same, overlap: only what leaves or enters an NPU takes its time
    one after the other. What a group that is no grid crosses is not known here.
    """
    once, through = 0.0, dict.fromkeys(range(len(platform.dimensions)), 0.0)
    for (size, number), count in Counter(plan.course.chunks).items():
        # Of ways that are chosen while running, whichever is the least.
        ways = plan.course.ways if plan.course.choices else [plan.course.ways[number]]
        found = [_least_way(way, size, platform) for way in ways]
        once = max(once, min(alone for alone, _ in found))
        for dim in through:
            through[dim] += count * min(moving[dim] for _, moving in found)
    return int(max(once, *through.values()))


def _least_way(way: Sequence[PhysicalPhase], size: int, platform: Platform) -> tuple[float, dict[int, float]]:
    """Return the least ns of a chunk through its phases, and those that its bytes take in each dimension."""
    rates = ports(platform)
    alone, through = 0.0, dict.fromkeys(range(len(rates)), 0.0)
    for phase in way:
        if phase.dim < 0:
            continue
        port = rates[phase.dim]
        # Where members differ, who sends most need not receive anything.
        rate = port.slower if alike(phase) else max(port.out, port.into)
        moving = float(phase.sent * size) / rate
        if phase.port is not None:
            busiest = float(phase.port) / max(port.out, port.into)
            moving = max(float(phase.sent) / port.out, busiest) * size
        through[phase.dim] += moving
        alone += _least_alone(phase, size, moving, platform)
    return alone, through


def _least_alone(phase: PhysicalPhase, size: int, moving: float, platform: Platform) -> float:
    """Return the least ns of a phase of a chunk, of which its busiest member moves bytes for `moving` ns."""
    dimension = platform.dimensions[phase.dim]
    filled = dimension.topology != "Mesh" and len(phase.positions) == dimension.size
    latency = dimension.latency
    if phase.algorithm == "in-switch":
        latency = phase.latency
    elif alike(phase) and (filled or dimension.topology in ("FullyConnected", "Switch")):
        moving, latency = moving_of(phase, size, platform), phase.latency
    return max(moving, reduction_ns(phase, size, platform.system.local_mem_bandwidth), latency)


def alike(phase: PhysicalPhase) -> bool:
    """Return whether all members send and receive the same in every round."""
    if phase.algorithm == "in-switch":
        return True
    rounds = rounds_for(phase.algorithm, phase.operation, len(phase.positions), chunks=phase.parts).rounds
    return all(part.rotates for part in rounds)
