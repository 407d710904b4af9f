"""Dependencies by id, as written, to dependencies by position."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def locate(ids: NDArray[np.uint64], wanted: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the position of every wanted id among `ids`, -1 where there is none."""
    n = len(ids)
    if n == 0:
        return np.full(len(wanted), -1, dtype=np.int64)
    if int(ids[-1]) - int(ids[0]) == n - 1 and bool(np.all(ids[1:] > ids[:-1])):
        # Contiguous ids, the common case: a smaller id wraps to a huge offset.
        offset = wanted - ids[0]
        return np.where(offset < n, offset, np.uint64(2**64 - 1)).view(np.int64)
    # Stable: of equal ids, which checks refuse, the first in the file wins.
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    at = np.minimum(np.searchsorted(ordered, wanted), n - 1)
    return np.where(ordered[at] == wanted, order[at], -1)


def distinct(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the distinct keys in order; `numpy.unique` hashes, which is 100 times slower here."""
    # Files mostly list dependencies in order: then nothing is sorted.
    if bool(np.all(keys[1:] > keys[:-1])):
        return keys
    keys = np.sort(keys)
    return keys[np.concatenate(([True], keys[1:] > keys[:-1]))]


def resolve(
    ids: NDArray[np.uint64], *dependencies: tuple[NDArray[np.int64], NDArray[np.uint64]]
) -> tuple[NDArray[np.int64], NDArray[np.int32], list[tuple[int, int]]]:
    """Return CSR offsets, positions and the dangling (position, id) pairs; see `Graph.parents`.

    Args:
        ids: Ids of all nodes.
        dependencies: For control and for data dependencies, CSR offsets and ids as written.
    """
    n = len(ids)
    nodes = np.arange(n, dtype=np.int64)
    pairs = [(np.repeat(nodes, np.diff(ptr)), deps) for ptr, deps in dependencies if len(deps)]
    if not pairs:
        return np.zeros(n + 1, dtype=np.int64), np.zeros(0, dtype=np.int32), []
    node = np.concatenate([pair[0] for pair in pairs]) if len(pairs) > 1 else pairs[0][0]
    wanted = np.concatenate([pair[1] for pair in pairs]) if len(pairs) > 1 else pairs[0][1]
    at = locate(ids, wanted)
    missing = at < 0
    dangling: list[tuple[int, int]] = []
    if missing.any():
        dangling = sorted(set(zip(node[missing].tolist(), wanted[missing].tolist(), strict=True)))
        node, at = node[~missing], at[~missing]
    # (node, parent) as one integer: sorting it sorts the CSR and brings repeats together.
    key = distinct(node * n + at)
    node = key // n
    at = key - node * n
    ptr = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(np.bincount(node, minlength=n), out=ptr[1:])
    return ptr, at.astype(np.int32), dangling
