"""Layout of boxes in layers by dependency, in near-linear time, for graphs too big for Graphviz.

The method is Sugiyama's (layers by longest path, dummy boxes on edges that pass layers, barycentres), with each
sweep over all layers at once, in NumPy, and two additions for traces: boxes of one lane stay side by side, and
layers that are too wide or drawings that are too tall are wrapped.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from armillary.report.earliest import earliest, forward_edges

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]

BOX = (176.0, 34.0)
GAP = (18.0, 34.0)
"""Width and height of a box, and the room between boxes, in pixels."""
_THREAD = 10.0
_ASPECT = 1.7
_SWEEPS = 24
_DUMMIES = 40_000
_LONGEST = 24
_HOMING = 0.35


@dataclass(frozen=True, eq=False)
class Layout:
    """Centres of boxes in pixels, y downwards; each block has its own origin at the top left."""

    x: F64
    y: F64
    left: F64
    """(boxes): x of the gap left of a box's column; edges from other columns pass through it."""
    back: NDArray[np.bool_]
    """(edges): whether it leads upwards because it closes a cycle."""
    bends: F64
    """(2, bends): points that edges pass through."""
    bend_ptr: I64
    """(edges + 1): offsets into `bends`."""
    width: F64
    """(blocks)"""
    height: F64
    """(blocks)"""


def layered(n: int, src: I64, dst: I64, lane: I64, block: I64 | None = None) -> Layout:
    """Place `n` boxes.

    Args:
        n: number of boxes.
        src: the upper end of every edge.
        dst: the lower end.
        lane: what to keep side by side, ascending from the left, int64 (n,).
        block: drawings that are separate; edges are inside one. None for a single one.
    """
    block = np.zeros(n, dtype=np.int64) if block is None else block
    forward = forward_edges(n, src, dst)
    layer = earliest(n, src[forward], dst[forward], np.ones(n, dtype=np.int64))
    edge = np.flatnonzero(forward)
    span = layer[dst[edge]] - layer[src[edge]]
    longest = _LONGEST
    # Long edges need a dummy per layer that they pass: halve the longest that gets any until
    # their number is bounded. Longer edges are drawn straight.
    while longest > 1 and int((span - 1)[span <= longest].sum()) > _DUMMIES:
        longest //= 2
    passing = np.where(span <= longest, span - 1, 0)
    # Dummies of an edge follow each other, and come after the boxes.
    of = np.repeat(np.arange(len(edge)), passing)
    nth = np.arange(len(of)) - np.repeat(np.cumsum(passing) - passing, passing)
    dummies = len(of)
    total = n + dummies
    layer = np.concatenate([layer, layer[src[edge[of]]] + nth + 1])
    block = np.concatenate([block, block[src[edge[of]]]])
    # Dummies alternate between the lanes of both ends, so neither lane has all of them.
    side = np.concatenate([lane, np.where(nth % 2, lane[src[edge[of]]], lane[dst[edge[of]]])])
    wide = np.concatenate([np.full(n, BOX[0] + GAP[0]), np.full(dummies, _THREAD)])
    upper, lower = _segments(n, src[edge], dst[edge], passing, span <= longest)

    # From here on an order is sorted by block, layer and lane, so sweeps move boxes only within
    # these.
    order = np.lexsort((np.arange(total), side, layer, block))
    # Barycentres of the layer above and of the layer below in turn, as Sugiyama has it.
    for sweep in range(_SWEEPS):
        place = _places(order, block, layer)
        pull = _pull(place, upper, lower, up=sweep % 2 == 0)
        order = np.lexsort((place, pull, side, layer, block))
    row, blocks_rows = _rows(order, block, layer, wide)
    x = _positions(order, block, row, wide, upper, lower, _home(block, row, side, wide))
    # Places within a block are final; now blocks are cut into columns and moved apart.
    column, y = _columns(block, row, blocks_rows, x, wide)
    x, left, width = _spread(block, column, x, wide)
    # An edge into another column goes through the gap between them instead.
    kept = (column[src[edge[of]]] == column[dst[edge[of]]]) if dummies else np.zeros(0, dtype=np.bool_)
    ends = np.concatenate([[0], np.cumsum(np.bincount(edge[of[kept]], minlength=len(src)))])
    height = np.zeros(len(width))
    np.maximum.at(height, block, y + BOX[1])
    return Layout(x[:n], y[:n], left[:n], ~forward, np.stack([x[n:], y[n:]])[:, kept], ends, width, height)


