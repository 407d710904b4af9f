"""How much measured durations vary between ranks that do the same."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from armillary.workload.learned.records import Record
from armillary.workload.learned.vocabulary import Vocabulary, token_keys


def variation(records: Sequence[Record], vocabulary: Vocabulary) -> tuple[dict[str, float], float]:
    """Return the spread of durations and how much of it ranks have in common.

    Tokens of the classes of a trace that have the same name, kind and occurrence are compared. The logarithms of their
    durations, less the mean of each token, have a standard deviation, and the means of the classes a share of the
    variance: with it drawn durations depend on each other as measured ones do (one factor of a Gaussian copula).

    Returns:
        Standard deviation by operator ("": of all; an operator that was seen less than 8 times has none), and share;
        nothing and 0 where there is nothing to compare.
    """
    left: dict[str, list[float]] = defaultdict(list)
    means: list[float] = []
    for record in records:
        if len(record.classes) < 2:
            continue
        seen: dict[tuple[str, int, int], list[tuple[int, float]]] = defaultdict(list)
        for number, packed in enumerate(record.classes):
            values = packed.column("duration_ns")
            for key, value in zip(
                token_keys(packed.symbols.tolist(), vocabulary), values.tolist(), strict=True
            ):
                if value > 0:
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
    spread = {name: float(np.std(values)) for name, values in left.items() if len(values) >= 8}
    return {"": float(np.std(every)), **spread}, min(1.0, float(np.var(means)) / float(np.var(every)))
