"""The order in which a C++ program walks an `unordered_map` of node ids: ASTRA-sim prints its times in that order.

libstdc++ keeps all elements in one list and, for each bucket, where its part of the list begins. The hash of a number
is the number. A new element goes to the head of its bucket's part, or to that of the list where the bucket is empty.
When there are more elements than buckets, all are put anew, one after the other, into about twice as many buckets.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
# Bucket counts of a map that grows one by one: primes, each the next above twice the one before.
BUCKETS = (
    13, 29, 59, 127, 257, 541, 1109, 2357, 5087, 10273, 20753, 42043, 85229, 172933, 351061, 712697, 1447153, 2938679,
    5967347, 12117689, 24607243, 49969847,
)  # fmt: skip


def walked(ids: NDArray[np.uint64]) -> Ints:
    """Return the places of `ids`, which were inserted in this order, in the order of a walk.

    Args:
        ids: Distinct keys.
    """
    n = len(ids)
    stages = [count for count in BUCKETS if count < n]
    buckets = BUCKETS[min(len(stages), len(BUCKETS) - 1)]
    # Without two keys in a bucket, putting all anew only turns the list round.
    if all(_spread(ids[:count], count) for count in stages) and _spread(ids, buckets):
        order: Ints = np.zeros(0, np.int64)
        begin = 0
        for count in [*stages, n]:
            # The newest first; what was there before growing follows, turned round by it.
            order = np.concatenate([np.arange(count - 1, begin - 1, -1), order if not begin else order[::-1]])
            begin = count
        return order
    return np.array(walked_keys([int(each) for each in ids]), np.int64)


def _spread(ids: NDArray[np.uint64], buckets: int) -> bool:
    """Whether no two of `ids` share a bucket."""
    return len(np.unique(ids % np.uint64(buckets))) == len(ids)


class _Map:
    """The list and the buckets; -1 is the head of the list, -2 its end."""

    def __init__(self) -> None:
        self.after = {-1: -2}
        self.before: dict[int, int] = {}
        """Bucket -> the element before its part."""

    def insert(self, place: int, key: int, keys: Sequence[int], buckets: int) -> None:
        bucket = key % buckets
        if bucket in self.before:
            before = self.before[bucket]
            self.after[place], self.after[before] = self.after[before], place
            return
        self.after[place], self.after[-1] = self.after[-1], place
        if self.after[place] != -2:
            # The part that was first begins behind the new element now.
            self.before[keys[self.after[place]] % buckets] = place
        self.before[bucket] = -1

    def walk(self) -> list[int]:
        found, at = [], self.after[-1]
        while at != -2:
            found.append(at)
            at = self.after[at]
        return found

    def grow(self, keys: Sequence[int], buckets: int) -> _Map:
        made, first = _Map(), 0
        for place in self.walk():
            bucket = keys[place] % buckets
            if bucket in made.before:
                # Behind the element before the part, as `insert` does.
                before = made.before[bucket]
                made.after[place], made.after[before] = made.after[before], place
            else:
                made.after[place], made.after[-1] = made.after[-1], place
                made.before[bucket] = -1
                if made.after[place] != -2:
                    made.before[first] = place
                first = bucket
        return made


def walked_keys(keys: Sequence[int]) -> list[int]:
    """Return the places of the keys in the order in which a walk through the map meets them."""
    found, size = _Map(), 0
    for place, key in enumerate(keys):
        if place == BUCKETS[size] and size + 1 < len(BUCKETS):
            size += 1
            found = found.grow(keys, BUCKETS[size])
        found.insert(place, key, keys, BUCKETS[size])
    return found.walk()
