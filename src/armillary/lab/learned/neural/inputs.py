"""A condition as input of a network: logarithms, and small numbers and words as one-hot features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from armillary.lab.learned.conditions import WORDS, Value
from armillary.lab.learned.monomials import VARIABLES, logarithms_of

Floats = NDArray[np.float32]
SMALL = ("stage", "stages_left", "spare", "microbatches", "pp")
"""Numbers with a feature for each value up to `MOST`."""
MOST = 8
SEVERAL = ("tp", "cp", "dp", "replicas", "ep", "etp", "expert_replicas")
"""Numbers with a feature for whether they exceed 1."""
COUNT_SIZE = MOST + 2


def features(conditions: Sequence[Mapping[str, Value]]) -> Floats:
    """Return the features of conditions of classes of ranks, (conditions, features); logarithms come first."""
    # `logarithms_of` has -80 for 0, which would dwarf everything else here.
    numbers = np.maximum(logarithms_of(conditions), 0)
    rest = []
    for each in conditions:
        row: list[float] = []
        for key in SMALL:
            value = min(MOST, max(0, int(each.get(key, 0))))
            row += [float(value == at) for at in range(MOST + 1)]
        row += [float(int(each.get(key, 1)) > 1) for key in SEVERAL]
        # With as many microbatches as stages are left, or one more, 1F1B has no or a single steady round.
        short = int(each.get("microbatches", 1)) - int(each.get("stages_left", 0))
        row += [float(short <= 0), float(short == 1)]
        for key, words in WORDS.items():
            row += [float(each.get(key) == word) for word in words]
        rest.append(row)
    return np.concatenate([numbers, np.array(rest).reshape(len(numbers), -1)], 1).astype(np.float32)


def varied(condition: Mapping[str, Value], rng: np.random.Generator) -> dict[str, Value]:
    """Return a condition with other sizes, layers, stages and microbatches under which the same choices are right.

    If there are too few microbatches to fill the pipeline, they and the stages stay: there programs differ.
    """
    found = dict(condition)
    for key in ("hidden", "ffn", "expert_size", "vocabulary", "sequence"):
        size = int(condition.get(key, 1))
        # A factor from 1/2 to 2; 0 (no experts) stays 0.
        found[key] = max(min(1, size), round(size * 2 ** rng.uniform(-1, 1)))
    pp, many = int(condition.get("pp", 1)), int(condition.get("microbatches", 1))
    if many >= pp + 2:
        for key in ("stage", "stages_left"):
            if int(condition.get(key, 0)) >= 2:
                found[key] = int(rng.integers(2, MOST))
        found["pp"] = pp = int(found.get("stage", 0)) + int(found.get("stages_left", 0)) + 1
        found["microbatches"] = int(rng.integers(pp + 2, pp + 2 + 2 * many))
        # As `conditions.of_class` derives it.
        found["spare"] = int(found["microbatches"]) - pp + int(found.get("stage", 0))
    stage_layers = int(condition.get("stage_layers", 1))
    if stage_layers > 2:
        found["stage_layers"] = int(rng.integers(3, 2 * stage_layers))
    found["layers"] = int(found.get("stage_layers", 1)) * pp
    return found


def width() -> int:
    """Return the number of features."""
    return int(features([{}]).shape[1])


def scales(found: Floats) -> Floats:
    """Return mean and standard deviation of every feature of a corpus, (2, features); words keep 0 and 1."""
    table = np.zeros((2, found.shape[1]), np.float32)
    table[1] = 1
    many = len(VARIABLES)
    table[0, :many] = found[:, :many].mean(0)
    # What hardly varies says nothing, and must not become large where it is extrapolated.
    table[1, :many] = np.maximum(found[:, :many].std(0), 0.5)
    return table


def count_features(counts: NDArray[np.int64]) -> Floats:
    """Return the features of counts of shape (n, …), as (n, …, `COUNT_SIZE`); for a count of -1 all are 0."""
    found = np.zeros((*counts.shape, COUNT_SIZE), np.float32)
    for value in range(MOST + 1):
        found[..., value] = np.minimum(counts, MOST) == value
    found[..., -1] = np.log1p(np.maximum(counts, 0)) / 4
    return found
