"""Multi-dimensional collectives: one phase per dimension, and the queues those phases go through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

from armillary.base.errors import InputError
from armillary.platform.collectives import Algorithm

QueueFamily = Literal["all", "first", "last"]

_ALL_NPUS = {
    "oneRing": "ring",
    "oneDirect": "direct",
    "oneHalvingDoubling": "halvingDoubling",
}


@dataclass(frozen=True)
class Phase:
    """One phase of a collective.

    `dim` is the network dimension whose `size` NPUs take part, or -1: all NPUs of the machine.
    `level` is the dimension that owns the queues the phase goes through. `algorithm`, `operation`,
    `size` and `window` are arguments of `schedule_for`; `family` is for `queue_cycle`.
    """

    dim: int
    level: int
    size: int
    operation: str
    algorithm: str
    window: int | None = None
    family: QueueFamily = "all"


def plan(
    operation: str,
    algorithms: Sequence[Algorithm],
    sizes: Sequence[int],
    optimization: str = "baseline",
    involved: Sequence[bool] | None = None,
    order: Sequence[int] | None = None,
    turn_around: bool = True,
) -> tuple[Phase, ...]:
    """Return the phases of a collective over the whole machine.

    A dimension is used if it has an algorithm, more than one NPU, and is involved. The phases visit the used
    dimensions in order, an all-gather in reverse. A localBWAware all-reduce is a reduce-scatter on
    all but the last, an all-reduce on the last and an all-gather on the others in reverse; without
    `turn_around` a reduce-scatter on all, then an all-gather on all in reverse.

    Args:
        operation: "all-reduce", "all-gather", "reduce-scatter" or "all-to-all".
        algorithms: One per dimension, innermost first. Dimensions without one take no part. One of
            the "one…" algorithms spans all NPUs in a single phase, and ends the list.
        sizes: NPUs of each dimension.
        optimization: "baseline" or "localBWAware".
        involved: Whether each dimension takes part (None: all do; those beyond its end do not).
        order: The order in which the phases visit the dimensions; those it does not name come nowhere.
        turn_around: Whether a localBWAware all-reduce turns round in an all-reduce on its last dimension.

    Returns:
        The phases in order; none where no dimension is used.

    Raises:
        InputError: more algorithms than dimensions, or none.
    """
    # Fewer algorithms than dimensions leave the outer dimensions out.
    if not 1 <= len(algorithms) <= len(sizes):
        raise InputError(
            f"{operation}: {len(algorithms)} algorithm(s) for {len(sizes)} network dimension(s); "
            "expected one for each"
        )
    mask = (True,) * len(sizes) if involved is None else tuple(involved)
    used = [place for place in _places(algorithms, sizes) if place[1] < len(mask) and mask[place[1]]]
    # An all-gather grows on its way: starting outermost moves the least bytes over the slow dimensions.
    if operation == "all-gather":
        used.reverse()
    if order is not None:
        by_level = {place[1]: place for place in used}
        used = [by_level[level] for level in order if level in by_level]

    def phases(
        places: Sequence[_Place], of: str = operation, family: QueueFamily = "all"
    ) -> tuple[Phase, ...]:
        return tuple(Phase(*place[:3], of, *place[3:], family) for place in places)

    if operation == "all-reduce" and optimization == "localBWAware":
        # Without a turn-around every dimension first scatters, then gathers.
        inner, last = (used[:-1], used[-1:]) if turn_around else (used, [])
        # The two halves use different queue families, so that they do not wait for each other.
        return (
            *phases(inner, "reduce-scatter", "first"),
            *phases(last, "all-reduce", "first"),
            *phases(inner[::-1], "all-gather", "last"),
        )
    return phases(used)


_Place = tuple[int, int, int, str, int | None]


def _places(algorithms: Sequence[Algorithm], sizes: Sequence[int]) -> list[_Place]:
    """Return (dim, level, size, algorithm, window) of each dimension with more than one NPU."""
    places: list[_Place] = []
    for level, (algorithm, size) in enumerate(zip(algorithms, sizes, strict=False)):
        if algorithm.name in _ALL_NPUS:
            places.append((-1, level, prod(sizes), _ALL_NPUS[algorithm.name], algorithm.window))
            # An algorithm over all NPUs takes every dimension: nothing may follow it.
            break
        places.append((level, level, size, algorithm.name, algorithm.window))
    return [place for place in places if place[2] > 1]


def next_size(operation: str, size: int, n: int, algorithm: str = "ring") -> int:
    """Return the bytes of the phase after one of `size` bytes over `n` members.

    A double binary tree all-reduces whatever the operation, so it leaves the size as it is.
    """
    if algorithm == "doubleBinaryTree":
        return size
    return {"reduce-scatter": size // n, "all-gather": size * n}.get(operation, size)


def queue_cycle(family: QueueFamily, queues: int) -> tuple[tuple[int, bool], ...]:
    """Return the (queue, anticlockwise) pairs that phases of `family` take in turn.

    Each dimension has `queues` queues. "all" uses every one, the upper half anticlockwise; "first" the
    lower half clockwise; "last" the upper half anticlockwise. All three share a single queue.
    """
    # With a single queue half is 0: all families share queue 0.
    half = queues // 2
    if family == "first":
        return tuple((queue, False) for queue in range(max(half, 1)))
    if family == "last":
        return tuple((queue, True) for queue in range(half, queues))
    return tuple((queue, queues > 1 and queue >= half) for queue in range(queues))
