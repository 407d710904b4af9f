"""How many chunks of a collective are in flight at a time on a line, and in how many segments each goes."""

from __future__ import annotations

from math import ceil, sqrt

from armillary.engine.physical.chunk_routes import MOST_IN_FLIGHT
from armillary.engine.physical.phases import PhysicalPhase
from armillary.platform.model import Platform
from armillary.platform.network import port

FILL = 1000
"""Segments of all chunks together per level of a tree, at most: to fill and empty it takes one part in so many then."""
SMALLEST = 4096
"""Bytes of a segment, at least."""
AT_ONCE = 32
"""Chunks in flight at a time that hide the latency of each other's segments, at most."""


def window_of(phase: PhysicalPhase, chunk: int, platform: Platform, segments: int = 1) -> int:
    """Return how many chunks are in flight at a time on a line, each in so many segments, the first of so many bytes.

    As given, or as many as keep links busy while messages of one are in flight, four times over: latency of the
    rounds, and what a chunk waits in those in which other links are busier, ÷ time of its bytes on the fullest link,
    and one; ways are longer than a link, and rounds not all alike. No more than that: with more, early chunks would
    come late to the next dimension.
    """
    if platform.collectives.active_chunks:
        return platform.collectives.active_chunks
    moving = moving_of(phase, chunk, platform) / segments
    idle = phase.latency + phase.wait * chunk
    return min(4 + ceil(4 * idle / moving), MOST_IN_FLIGHT) if moving > 0 else MOST_IN_FLIGHT


def segments_of(chunks: int, phase: PhysicalPhase, size: int, platform: Platform, depth: int) -> int:
    """Return in how many segments each chunk of `size` bytes goes through trees of `depth` rounds, bottom to bottom.

    Segments fill the levels of a tree, but each costs a latency: alone, a chunk takes
    t(s) = (s + depth) · (moving / s + latency), least at s = √(depth · moving / latency). Chunks that are in flight at
    the same time share the latency.
    """
    moving, latency = moving_of(phase, size, platform), phase.latency
    ability = platform.dimensions[phase.dim].in_network
    limits = (platform.collectives.active_chunks, ability.operations if ability else 0, AT_ONCE)
    in_flight = min(chunks, *(limit for limit in limits if limit))
    most = min(ceil(FILL * depth / chunks), int(phase.sent * size) // SMALLEST)
    best = sqrt(depth * moving * in_flight / latency) if latency > 0 else most
    return max(1, min(most, int(best)))


def moving_of(phase: PhysicalPhase, size: int, platform: Platform) -> float:
    """Return how long the bytes of a chunk are on the edge, ns."""
    return float(phase.volume * size) / port(platform.dimensions[phase.dim]).slower
