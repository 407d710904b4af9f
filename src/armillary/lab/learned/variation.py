"""Variation of measured durations between ranks that run the same program."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from math import erf

import numpy as np
from numpy.typing import NDArray

from armillary.lab.learned.records import Record
from armillary.lab.learned.vocabulary import Vocabulary, token_keys

QUANTILES = 33
"""Number of quantiles that represent a distribution."""


def variation(records: Sequence[Record], vocabulary: Vocabulary) -> tuple[dict[str, list[float]], float]:
    """Return the spread of durations, and the share of its variance that the tokens of a rank have in common.

    Tokens of the classes of a trace with the same name, kind and occurrence are compared, if all classes have the same
    number of them. The result is the distribution of the logarithms of their durations, less the mean of each token,
    and the share of the variance that the means of the classes explain. With both, drawn durations are correlated as
    measured ones are (a Gaussian copula with one factor).

    Returns:
        Quantiles by operator (none for an operator with fewer than 8 comparisons), and the share; empty and 0 if there
        is nothing to compare.
    """
    left: dict[str, list[float]] = defaultdict(list)
    means: list[float] = []
    for record in records:
        # One class has nothing to be compared with.
        if len(record.classes) < 2:
            continue
        seen: dict[tuple[str, int, int], list[tuple[int, float]]] = defaultdict(list)
        keys = [token_keys(packed.symbols.tolist(), vocabulary) for packed in record.classes]
        counts = [Counter(key[:2] for key in each) for each in keys]
        for number, packed in enumerate(record.classes):
            for key, value in zip(keys[number], packed.column("duration_ns").tolist(), strict=True):
                if value > 0 and all(count[key[:2]] == counts[number][key[:2]] for count in counts):
                    seen[key].append((number, float(np.log(value))))
        of_class: dict[int, list[float]] = defaultdict(list)
        for (name, _, _), found in seen.items():
            if len(found) == len(record.classes):
                # Less the token's own mean: what differs between ranks is left, not what differs between kernels.
                mean = sum(value for _, value in found) / len(found)
                for number, value in found:
                    of_class[number].append(value - mean)
                    left[name].append(value - mean)
        means += [float(np.mean(values)) for values in of_class.values()]
    every = [value for values in left.values() for value in values]
    if not every or not np.std(every):
        return {}, 0.0
    spread = {name: _quantiles(values) for name, values in left.items() if len(values) >= 8}
    return spread, min(1.0, float(np.var(means)) / float(np.var(every)))


def _quantiles(values: Sequence[float]) -> list[float]:
    found: list[float] = np.quantile(values, np.linspace(0, 1, QUANTILES)).tolist()
    return found


def drawn_factors(
    spread: Mapping[str, Sequence[float]],
    shared: float,
    names: Sequence[str],
    which: NDArray[np.int64],
    rng: np.random.Generator,
    temperature: float,
) -> NDArray[np.float64]:
    """Return random factors of durations, (tokens,), of mean 1; those of operators without a spread are 1.

    Args:
        spread: Quantiles by operator, see `variation`.
        shared: Share of the variance that all tokens have in common, see `variation`.
        names: Names of operators.
        which: Operator of every token, (tokens,).
        rng: Generator of the draws.
        temperature: Scales the logarithms.
    """  # fmt: skip
    table = (
        np.array([spread.get(name, [0.0] * QUANTILES) for name in names]).reshape(-1, QUANTILES) * temperature
    )
    # One normal for the whole rank and one for each token, of total variance 1.
    normal = shared**0.5 * rng.standard_normal() + (1 - shared) ** 0.5 * rng.standard_normal(len(which))
    # The normal's distribution function gives the quantile, and between two quantiles it is linear.
    place = np.array([0.5 * (1 + erf(z / 2**0.5)) for z in normal.tolist()]) * (QUANTILES - 1)
    low = np.minimum(place.astype(np.int64), QUANTILES - 2)
    logarithm = table[which, low] + (place - low) * (table[which, low + 1] - table[which, low])
    # Mean of exp over the distribution, by the middles of its intervals: without it factors would lengthen the step.
    mean = np.exp(0.5 * (table[:, 1:] + table[:, :-1])).mean(1)
    found: NDArray[np.float64] = np.exp(logarithm) / mean[which]
    return found
