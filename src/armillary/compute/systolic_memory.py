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
MOST = 100_000
"""Folds and halves of buffers that are gone through one by one, about half a second; more are taken as a flow."""


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
class Tiles:
    """A size cut into tiles, of which the last may be smaller."""

    size: int
    of: int

    @property
    def count(self) -> int:
        """How many there are."""
        return -(-self.size // self.of)

    def at(self, number: int) -> int:
        """Return the size of one."""
        return min(self.of, self.size - number * self.of)

    def kinds(self) -> list[tuple[int, int]]:
        """Return (number, count) of the first tile, of one in between, and of the last: `count` tiles have its size."""
        last = self.count - 1
        # First, middle and last tile are all that differ: a size of two tiles has no middle.
        return [(0, 1), *([(1, last - 1)] if last > 1 else []), *([(last, 1)] if last else [])]


@dataclass(frozen=True)
class Folds:
    """The folds in which an array computes a GEMM.

    Attributes:
        down: Tiles along the rows.
        across: Tiles along the columns; a pass is all of `down` for one of them.
        stream: Cycles in which operands stream.
        load: Cycles that load a stationary operand.
        rows: Rows of the array.
        columns: Columns of the array.
        dataflow: What stays in the array.
    """

    down: Tiles
    across: Tiles
    stream: int
    load: int
    rows: int
    columns: int
    dataflow: Dataflow

    @property
    def cycles(self) -> int:
        """Cycles of one fold, without stalls."""
        return self.load + self.stream + self.rows + self.columns - 2

    def bursts(self, column: int, row: int, halves: tuple[int, int, int]) -> tuple[Burst, Burst, Burst]:
        """Return what a fold fetches of the operand along rows, fetches of that along columns, and writes."""
        r, c, s = self.down.at(row), self.across.at(column), self.stream
        # The whole operand along the rows fits into its half: it is fetched in the first pass only.
        stays = s * self.down.size <= halves[0]
        by_rows = Burst(0 if stays and column else r * s, self.load, s + r - 1)
        if self.dataflow == "output":
            # Output stationary: the tile of the pass serves all its folds if it fits.
            held = c * s <= halves[1]
            by_columns = Burst(0 if held and row else c * s, 0, s + c - 1)
            return by_rows, by_columns, Burst(r * c, s, self.rows + self.columns - 2)
        # A stationary operand is loaded row by row; partial sums of each fold leave as the stream comes
        # through.
        return by_rows, Burst(r * c, 0, r), Burst(c * s, self.load + self.rows - 1, s + c - 1)


def folds(gemm: Gemm, rows: int, columns: int, dataflow: Dataflow) -> Folds:
    """Return the folds of one GEMM of a batch."""
    m, n, k = gemm.m, gemm.n, gemm.k
    down, across, stream = {"output": (m, n, k), "weight": (k, n, m), "input": (k, m, n)}[dataflow]
    load = rows if LOADED[dataflow] else 0
    return Folds(Tiles(down, rows), Tiles(across, columns), stream, load, rows, columns, dataflow)


def stalls(
    gemm: Gemm, rows: int, columns: int, dataflow: Dataflow, buffers: Buffers, bandwidth: float
) -> int:
    """Return the cycles in which the array stands still in one GEMM of a batch.

    Args:
        gemm: The GEMM.
        rows: Rows of the array.
        columns: Columns of the array.
        dataflow: What stays in the array.
        buffers: Words of the three buffers.
        bandwidth: Words per cycle between each buffer and the memory.
    """
    through = folds(gemm, rows, columns, dataflow)
    halves = _halved(dataflow, buffers)
    if _steps(through, halves) > MOST:
        return _as_flow(through, halves, bandwidth)
    # Cycles to fill, or empty, one half.
    fill = [ceil(half / bandwidth) for half in halves]
    # Not every pass is gone through: those between repeat.
    gone = _gone(through, halves)
    events = [_halves(through, gone, which, halves) for which in range(3)]
    # The first event of each of the three; a heap merges them in the order of cycles.
    waiting = [(at, which) for which, each in enumerate(events) if (at := next(each, None)) is not None]
    heapify(waiting)
    # When the next half of an operand is filled; of results, when the half before the one that leaves has left.
    ready, leaves = [fill[0], fill[1], 0], 0
    pass_cycles = through.down.count * through.cycles
    stalled, of_pass = 0, [0] * len(gone)
    while waiting:
        at, which = waiting[0]
        # `at` is without stalls, `ready` with those so far.
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
    # Passes between the first and the last take the mean of the second half of those gone through.
    between = through.across.count - len(gone)
    alike = of_pass[(len(gone) - 1) // 2 : -1]
    return stalled + (between * sum(alike) // len(alike) if between else 0)


def _gone(through: Folds, halves: tuple[int, int, int]) -> list[int]:
    """Return the passes to go through: all, or the first and the last."""
    passes, count = through.across.count, _passes(through, halves)
    return [*range(count), passes - 1] if count + 1 < passes else list(range(passes))


def _passes(through: Folds, halves: tuple[int, int, int]) -> int:
    """Return the number of passes after which all others only repeat them."""
    if through.across.count <= PASSES + 1:
        return through.across.count
    words = _words(through, halves)
    # Enough passes that each buffer is filled HALVES times: only then the pattern repeats.
    return max(PASSES, *(-(-HALVES * half // each) for half, each in zip(halves, words, strict=True) if each))


def _words(through: Folds, halves: tuple[int, int, int]) -> list[int]:
    """Return the words of the second pass, of each operand and of results."""
    # The first pass fetches what then stays, so the second is typical.
    column = min(1, through.across.count - 1)
    rows = [(through.bursts(column, row, halves), times) for row, times in through.down.kinds()]
    return [sum(times * bursts[which].words for bursts, times in rows) for which in range(3)]


def _steps(through: Folds, halves: tuple[int, int, int]) -> int:
    """Return an estimate of the folds and halves of buffers that `stalls` would step through."""
    passes = min(_passes(through, halves) + 1, through.across.count)
    moved = zip(_words(through, halves), halves, strict=True)
    return passes * (3 * through.down.count + sum(words // half for words, half in moved))


def _as_flow(through: Folds, halves: tuple[int, int, int], bandwidth: float) -> int:
    """Return an estimate of the stalled cycles if words come and go evenly instead of half by half.

    A fold takes at least as long as its words need; but for one half of a buffer they come, or go, within their burst.
    A tile that serves all folds of a pass has the whole of it to come. Of 300 random GEMMs with buffers of 512 words
    or more, nine in ten come within 2 % of the cycles that going through the halves finds, and all within 16 %.
    """
    whole = 0.0
    for column, columns in through.across.kinds():
        one = 0.0
        for row, rows in through.down.kinds():
            bursts = through.bursts(column, row, halves)
            held = through.dataflow == "output" and bursts[1].words <= halves[1]
            short = [
                # Over the whole fold, and within the burst except for what the half holds ahead.
                max(burst.words / bandwidth - through.cycles, (burst.words - half) / bandwidth - burst.length)
                for which, (burst, half) in enumerate(zip(bursts, halves, strict=True))
                if not (held and which == 1)
            ]
            one += rows * max(0.0, *short)
        # The tile of the next pass must come during this one.
        again = through.bursts(column, 0, halves)[1].words / bandwidth - (
            through.down.count * through.cycles + one
        )
        whole += columns * (one + max(0.0, again if through.dataflow == "output" else 0.0))
    return int(whole)


def moved(gemm: Gemm, rows: int, columns: int, dataflow: Dataflow, buffers: Buffers) -> tuple[int, int, int]:
    """Return the words of the left and of the right operand that one GEMM fetches, and of results that it writes."""
    through, halves = folds(gemm, rows, columns, dataflow), _halved(dataflow, buffers)
    down, across, stream = through.down.size, through.across.size, through.stream
    # Fetched once if it stays, else once per pass.
    by_rows = down * stream * (1 if down * stream <= halves[0] else through.across.count)
    if dataflow == "output":
        fetched = 0
        for column, times in through.across.kinds():
            tile = through.across.at(column)
            fetched += times * tile * stream * (1 if tile * stream <= halves[1] else through.down.count)
        return by_rows, fetched, down * across
    written = across * stream * through.down.count
    return (by_rows, down * across, written) if dataflow == "weight" else (down * across, by_rows, written)


def _halved(dataflow: Dataflow, buffers: Buffers) -> tuple[int, int, int]:
    """Return half of the buffers of the operand along rows, of that along columns, and of the result."""
    sizes = [buffers.ifmap, buffers.filter, buffers.ofmap]
    if dataflow == "input":  # the right operand streams
        # The right operand is the one along the rows: swap the two.
        sizes[:2] = sizes[1::-1]
    by_rows, by_columns, result = (max(size // 2, 1) for size in sizes)
    return by_rows, by_columns, result


def _halves(through: Folds, passes: list[int], which: int, halves: tuple[int, int, int]) -> Iterator[int]:
    """Yield the cycles, without stalls, of the first word of another half that is needed, or the last that is made."""
    half, total, start = halves[which], 0, 0
    # An operand is needed with its first word, a result half is full with its last.
    border = half - (which == 2)
    for column in passes:
        for row in range(through.down.count):
            burst = through.bursts(column, row, halves)[which]
            while border < total + burst.words:
                # Linear interpolation: the words of a burst come evenly.
                yield start + burst.begin + (border - total) * burst.length // burst.words
                border += half
            total += burst.words
            start += through.cycles