def _segments(n: int, src: I64, dst: I64, passing: I64, short: NDArray[np.bool_]) -> tuple[I64, I64]:
    """Return the upper and lower ends of the one-layer pieces of all edges that are short enough to be cut."""
    first = n + np.cumsum(passing) - passing
    cut = passing > 0
    # Edges of one layer are one piece; longer ones go by their dummies.
    plain = short & ~cut
    last = first + passing - 1
    dummies = np.arange(n, n + int(passing.sum()))
    inner = np.delete(dummies, last[cut] - n)
    upper = np.concatenate([src[plain], src[cut], inner, last[cut]])
    lower = np.concatenate([dst[plain], first[cut], inner + 1, dst[cut]])
    return upper, lower


def _places(order: I64, block: I64, layer: I64) -> F64:
    """Return the distance of every box from the middle of its layer, in boxes."""
    key = np.stack([block[order], layer[order]])
    new = (
        np.concatenate([[True], (key[:, 1:] != key[:, :-1]).any(axis=0)]) if len(order) else np.zeros(0, bool)
    )
    begin = np.flatnonzero(new)
    size = np.diff(np.append(begin, len(order)))
    place = np.empty(len(order))
    place[order] = np.arange(len(order)) - np.repeat(begin + (size - 1) / 2, size)
    return place


def _pull(place: F64, upper: I64, lower: I64, *, up: bool) -> F64:
    """Return for every box the mean place of its neighbours above or below, its own place if it has none."""
    at, neighbour = (lower, upper) if up else (upper, lower)
    count = np.bincount(at, minlength=len(place))
    total = np.bincount(at, weights=place[neighbour], minlength=len(place))
    return np.where(count > 0, total / np.maximum(count, 1), place)


def _rows(order: I64, block: I64, layer: I64, wide: F64) -> tuple[I64, I64]:
    """Wrap layers that are too wide: return the row of every box in its block, and the rows of each block."""
    n_blocks = int(block.max(initial=-1)) + 1
    boxes = np.bincount(block, weights=(wide > _THREAD).astype(np.float64), minlength=n_blocks)
    cell = BOX[0] + GAP[0], BOX[1] + GAP[1]
    # Rows as wide as a drawing of this aspect ratio would need, and at least six boxes.
    widest = np.maximum(6.0, np.sqrt(boxes * _ASPECT * cell[1] / cell[0])) * cell[0]
    b, la, w = block[order], layer[order], wide[order]
    new = np.concatenate([[True], (b[1:] != b[:-1]) | (la[1:] != la[:-1])])[: len(order)]
    along = np.cumsum(w) - w
    along -= np.repeat(along[new], np.diff(np.append(np.flatnonzero(new), len(order))))
    wrapped = (along / widest[b]).astype(np.int64)
    # A row begins with each layer and wherever a layer is wrapped.
    starts = np.concatenate([[True], (wrapped[1:] != wrapped[:-1])])[: len(order)] | new
    number = np.cumsum(starts) - 1
    begin = np.full(n_blocks, np.iinfo(np.int64).max)
    np.minimum.at(begin, b, number)
    row = np.empty(len(order), dtype=np.int64)
    row[order] = number - begin[b]
    rows = np.zeros(n_blocks, dtype=np.int64)
    np.maximum.at(rows, block, row + 1)
    return row, rows


