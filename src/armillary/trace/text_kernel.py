"""Kernel that gives equal texts equal codes."""

from __future__ import annotations

from typing import Any

from armillary.base.jit import njit


@njit
def intern(ptr: Any, pool: Any, strings: Any, table: Any, hashes: Any, first: Any, codes: Any) -> int:
    """Fill the code of every string, in the order of first use, and `first`, the index of that use.

    `table` is zeroed by the caller and has a power of 2 of slots, more than there are strings; a slot is a code plus 1.
    Returns the number of codes.
    """
    mask = len(table) - 1
    found = 0
    for at in range(len(strings)):
        begin = ptr[strings[at]]
        size = ptr[strings[at] + 1] - begin
        key = size
        # Each byte counts times a factor of its place, so that permutations differ.
        for k in range(size):
            key += pool[begin + k] * ((k * 40503 + 25717) & 65535)
        # The mask keeps low bits only: fold the high ones in.
        slot = (key ^ (key >> 15)) & mask
        code = -1
        while code < 0:
            code = table[slot] - 1
            if code < 0:
                code = found
                table[slot] = code + 1
                hashes[code] = key
                first[code] = at
                found += 1
            elif hashes[code] == key:
                # Equal hashes prove nothing: the bytes decide, so the result is exact.
                other = strings[first[code]]
                differ = 0
                if ptr[other + 1] - ptr[other] == size:
                    start = ptr[other]
                    for k in range(size):
                        differ |= pool[begin + k] ^ pool[start + k]
                else:
                    differ = 1
                # Another text: probe the next slot.
                if differ:
                    code = -1
                    slot = (slot + 1) & mask
            else:
                code = -1
                slot = (slot + 1) & mask
        codes[at] = code
    return found
