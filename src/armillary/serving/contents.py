"""What blocks of the KV cache hold, as numbers: equal ones have equal tokens, and equal tokens before them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.serving import columns as c
from armillary.serving.requests import Ints, Requests


@dataclass(frozen=True)
class Layout:
    """What a cache has room for.

    Attributes:
        cached: Whether blocks are kept for requests that begin alike.
        block: Tokens of a block.
        ranks: That have blocks of their own.
        slots: Blocks that each tier of the host keeps of a rank; 0: none.
    """

    cached: bool
    block: int
    ranks: int
    slots: tuple[int, int]


def tables_of(requests: Requests, layout: Layout, blocks: Ints, req: Ints) -> tuple[Ints, ...]:
    """Return the blocks of each request, their contents, the block of each rank that has each, and the tiers'.

    Args:
        requests: A load.
        layout: Of the cache.
        blocks: (requests) How many blocks each has at most.
        req: (R_COLUMNS, requests) Filled: where those of each begin.
    """
    ranks = layout.ranks
    if not layout.cached:
        none, empty = np.zeros(0, np.int64), np.zeros((ranks, 0), np.int64)
        return none, none, empty, empty, empty, empty, empty
    ends = np.cumsum(blocks)
    req[c.R_TABLE] = ends - blocks
    total = int(ends[-1]) if len(ends) else 0
    contents, count = contents_of(requests, layout.block, req[c.R_TABLE], total)
    slots = slots_of(layout.slots, count)
    many = sum(slots)
    there, held = (np.full((ranks, each), -1, np.int64) for each in (c.TIERS * count if many else 0, many))
    sooner = np.tile(np.arange(-1, many - 1, dtype=np.int64), (ranks, 1))
    later = np.tile(np.arange(1, many + 1, dtype=np.int64), (ranks, 1))
    # Each tier has a list of its own.
    for first in {0, slots[0]} - {many}:
        sooner[:, first] = -1
    for last in {slots[0], many} - {0}:
        later[:, last - 1] = -1
    where = np.full((ranks, count), -1, np.int64)
    return np.zeros(total, np.int64), contents, where, there, held, sooner, later


def slots_of(slots: tuple[int, int], contents: int) -> tuple[int, int]:
    """Return how many blocks each tier keeps: no more than there are contents, which would never be used."""
    return min(slots[0], contents), min(slots[1], contents)


def contents_of(requests: Requests, size: int, first: Ints, total: int) -> tuple[Ints, int]:
    """Return (blocks) the number of what each block of each request holds, and how many numbers there are.

    Args:
        requests: A load.
        size: Tokens of a block.
        first: (requests) Place of the first block of each; others are behind it.
        total: Blocks of all.
    """
    contents, count = np.arange(total, dtype=np.int64), total
    if requests.shared is not None:
        places, names = _shared(requests, size, first)
        # Those of the requests' own stand before them.
        _, same = np.unique(names, return_inverse=True)
        contents[places] = total + same
        count = total + (int(same.max()) + 1 if len(same) else 0)
    if (follows := requests.follows) is not None:
        # Ascending: the blocks of an earlier request may be those of one before it.
        for r in np.flatnonzero(follows.reused >= size).tolist():
            former, many = int(follows.of(r)[0]), int(follows.reused[r]) // size
            contents[first[r] : first[r] + many] = contents[first[former] : first[former] + many]
    return contents, count


def _shared(requests: Requests, size: int, first: Ints) -> tuple[Ints, Ints]:
    """Return places of the blocks whose tokens others may have, and numbers that are equal where tokens are.

    A block is the same as another if its tokens are, and all before it: if the last of its names is, all names before
    that one, and its place.
    """
    assert requests.shared is not None
    chains: dict[tuple[int, int], int] = {}
    places, names = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    unit = requests.shared_block
    longest = int((requests.prompt.max() + size) // size) + 1
    for r, own in enumerate(requests.shared):
        chain, found = -1, []
        for name in own:
            chain = chains.setdefault((chain, name), len(chains))
            found.append(chain)
        at = np.arange(min(len(own) * unit, int(requests.prompt[r])) // size)
        if len(at):
            places.append(first[r] + at)
            names.append(np.array(found, np.int64)[(at * size + size - 1) // unit] * longest + at)
    return np.concatenate(places), np.concatenate(names)
