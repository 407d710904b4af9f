"""What finite buffers cost a systolic array: operands that do not stay on the chip are fetched again, and waited for.

Each of the two operands and the result has a buffer of its own, in two halves as in SCALE-sim (Samajdar et al., ISPASS
2020, section III): the array works on one half while the other is filled from memory, or emptied. Folds go down the
first size before they go across the second, so one operand comes by once a pass, as whole as it is; under an output
stationary dataflow the other has one tile for all folds of a pass. What fits into a half stays there; what does not is
fetched each time. With a stationary operand every fold writes partial sums.

The next half is fetched as soon as the array begins to work on this one, and results leave half by half as soon as
there is one. The array stands still where words that it needs are not there yet, or results have no room. The first
half is there at the start, and the last results leave after the end, as in the cycles that SCALE-sim reports.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from math import ceil
from typing import Literal

from armillary.trace.gemm import Gemm

Dataflow = Literal["output", "weight", "input"]
LOADED = {"output": False, "weight": True, "input": True}
"""Whether an operand lies in the array and takes a cycle a row to load."""
PASSES, HALVES = 8, 32
"""That are gone through at least: more only repeat what the second half of them does, on average."""


@dataclass(frozen=True)
class Buffers:
    """Words on the chip, both halves, by SCALE-sim's names: of the left operand (m, k), the right one, the result."""

    ifmap: int
    filter: int
    ofmap: int


@dataclass(frozen=True)
class Burst:
    """Words that a fold needs of an operand, or makes, evenly from cycle `begin` on for `length` cycles."""

    words: int
    begin: int
    length: int


@dataclass(frozen=True)
class Folds:
    """How a product goes through an array.

    Attributes:
        down: Sizes of the tiles along the rows.
        across: Sizes of the tiles along the columns; a pass is all of `down` for one of them.
        stream: Cycles in which operands stream.
        load: Cycles that load a stationary operand.
        rows: Of the array.
        columns: Of the array.
        dataflow: What stays in the array.
    """

    down: tuple[int, ...]
    across: tuple[int, ...]
    stream: int
    load: int
    rows: int
    columns: int
    dataflow: Dataflow

    @property
    def cycles(self) -> int:
        """Of one fold, without stalls."""
        return self.load + self.stream + self.rows + self.columns - 2

    def bursts(self, column: int, row: int, halves: tuple[int, int, int]) -> tuple[Burst, Burst, Burst]:
        """Return what a fold fetches of the operand along rows, fetches of that along columns, and writes."""
        r, c, s = self.down[row], self.across[column], self.stream
        stays = s * sum(self.down) <= halves[0]
        by_rows = Burst(0 if stays and column else r * s, self.load, s + r - 1)
        if self.dataflow == "output":
            held = c * s <= halves[1]
            by_columns = Burst(0 if held and row else c * s, 0, s + c - 1)
            return by_rows, by_columns, Burst(r * c, s, self.rows + self.columns - 2)
        return by_rows, Burst(r * c, 0, r), Burst(c * s, self.load + self.rows - 1, s + c - 1)


def folds(product: Gemm, rows: int, columns: int, dataflow: Dataflow) -> Folds:
    """Return how one product of a batch goes through an array."""
    m, n, k = product.m, product.n, product.k
    down, across, stream = {"output": (m, n, k), "weight": (k, n, m), "input": (k, m, n)}[dataflow]
    return Folds(
        _tiles(down, rows),
        _tiles(across, columns),
        stream,
        rows if LOADED[dataflow] else 0,
        rows,
        columns,
        dataflow,
    )


