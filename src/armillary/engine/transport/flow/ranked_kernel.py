"""A heap whose items know their places, so that their keys can change; its rows are those of the queue.

The place of an item, from 1, stands at ``where[item + column]``; 0: it is not in the heap.
"""

from __future__ import annotations

from armillary.base.jit import inner
from armillary.engine.transport import layout as lk


@inner
def _set(heap, base, where, column, i, key, tie, item):
    to = base + i * lk.Q_COLUMNS
    heap[to] = key
    heap[to + 1] = tie
    heap[to + 2] = item
    where[item + column] = i + 1


@inner
def _up(heap, base, where, column, i, key, tie, item):
    """Put an item at row `i` or above it."""
    while i > 0:
        parent = (i - 1) >> 1
        at = base + parent * lk.Q_COLUMNS
        if heap[at] < key or (heap[at] == key and heap[at + 1] < tie):
            break
        _set(heap, base, where, column, i, heap[at], heap[at + 1], heap[at + 2])
        i = parent
    _set(heap, base, where, column, i, key, tie, item)


@inner
def _down(heap, base, size, where, column, i, key, tie, item):
    """Put an item at row `i` or below it."""
    child = 2 * i + 1
    while child < size:
        at = base + child * lk.Q_COLUMNS
        if child + 1 < size:
            other = at + lk.Q_COLUMNS
            if heap[other] < heap[at] or (heap[other] == heap[at] and heap[other + 1] < heap[at + 1]):
                at = other
                child += 1
        if heap[at] > key or (heap[at] == key and heap[at + 1] > tie):
            break
        _set(heap, base, where, column, i, heap[at], heap[at + 1], heap[at + 2])
        i = child
        child = 2 * i + 1
    _set(heap, base, where, column, i, key, tie, item)


@inner
def add(heap, base, size, where, column, item, key, tie):
    """Add an item; returns the new size. Of equal keys the lowest `tie` is first; no two are equal in both."""
    _up(heap, base, where, column, size, key, tie, item)
    return size + 1


@inner
def move(heap, base, size, where, column, item, key):
    """Give an item another key."""
    # The item keeps its tie, so it keeps its rank among items with the new key.
    i = where[item + column] - 1
    at = base + i * lk.Q_COLUMNS
    if key < heap[at]:
        _up(heap, base, where, column, i, key, heap[at + 1], item)
    else:
        _down(heap, base, size, where, column, i, key, heap[at + 1], item)


@inner
def remove_first(heap, base, size, where, column):
    """Remove the first item, which stands at ``heap[base + Q_WHAT]`` before; returns the new size."""
    size -= 1
    where[heap[base + lk.Q_WHAT] + column] = 0
    # Unless the first was the only item, the last takes its place and sinks.
    if size > 0:
        at = base + size * lk.Q_COLUMNS
        _down(heap, base, size, where, column, 0, heap[at], heap[at + 1], heap[at + 2])
    return size
