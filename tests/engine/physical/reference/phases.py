"""Latency and volume of each phase of a collective, computed afresh from the messages of its rounds.

Which algorithm a phase uses, and between which positions, is the choice of the engine (`chunk_routes_of`); what that
costs is not taken from it. Phases that a fit, a reducing switch, a memory or a matrix of sizes decides stay.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import prod

from armillary.collective.algorithms import DEFINITIONS, rounds_for
from armillary.collective.load import line_order
from armillary.collective.rounds import Rounds
from armillary.engine.common.items import MEMORY_OPERATIONS
from armillary.engine.common.network import CollectiveCall, Communicator
from armillary.engine.physical.chunk_routes import ChunkRoutes, chunk_routes_of
from armillary.engine.physical.phases import PhysicalPhase
from armillary.platform.model import Platform
from armillary.platform.network import port
from tests.collective.slow_load import slow_load


def own_chunk_routes(call: CollectiveCall, comm: Communicator, platform: Platform) -> ChunkRoutes:
    """Return the chunk routes of a call with latencies and volumes of our own."""
    chunk_routes = chunk_routes_of(call, comm, platform)
    in_memory = call.operation in MEMORY_OPERATIONS
    if in_memory or call.splits or platform.collectives.fit or platform.terms.slows_communication:
        return chunk_routes
    ways = []
    for way in chunk_routes.routes:
        scale = Fraction(1)
        if way and way[0].operation == "gather":
            scale /= prod(len(phase.positions) for phase in way)
        made = []
        for phase in way:
            n = len(phase.positions)
            known = phase.algorithm in DEFINITIONS and phase.algorithm != "in-switch" and phase.dim >= 0
            bytes_here = scale * n if phase.operation == "gather" else scale
            made.append(_computed(phase, bytes_here, platform) if known else phase)
            if phase.operation in ("reduce-scatter", "scatter"):
                scale /= n
            elif phase.operation in ("all-gather", "gather"):
                scale *= n
        ways.append(tuple(made))
    return replace(chunk_routes, routes=tuple(ways))


def _computed(phase: PhysicalPhase, scale: Fraction, platform: Platform) -> PhysicalPhase:
    """Return a phase that works on `scale` bytes per byte of the chunk, with costs from its messages."""
    dimension = platform.dimensions[phase.dim]
    rounds = rounds_for(phase.algorithm, phase.operation, len(phase.positions), chunks=phase.parts)
    topology = dimension.topology.replace("Torus", "Ring")
    hops, volume, fullest, sent, added, _ = min(
        (
            slow_load(rounds, topology, dimension.size, where)
            for where in _places(rounds, topology, phase, dimension.size)
        ),
        key=lambda cost: (cost[1], cost[0]),
    )
    return replace(
        phase,
        latency=hops * dimension.latency + rounds.count * platform.npu.message_delay,
        volume=fullest * scale,
        wait=float(volume - fullest) / port(dimension).slower * float(scale),
        sent=sent * scale,
        reduced=added * scale,
    )


def _places(rounds: Rounds, topology: str, phase: PhysicalPhase, size: int) -> list[list[int]]:
    """Return where the members may stand: what goes around a line goes there and back, or in order on a part of it."""
    back = list(line_order(phase.positions))
    if rounds.n == size:
        return [back if topology == "Mesh" and rounds.around else list(phase.positions)]
    around = rounds.around and topology not in ("FullyConnected", "Switch")
    return [list(phase.positions), *([back] if around else [])]
