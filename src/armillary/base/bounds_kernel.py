"""The checks of every array access of a checked kernel; see `armillary.base.checked`."""

from __future__ import annotations

from armillary.base.jit import inner

GUARD = -0x5AFE_5AFE_5AFE_5AFE
"""A word that stands between tables and that no kernel may read or write."""


@inner
def at(array, index, where):
    """Return an index after checking that it lies in its array, and not on a guard word.

    Negative indices lie outside, although NumPy and Python would count them from the end.
    """
    if index < 0 or index >= len(array):
        print("access outside its array: place, index, length:", where, index, len(array))
        raise IndexError("access outside its array")
    if array[index] == GUARD:
        print("access between two tables: place, index:", where, index)
        raise IndexError("access between two tables")
    return index


@inner
def inside(array, base, index, where):
    """Return an index after checking that it lies in the table at `base`, if guards tell the length of that."""
    # First the array itself: a wrong address may point anywhere.
    at(array, index, where)
    if base <= 0:
        print("access to a table that is not there: place, index:", where, index)
        raise IndexError("access to a table that is not there")
    # A guard, the length and another guard stand right before each table (`checked.before_table`).
    if 2 <= base <= len(array) and array[base - 1] == GUARD:
        length = array[base - 2]
        if index < base or index >= base + length:
            print("access outside its table: place, index, begin, length:", where, index, base, length)
            raise IndexError("access outside its table")
    return index


@inner
def long_enough(array, index, where):
    """Return an array, or a tuple of arrays, after checking that it has an element with this index."""
    if index < 0 or index >= len(array):
        print("access outside its array: place, index, length:", where, index, len(array))
        raise IndexError("access outside its array")
    return array


@inner
def within(index, many, where):
    """Return an index into the `many` values of a column after checking it."""
    if index < 0 or index >= many:
        print("access outside its column: place, index, length:", where, index, many)
        raise IndexError("access outside its column")
    return index
