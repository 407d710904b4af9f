"""Step times from profiles of layers, as LLMServingSim records them: a folder with CSV files, of one layer each.

| file | columns | what |
|---|---|---|
| ``dense.csv`` | ``layer``, ``tokens``, ``time_us`` | all that depends on the tokens alone |
| ``per_sequence.csv`` | ``layer``, ``sequences``, ``time_us`` | head and sampler |
| ``attention.csv`` | ``prefill_chunk``, ``kv_prefill``, ``n_decode``, ``kv_decode``, ``time_us`` | of a mixed step |
| ``moe.csv``, if it has experts | ``tokens``, ``activated_experts``, ``time_us`` | router, experts and their sum |
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from armillary.base.counts import check_count
from armillary.base.csv_text import CsvRows
from armillary.base.errors import InputError, nearest
from armillary.base.packing import read_unpacked
from armillary.base.reading import MOST_TEXT, decoded
from armillary.serving.step_table import Ints, StepTable

Floats = NDArray[np.float64]

ONCE = ("embedding", "final_layernorm")
"""Layers that a model has once; it has two of `TWICE` in each block, and one of each other."""
TWICE = ("layernorm",)
EACH = 1000
"""ns of a us; ps of a ns."""
MOST_POINTS = 10**7
"""Points of the grid of attention: profiles that we know have 30,000."""
MOST_US = 1e9
"""us of a layer: twenty minutes."""


def profile_table(
    folder: Path,
    layers: int,
    budget: int,
    sequences: int,
    *,
    extra_ns: Ints | None = None,
    head_ns: Ints | None = None,
    experts: tuple[int, int] | None = None,
) -> StepTable:
    """Return the times of steps of a model.

    Args:
        folder: With the files.
        layers: Blocks of the model.
        budget: Most tokens of a step.
        sequences: Most sequences that run at a time.
        extra_ns: (budget + 1) What the profile lacks, e.g. all-reduces, by tokens.
        head_ns: (sequences + 1) The same by sequences that get a token, e.g. how logits are gathered.
        experts: How many a layer has, and how many a token visits; None: it has none.

    Raises:
        InputError: a file is missing, lacks a column, has no row, or a value is no number.
    """
    dense = np.zeros(budget + 1)
    for name, points in _curves(folder / "dense.csv", "tokens").items():
        often = 1 if name in ONCE else 2 * layers if name in TWICE else layers
        dense += often * _along(points, budget)
    if experts is not None:
        dense += layers * _experts(folder / "moe.csv", budget, *experts)
    head = np.zeros(sequences + 1)
    for points in _curves(folder / "per_sequence.csv", "sequences").values():
        head += _along(points, sequences)
    dense[0] = head[0] = 0
    axes, values = _attention(folder / "attention.csv")
    ns = np.rint(dense * EACH).astype(np.int64) + (0 if extra_ns is None else extra_ns)
    ps = np.rint(values * layers * EACH * EACH).astype(np.int64)
    last = np.rint(head * EACH).astype(np.int64) + (0 if head_ns is None else head_ns)
    return StepTable(ns, last, axes, ps)


def _rows(
    path: Path, numbers: Sequence[str], *, names: Sequence[str] = ()
) -> Iterator[tuple[list[str], list[float]]]:
    """Yield the names and the numbers of each row, which are at least 0."""
    try:
        text = decoded(read_unpacked(path, MOST_TEXT), path)
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: cannot be read as text ({error}), expected a profile of layers") from None
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror or error}), expected a profile of layers"
        ) from None
    rows = CsvRows(path, text.splitlines())
    header = [each.strip() for each in next(rows, [])]
    for name in (*names, *numbers):
        if name not in header:
            raise InputError(
                f"{path}: no column '{name}'{nearest(name, header)}, expected {', '.join((*names, *numbers))}"
            )
    count = 0
    for row in rows.named(header):
        count += 1
        values = []
        for name in numbers:
            try:
                value = float(row[name])
            except ValueError:
                value = math.nan
            if not 0 <= value <= MOST_US:
                raise InputError(
                    f"{path}:{rows.line}: {name}: got '{row[name]}', expected a number from 0 to {MOST_US:g}"
                )
            values.append(value)
        yield [row[name] for name in names], values
    if not count:
        raise InputError(f"{path}: there is no row, expected times of layers")


def _curves(path: Path, axis: str) -> Mapping[str, list[tuple[float, float]]]:
    """Return (axis, us) of each layer of a file."""
    found: dict[str, list[tuple[float, float]]] = {}
    for (name,), (at, us) in _rows(path, (axis, "time_us"), names=("layer",)):
        found.setdefault(name, []).append((at, us))
    return {name: sorted(points) for name, points in found.items()}


def _along(points: list[tuple[float, float]], most: int) -> Floats:
    """Return us at 0, 1, 2 ... `most`; beyond the last point the line through the last two goes on."""
    x, y = np.array(points).T
    at = np.arange(most + 1.0)
    inside: Floats = np.interp(at, x, y)
    if len(x) < 2 or x[-1] == x[-2]:
        return inside
    slope = (y[-1] - y[-2]) / (x[-1] - x[-2])
    return np.asarray(np.where(at > x[-1], y[-1] + slope * (at - x[-1]), inside))


def _experts(path: Path, budget: int, count: int, top: int) -> Floats:
    """Return us of the experts of a layer by tokens, whose choices are taken to be equally likely and independent.

    Of `count` experts, t tokens that visit `top` each then visit count (1 - (1 - top / count)^t).
    """
    grid: dict[float, list[tuple[float, float]]] = {}
    for _, (tokens, active, us) in _rows(path, ("tokens", "activated_experts", "time_us")):
        grid.setdefault(tokens, []).append((active, us))
    at = np.arange(budget + 1.0)
    visited = count * (1 - (1 - min(top, count) / count) ** at)
    sizes = sorted(grid)
    # us of each row at the experts that each number of tokens visits, then between rows.
    curves = np.array([np.interp(visited, *np.array(sorted(grid[size])).T) for size in sizes])
    if len(sizes) == 1:
        return np.asarray(curves[0])
    low = np.clip(np.searchsorted(sizes, at, "right") - 1, 0, len(sizes) - 2)
    begin, end = np.array(sizes)[low], np.array(sizes)[low + 1]
    share = np.maximum(0.0, (at - begin) / (end - begin))
    columns = np.arange(budget + 1)
    found = curves[low, columns] * (1 - share) + curves[low + 1, columns] * share
    return np.asarray(np.maximum(0.0, found))


def _attention(path: Path) -> tuple[tuple[Ints, Ints, Ints, Ints], Floats]:
    """Return the axes and us of one layer; combinations that were not measured follow from their neighbours."""
    columns = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode", "time_us")
    rows = np.array([values for _, values in _rows(path, columns)])
    keys = rows[:, :4].astype(np.int64)
    a, b, c, d = (np.unique(keys[:, each]) for each in range(4))
    axes = (a, b, c, d)
    check_count(math.prod(map(len, axes)), MOST_POINTS, f"{path}: points of the grid", "a coarser grid")
    grid = np.full([len(each) for each in axes], np.nan)
    at = tuple(np.searchsorted(axes[each], keys[:, each]) for each in range(4))
    grid[at] = rows[:, 4]
    return axes, fill(grid, axes)


def fill(grid: Floats, axes: Sequence[Ints]) -> Floats:
    """Return a grid in which no value is missing."""
    chunk, _, decoding, context = axes
    a = int(np.searchsorted(chunk, 0))
    c = int(np.searchsorted(decoding, 0))
    if decoding[c] == 0:
        # Nobody decodes: nothing stands before those that do.
        grid[:, :, c, :] = grid[:, :, c, :1]
    if chunk[a] == 0:
        grid[a] = grid[a, :1]
        if decoding[c] == 0:
            grid[a, :, c, :] = 0
    # Nothing before those that decode costs what the shortest does.
    if context[0] == 0 and len(context) > 1:
        grid[:, :, :, 0] = np.where(np.isnan(grid[:, :, :, 0]), grid[:, :, :, 1], grid[:, :, :, 0])
    for axis in (3, 2, 1, 0):
        moved = np.moveaxis(grid, axis, -1)
        points = axes[axis].astype(float)
        for index in np.ndindex(moved.shape[:-1]):
            line = moved[index]
            known = ~np.isnan(line)
            if known.all() or known.sum() < 2:
                continue
            x, y = points[known], line[known]
            slope = max(0.0, (y[-1] - y[-2]) / (x[-1] - x[-2]))
            filled = np.where(points > x[-1], y[-1] + slope * (points - x[-1]), np.interp(points, x, y))
            line[~known] = filled[~known]
    # A line of a single point is as flat as it can be.
    return np.asarray(np.nan_to_num(grid, nan=float(np.nanmax(grid))))
