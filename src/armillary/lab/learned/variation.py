"""How much measured durations vary between ranks that do the same."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from math import erf

import numpy as np
from numpy.typing import NDArray

from armillary.lab.learned.records import Record
from armillary.lab.learned.vocabulary import Vocabulary, token_keys

QUANTILES = 33
"""Numbers by which a distribution is kept."""


def variation(records: Sequence[Record], vocabulary: Vocabulary) -> tuple[dict[str, list[float]], float]:
    """Return the spread of durations and how much of it ranks have in common.

    Tokens of the classes of a trace that have the same name, kind and occurrence are compared, if all classes have as
    many: of the logarithms of their durations, less the mean of each token, the distribution is kept, and which share
    of the variance the means of the classes have. So drawn durations depend on each other as measured ones do (one
    factor of a Gaussian copula).

    Returns:
        Quantiles by operator (one that was compared less than 8 times has none), and share; nothing and 0 where there
        is nothing to compare.
    """
    left: dict[str, list[float]] = defaultdict(list)
    means: list[float] = []
    for record in records:
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
    """Return factors of durations, one per token, whose mean is 1; those of operators without a spread are 1.

    Args:
        spread: What `variation` returned.
        shared: See there.
        names: Operators.
        which: Operator of every token.
        rng: Draws.
        temperature: Scales the logarithms.
    """  # fmt: skip
    table = (
        np.array([spread.get(name, [0.0] * QUANTILES) for name in names]).reshape(-1, QUANTILES) * temperature
    )
    normal = shared**0.5 * rng.standard_normal() + (1 - shared) ** 0.5 * rng.standard_normal(len(which))
    place = np.array([0.5 * (1 + erf(z / 2**0.5)) for z in normal.tolist()]) * (QUANTILES - 1)
    low = np.minimum(place.astype(np.int64), QUANTILES - 2)
    logarithm = table[which, low] + (place - low) * (table[which, low + 1] - table[which, low])
    mean = np.exp(0.5 * (table[:, 1:] + table[:, :-1])).mean(1)
    found: NDArray[np.float64] = np.exp(logarithm) / mean[which]
    return found
