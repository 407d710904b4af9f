"""Explicit congestion notification: which packets are marked, like RED on the queue that they join (Floyd, 1993)."""

from __future__ import annotations

from armillary.base.jit import inner

LOW_31 = (1 << 31) - 1


@inner
def mix(state, part):
    """Return 31 bits of hash; products fit 63."""
    # Multipliers of 27 and 30 bits on 31-bit words: products stay below 2**62.
    state = ((state ^ (part & LOW_31)) * 0x45D9F3B) & LOW_31
    state = ((state ^ (state >> 15)) * 0x2C1B3C6D) & LOW_31
    return state ^ (state >> 13)


@inner
def is_marked(lowest, highest, most, seed, link, count, depth):
    """Tell whether the packet with number `count` at a link is marked.

    Never up to a `depth` of `lowest` bytes, always above `highest`, between with a chance that rises to `most` (of
    CERTAIN), by a hash of seed, link and number.
    """
    if depth <= lowest:
        return False
    if depth >= highest:
        return True
    # A hash of the packet's number instead of a stream of random numbers: marks at one link do not depend on
    # events at another.
    return mix(mix(mix(0x5BD1E995, seed), link), count) < most * (depth - lowest) // (highest - lowest)
