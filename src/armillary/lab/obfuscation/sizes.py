"""Sizes and times perturbed by a bounded factor, onto a geometric grid that hides the dimensions they come from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from armillary.lab.obfuscation.keyed import I64, Floats, digest, generator, uniform
from armillary.lab.obfuscation.relabel import Draft
from armillary.lab.obfuscation.rows import MISSING, Coded, Rows
from armillary.trace.columns import NodeType

_COMPUTE = (NodeType.COMP_NODE, NodeType.INVALID_NODE, NodeType.METADATA_NODE)


def quantise(values: I64, bound: float, draws: Floats) -> I64:
    """Return values rounded stochastically to powers of 1 + `bound`.

    A value v between two powers becomes either of them, with probabilities that keep the expected logarithm. The
    result lies between v / (1 + bound) and v (1 + bound). Values below 1 stay.

    Args:
        values: Integers, (n,).
        bound: Above 0.
        draws: Numbers from 0 to 1 that decide, (n,).
    """
    positive = np.maximum(values, 1).astype(np.float64)
    step = np.log1p(bound)
    # floor(x + u) with u uniform in [0, 1) is stochastic rounding: up with the probability of the fractional
    # part.
    moved = np.exp(np.floor(np.log(positive) / step + draws) * step)
    # Rounding to an integer may leave the bound where values are small: 3 with a bound of 5 % has no other
    # integer.
    low, high = np.ceil(positive / (1 + bound)), np.floor(positive * (1 + bound))
    found = np.clip(np.rint(moved), low, high).astype(np.int64)
    # Beyond 2**52 a float64 does not hold every integer.
    return np.where((values < 1) | (values > 1 << 52), values, found)


def perturb(draft: Draft, bound: float, key: str) -> Draft:
    """Return a draft whose sizes, operations and durations are off by at most a factor of 1 + `bound`.

    The factor of a message or collective depends only on its size, so that all participants agree on the new one.
    """
    if not bound:
        return draft
    made = [_perturbed(rows, bound, key, alike) for rows, alike in zip(draft.rows, draft.alike, strict=True)]
    return replace(draft, rows=tuple(made))


def _perturbed(rows: Rows, bound: float, key: str, alike: int) -> Rows:
    compute = np.isin(rows.types, _COMPUTE)
    # Seeded by the kind of graph, not by the graph: ranks that ran alike still do.
    draw = generator(key, "sizes", alike)
    numbers, secret = dict(rows.numbers), digest(key, "sizes")

    def shifted(values: I64, own: Floats) -> I64:
        return np.where(values == MISSING, MISSING, quantise(values, bound, own))

    for name in ("num_ops", "tensor_size", "comm_size"):
        alone, shared = draw.random(rows.n), uniform(secret, numbers[name])
        numbers[name] = shifted(numbers[name], np.where(compute, alone, shared))
    time = draw.random(rows.n)
    exact = numbers["duration_ns"]
    # Recorded microseconds are a duration, too. The limit keeps 1000 times the value exact in a float64.
    exact = np.where(
        (exact == MISSING) & (rows.micros > 0) & (rows.micros < 1 << 40), rows.micros * 1000, exact
    )
    numbers["duration_ns"] = shifted(exact, time)
    # What one rank sends is what another receives: equal parts stay equal on both sides.
    splits = rows.lists["comm_splits"]
    lists = tuple(
        tuple(quantise(row, bound, uniform(secret, row)).tolist())
        for row in (np.array(each, np.int64) for each in splits.values)
    )
    micros = quantise(rows.micros, bound, time)
    return replace(
        rows, numbers=numbers, micros=micros, lists={**rows.lists, "comm_splits": Coded(splits.codes, lists)}
    )
