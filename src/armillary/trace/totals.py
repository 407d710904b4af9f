"""Durations in nanoseconds, and sums that do not wrap."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.trace.graph import Graph

LIMIT = 1 << 60
"""Nanoseconds and bytes of a node from here on are refused: sums must stay within int64."""


def duration_ns(graph: Graph) -> NDArray[np.int64]:
    """Return the duration of every node in ns: ``duration_ns`` where present, else ``duration_micros``.

    Raises:
        InputError: a duration is below 0 or 2**60 ns or more, or their sum 2**62 ns.
    """
    micros = graph.duration_micros
    # Clipped above the limit before the multiplication, which would wrap.
    found = np.minimum(micros, np.uint64(LIMIT // 1000 + 1)).astype(np.int64) * 1000
    if "duration_ns" in graph.attr_names:
        found = np.where(graph.has("duration_ns"), graph.ints("duration_ns"), found)
    wrong = np.flatnonzero((found < 0) | (found >= LIMIT))
    if len(wrong):
        at = int(wrong[0])
        exact = graph.ints("duration_ns")[at] if graph.has("duration_ns")[at] else f"{micros[at]} µs"
        raise InputError(f"{graph.node(at)} takes {exact}, expected less than 2**60 ns and no less than 0")
    # In float64 the sum cannot wrap; 2**62 leaves room for its rounding.
    if float(found.sum(dtype=np.float64)) >= 2**62:
        raise InputError(f"{graph.source}: the durations sum to 2**62 ns or more, expected less")
    return found


def exact_sum(values: NDArray[Any]) -> int:
    """Return the sum of integers of 64 bits without wrapping."""
    # Sums of 32-bit halves fit 64 bits for fewer than 2**32 values.
    # Of the same dtype as `values`: uint64 with a Python int would become float64.
    half = np.array(32, dtype=values.dtype)
    low, high = values & np.array(0xFFFF_FFFF, dtype=values.dtype), values >> half
    return int(low.sum()) + (int(high.sum()) << 32)
