"""The order of a walk through a C++ hash map, as g++ 12 gave it, and the short way against the long one."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from armillary.report.astra_log.hash_order import BUCKETS, walked, walked_keys

# Keys in the order of insertion -> the places in the order of `for (auto& [key, value] : map)`.
SEEN = {
    (1, 2): [1, 0],
    (1, 2, 3, 4): [3, 2, 1, 0],
    tuple(range(1, 15)): [13, *range(13)],
    tuple(range(1, 31)): [29, *range(12, -1, -1), *range(13, 29)],
    # 14 falls into the bucket of 1, 27 too: behind the first of them.
    (1, 14, 2, 27): [2, 3, 1, 0],
}


def test_as_the_program_walks() -> None:
    for keys, places in SEEN.items():
        assert walked(np.array(keys, np.uint64)).tolist() == places, keys


@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 200), unique=True, max_size=300))
def test_every_key_once(keys: list[int]) -> None:
    assert sorted(walked(np.array(keys, np.uint64)).tolist()) == list(range(len(keys)))


@given(st.integers(0, 700), st.integers(0, 10**6))
def test_keys_side_by_side_take_the_short_way(count: int, first: int) -> None:
    keys = np.arange(first, first + count, dtype=np.uint64)
    # Nodes start a little out of order.
    swapped = np.arange(max(count - 1, 0))[::7]
    keys[swapped], keys[swapped + 1] = keys[swapped + 1].copy(), keys[swapped].copy()
    assert walked(keys).tolist() == walked_keys([int(key) for key in keys])


def test_buckets_grow_to_about_twice() -> None:
    assert all(2 * one < other < 2.5 * one for one, other in pairwise(BUCKETS))
