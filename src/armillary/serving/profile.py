"""Step times from profiles of layers, as LLMServingSim records them: a folder with CSV files.

``dense.csv`` (layer, tokens, time_us), ``per_sequence.csv`` (layer, sequences, time_us), ``attention.csv``
(prefill_chunk, kv_prefill, n_decode, kv_decode, time_us), of one layer each.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from armillary.serving.step_table import Ints, StepTable

ONCE = ("embedding", "final_layernorm")
"""Layers that a model has once; it has two of `TWICE` in each block, and one of each other."""
TWICE = ("layernorm",)
EACH = 1000
"""ns of a us; ps of a ns."""


def profile_table(folder: Path, layers: int, budget: int, sequences: int, *, extra_ns: Ints | None = None) -> StepTable:
    """Return the times of steps of a model.

    Args:
        folder: With the files.
        layers: Blocks of the model.
        budget: Most tokens of a step.
        sequences: Most sequences that run at a time.
        extra_ns: (budget + 1) What the profile lacks, e.g. all-reduces, by tokens.

    Raises:
        InputError: a file lacks a column, or has no row.
    """
    dense = np.zeros(budget + 1)
    for name, points in _curves(folder / "dense.csv", "tokens").items():
        often = 1 if name in ONCE else 2 * layers if name in TWICE else layers
        dense += often * _along(points, budget)
    head = np.zeros(sequences + 1)
    for points in _curves(folder / "per_sequence.csv", "sequences").values():
        head += _along(points, sequences)
    head[0] = 0
    axes, values = _attention(folder / "attention.csv")
    ns = np.rint(dense * EACH).astype(np.int64) + (0 if extra_ns is None else extra_ns)
    return StepTable(
        ns, np.rint(head * EACH).astype(np.int64), axes, np.rint(values * layers * EACH * EACH).astype(np.int64)
    )


def _curves(path: Path, axis: str) -> Mapping[str, list[tuple[float, float]]]:
    """Return (axis, us) of each layer of a file."""
    import csv

    found: dict[str, list[tuple[float, float]]] = {}
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            found.setdefault(row["layer"], []).append((float(row[axis]), float(row["time_us"])))
    return {name: sorted(points) for name, points in found.items()}


def _along(points: list[tuple[float, float]], most: int) -> np.ndarray:
    """Return us at 0, 1, 2 ... `most`; beyond the last point the line through the last two goes on."""
    x, y = np.array(points).T
    at = np.arange(most + 1.0)
    inside = np.interp(at, x, y)
    slope = (y[-1] - y[-2]) / (x[-1] - x[-2])
    return np.where(at > x[-1], y[-1] + slope * (at - x[-1]), inside)


def _attention(path: Path) -> tuple[tuple[Ints, Ints, Ints, Ints], np.ndarray]:
    """Return the axes and us of one layer; combinations that were not measured follow from their neighbours."""
    import csv

    with path.open(newline="", encoding="utf-8") as file:
        rows = np.array(
            [
                [float(row[key]) for key in ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode", "time_us")]
                for row in csv.DictReader(file)
            ]
        )
    keys = rows[:, :4].astype(np.int64)
    axes = tuple(np.unique(keys[:, each]) for each in range(4))
    grid = np.full([len(each) for each in axes], np.nan)
    at = tuple(np.searchsorted(axes[each], keys[:, each]) for each in range(4))
    grid[at] = rows[:, 4]
    return axes, fill(grid, axes)  # type: ignore[return-value]


def fill(grid: np.ndarray, axes: tuple[Ints, ...]) -> np.ndarray:
    """Return a grid in which no value is missing."""
    chunk, before, decoding, context = axes
    a = int(np.searchsorted(chunk, 0))
    c = int(np.searchsorted(decoding, 0))
    if decoding[c] == 0:
        # Nobody decodes: nothing stands before those that do.
        grid[:, :, c, :] = grid[:, :, c, :1]
    if chunk[a] == 0:
        grid[a] = grid[a, :1]
        grid[a, :, c, :] = 0
    # Nothing before those that decode costs what the shortest does.
    if context[0] == 0:
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
    return grid
