"""Sizes and times that are wrong by no more than a bound, on a grid that no dimension divides."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from armillary.lab.obfuscation.keyed import I64, Floats, digest, generator, uniform
from armillary.lab.obfuscation.relabel import Draft
from armillary.lab.obfuscation.rows import MISSING, Coded, Rows
from armillary.trace.schema import NodeType

_COMPUTE = (NodeType.COMP_NODE, NodeType.INVALID_NODE, NodeType.METADATA_NODE)


def quantise(values: I64, bound: float, draws: Floats) -> I64:
    """Return values moved to powers of 1 + `bound`, each to the one below or above it.

    A value between two powers goes to either with a probability such that logarithms are kept on average; so any
    value v becomes one from v / (1 + bound) to v (1 + bound). Values below 1 stay.

    Args:
        values: Integers, (n,).
        bound: Above 0.
        draws: Numbers from 0 to 1 that decide, (n,).
    """
    positive = np.maximum(values, 1).astype(np.float64)
    step = np.log1p(bound)
    moved = np.exp(np.floor(np.log(positive) / step + draws) * step)
    low, high = np.ceil(positive / (1 + bound)), np.floor(positive * (1 + bound))
    found = np.clip(np.rint(moved), low, high).astype(np.int64)
    return np.where((values < 1) | (values > 1 << 52), values, found)


def perturb(draft: Draft, bound: float, key: str) -> Draft:
    """Return a draft whose sizes, operations and durations are wrong by at most a factor of 1 + `bound`.

    What is communicated gets a factor that follows from its size alone, so whoever takes part sees the same.
    """
    if not bound:
        return draft
    made = [_perturbed(rows, bound, key, alike) for rows, alike in zip(draft.rows, draft.alike, strict=True)]
    return replace(draft, rows=tuple(made))


def _perturbed(rows: Rows, bound: float, key: str, alike: int) -> Rows:
    compute = np.isin(rows.types, _COMPUTE)
    draw = generator(key, "sizes", alike)
    numbers, secret = dict(rows.numbers), digest(key, "sizes")

    def shifted(values: I64, own: Floats) -> I64:
        return np.where(values == MISSING, MISSING, quantise(values, bound, own))

    for name in ("num_ops", "tensor_size", "comm_size"):
        alone, shared = draw.random(rows.n), uniform(secret, numbers[name])
        numbers[name] = shifted(numbers[name], np.where(compute, alone, shared))
    time = draw.random(rows.n)
    exact = numbers["duration_ns"]
    exact = np.where(
        (exact == MISSING) & (rows.micros > 0) & (rows.micros < 1 << 40), rows.micros * 1000, exact
    )
    numbers["duration_ns"] = shifted(exact, time)
    splits = rows.lists["comm_splits"]
    lists = tuple(
        tuple(quantise(row, bound, uniform(secret, row)).tolist())
        for row in (np.array(each, np.int64) for each in splits.values)
    )
    micros = quantise(rows.micros, bound, time)
    return replace(
        rows, numbers=numbers, micros=micros, lists={**rows.lists, "comm_splits": Coded(splits.codes, lists)}
    )
