"""The number of chunks of a collective in flight on a line, and the number of segments of a chunk in a tree."""

from __future__ import annotations

from math import ceil, sqrt

from armillary.engine.physical.chunk_routes import MOST_IN_FLIGHT
from armillary.engine.physical.phases import PhysicalPhase
from armillary.platform.model import Platform
from armillary.platform.network import port

FILL = 1000
"""Segments of all chunks together per level of a tree, at most: filling and emptying the tree then takes 1/1000."""
SMALLEST = 4096
"""Bytes of a segment, at least."""
AT_ONCE = 32
"""Chunks in flight at a time that hide the latency of each other's segments, at most."""


def window_of(phase: PhysicalPhase, chunk: int, platform: Platform, segments: int = 1) -> int:
    """Return the window of a line: chunks in flight at a time, each in `segments`, the first of `chunk` bytes.

    `collectives.active_chunks` if given. Otherwise enough to keep the fullest link busy during the latencies of a
    chunk: 4 · (1 + idle time of a chunk ÷ time of its bytes on that link). The idle time is the latency of its rounds
    and its wait in rounds in which other links are busier. The factor 4 is a margin for routes of several links and
    for uneven rounds. More would hurt: early chunks would reach the next dimension late.
    """
    if platform.collectives.active_chunks:
        return platform.collectives.active_chunks
    moving = moving_of(phase, chunk, platform) / segments
    idle = phase.latency + phase.wait * chunk
    return min(4 + ceil(4 * idle / moving), MOST_IN_FLIGHT) if moving > 0 else MOST_IN_FLIGHT


def segments_of(chunks: int, phase: PhysicalPhase, size: int, platform: Platform, depth: int) -> int:
    """Return the segments of a chunk of `size` bytes in trees of `depth` rounds, up and down again.

    More segments fill the levels of a tree sooner, but each costs a latency. Alone, a chunk of s segments takes
    t(s) = (s + depth) · (moving / s + latency), which is least at s = √(depth · moving / latency). Chunks in flight at
    the same time hide each other's latency.
    """
    moving, latency = moving_of(phase, size, platform), phase.latency
    ability = platform.dimensions[phase.dim].in_network
    limits = (platform.collectives.active_chunks, ability.operations if ability else 0, AT_ONCE)
    in_flight = min(chunks, *(limit for limit in limits if limit))
    most = min(ceil(FILL * depth / chunks), int(phase.sent * size) // SMALLEST)
    # Without latency any number is as good: then as many as the limits allow.
    best = sqrt(depth * moving * in_flight / latency) if latency > 0 else most
    return max(1, min(most, int(best)))


def moving_of(phase: PhysicalPhase, size: int, platform: Platform) -> float:
    """Return how long the bytes of a chunk occupy the fullest port or link, ns."""
    return float(phase.volume * size) / port(platform.dimensions[phase.dim]).slower