def _home(block: I64, row: I64, side: I64, wide: F64) -> F64:
    """Return for every box the x that the middle of its lane would have if all rows were alike."""
    lanes = int(side.max(initial=0)) + 1
    keys, at = np.unique(block * lanes + side, return_inverse=True)
    at = at.reshape(-1)
    rows = int(row.max(initial=0)) + 1
    # In how many rows a lane has boxes: its width is the mean over these.
    used = np.bincount(np.unique(at * rows + row) // rows, minlength=len(keys))
    across = np.bincount(at, weights=wide, minlength=len(keys)) / np.maximum(used, 1)
    middle = np.cumsum(across) - across / 2
    begin = np.full(int(block.max(initial=-1)) + 1, np.inf)
    np.minimum.at(begin, keys // lanes, middle)
    home: F64 = (middle - begin[keys // lanes])[at]
    return home


def _positions(order: I64, block: I64, row: I64, wide: F64, upper: I64, lower: I64, home: F64) -> F64:
    """Return x such that boxes stand near their neighbours and lane, and none overlaps another of its row."""
    n = len(order)
    if not n:
        return np.zeros(0)
    new = np.concatenate(
        [[True], (block[order][1:] != block[order][:-1]) | (row[order][1:] != row[order][:-1])]
    )
    begin = np.flatnonzero(new)
    size = np.diff(np.append(begin, n))
    line = np.repeat(np.arange(len(begin)), size)
    w = wide[order]
    along = np.cumsum(w) - w / 2
    along -= np.repeat(along[begin], size)
    # Farther than any two boxes of a row: it separates rows in one accumulated array.
    far = 4.0 * float(along.max() + w.max() + home.max())

    x = home.copy()
    homing = np.where(wide > _THREAD, _HOMING, 0.0)
    for sweep in range(_SWEEPS):
        # The last two sweeps look both ways, so neither direction has the last word.
        pull = _pull(x, upper, lower, up=sweep % 2 == 0) if sweep < _SWEEPS - 2 else _both(x, upper, lower)
        pull += homing * (home - pull)
        free = np.clip(pull[order], -far / 4, far / 4) - along
        # Pushed to the right just enough, and to the left just enough: without overlap in both, so
        # their mean has none either.
        left = np.maximum.accumulate(free + line * far) - line * far
        right = (np.minimum.accumulate((free + line * far)[::-1]))[::-1] - line * far
        x[order] = (left + right) / 2 + along
    return x


def _both(x: F64, upper: I64, lower: I64) -> F64:
    return (_pull(x, upper, lower, up=True) + _pull(x, upper, lower, up=False)) / 2


def _columns(block: I64, row: I64, rows: I64, x: F64, wide: F64) -> tuple[I64, F64]:
    """Cut blocks that are too tall into columns, side by side: return the column and y of every box."""
    low, high = np.full(len(rows), np.inf), np.full(len(rows), -np.inf)
    np.minimum.at(low, block, x - wide / 2)
    np.maximum.at(high, block, x + wide / 2)
    pitch = BOX[1] + GAP[1]
    # Columns differ: between the widest row and the mean one.
    mean = np.bincount(block, weights=wide, minlength=len(rows)) / np.maximum(rows, 1)
    across = np.sqrt(np.maximum(high - low, BOX[0]) * np.maximum(mean, BOX[0])) + 2 * GAP[0]
    columns = np.maximum(np.rint(np.sqrt(_ASPECT * rows * pitch / across)).astype(np.int64), 1)
    # Rows per column, rounded up.
    deep = -(-rows // columns)
    column = row // deep[block]
    return column, (row % deep[block]) * pitch + BOX[1]


def _spread(block: I64, column: I64, x: F64, wide: F64) -> tuple[F64, F64, F64]:
    """Put the columns of each block side by side: return x, the left of the column, and every block's width."""
    n_blocks = int(block.max(initial=-1)) + 1
    keys, at = np.unique(block * (int(column.max(initial=0)) + 1) + column, return_inverse=True)
    at = at.reshape(-1)
    low, high = np.full(len(keys), np.inf), np.full(len(keys), -np.inf)
    np.minimum.at(low, at, x - wide / 2)
    np.maximum.at(high, at, x + wide / 2)
    across = high - low + 3 * GAP[0]
    owner = keys // (int(column.max(initial=0)) + 1)
    width = np.bincount(owner, weights=across, minlength=n_blocks).astype(np.float64)
    begin = np.cumsum(across) - across
    begin -= (np.cumsum(width) - width)[owner]
    placed: F64 = x - low[at] + begin[at] + 1.5 * GAP[0]
    return placed, begin[at], width