def stalls(
    product: Gemm, rows: int, columns: int, dataflow: Dataflow, buffers: Buffers, bandwidth: float
) -> int:
    """Return the cycles in which the array stands still in one product of a batch.

    Args:
        product: The product.
        rows: Of the array.
        columns: Of the array.
        dataflow: What stays in the array.
        buffers: Words of the three buffers.
        bandwidth: Words per cycle between each buffer and the memory.
    """
    through = folds(product, rows, columns, dataflow)
    halves = _halved(dataflow, buffers)
    fill = [ceil(half / bandwidth) for half in halves]
    gone = _gone(through, halves)
    events = [_halves(through, gone, which, halves) for which in range(3)]
    waiting = [(at, which) for which, each in enumerate(events) if (at := next(each, None)) is not None]
    heapify(waiting)
    # When the next half of an operand is filled; of results, when the half before the one that leaves has left.
    ready, leaves = [fill[0], fill[1], 0], 0
    pass_cycles = len(through.down) * through.cycles
    stalled, of_pass = 0, [0] * len(gone)
    while waiting:
        at, which = waiting[0]
        wait = max(ready[which] - (at + stalled), 0)
        stalled += wait
        of_pass[min(at // pass_cycles, len(gone) - 1)] += wait
        now = at + stalled
        if which < 2:
            ready[which] = now + fill[which]
        else:  # with another half there is room for the next one when the half before has left
            ready[2], leaves = leaves, max(leaves, now) + fill[2]
        following = next(events[which], None)
        if following is None:
            heappop(waiting)
        else:
            heapreplace(waiting, (following, which))
    between = len(through.across) - len(gone)
    alike = of_pass[(len(gone) - 1) // 2 : -1]
    return stalled + (between * sum(alike) // len(alike) if between else 0)


def _gone(through: Folds, halves: tuple[int, int, int]) -> list[int]:
    """Return the passes to go through: all, or the first and the last."""
    passes, count = len(through.across), PASSES
    if passes <= count + 1:
        return list(range(passes))
    for which, half in enumerate(halves):
        words = [through.bursts(1, row, halves)[which].words for row in range(len(through.down))]
        count = max(count, -(-HALVES * half // sum(words))) if any(words) else count
    return [*range(count), passes - 1] if count + 1 < passes else list(range(passes))


def moved(
    product: Gemm, rows: int, columns: int, dataflow: Dataflow, buffers: Buffers
) -> tuple[int, int, int]:
    """Return the words of the left and of the right operand that one product fetches, and of results that it writes."""
    through, halves = folds(product, rows, columns, dataflow), _halved(dataflow, buffers)
    down, across, stream = sum(through.down), sum(through.across), through.stream
    by_rows = down * stream * (1 if down * stream <= halves[0] else len(through.across))
    if dataflow == "output":
        often = [1 if tile * stream <= halves[1] else len(through.down) for tile in through.across]
        return by_rows, sum(map(int.__mul__, often, through.across)) * stream, down * across
    written = across * stream * len(through.down)
    return (by_rows, down * across, written) if dataflow == "weight" else (down * across, by_rows, written)


def _halved(dataflow: Dataflow, buffers: Buffers) -> tuple[int, int, int]:
    """Return half of the buffers of the operand along rows, of that along columns, and of the result."""
    sizes = [buffers.ifmap, buffers.filter, buffers.ofmap]
    if dataflow == "input":  # the right operand streams
        sizes[:2] = sizes[1::-1]
    by_rows, by_columns, result = (max(size // 2, 1) for size in sizes)
    return by_rows, by_columns, result


def _tiles(size: int, of: int) -> tuple[int, ...]:
    whole, rest = divmod(size, of)
    return (of,) * whole + ((rest,) if rest else ())


def _halves(through: Folds, passes: list[int], which: int, halves: tuple[int, int, int]) -> Iterator[int]:
    """Yield the cycles, without stalls, of the first word of another half that is needed, or the last that is made."""
    half, total, start = halves[which], 0, 0
    border = half - (which == 2)
    for column in passes:
        for row in range(len(through.down)):
            burst = through.bursts(column, row, halves)[which]
            while border < total + burst.words:
                yield start + burst.begin + (border - total) * burst.length // burst.words
                border += half
            total += burst.words
            start += through.cycles
