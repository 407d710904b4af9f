"""What blocks of the KV cache hold, as numbers: equal ones have equal tokens, and equal tokens before them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from armillary.serving import columns as c
from armillary.serving.requests import Ints, Requests

if TYPE_CHECKING:
    from armillary.serving.replica import Engine


def tables_of(requests: Requests, engine: Engine, blocks: Ints, req: Ints) -> tuple[Ints, ...]:
    """Return the blocks of each request, their contents, the block of each rank that has each, and the host's.

    Args:
        requests: A load.
        engine: How it schedules.
        blocks: (requests) How many blocks each has at most.
        req: (R_COLUMNS, requests) Filled: where those of each begin.
    """
    ranks = engine.ranks
    if not engine.cached:
        none, empty = np.zeros(0, np.int64), np.zeros((ranks, 0), np.int64)
        return none, none, empty, empty, empty, empty, empty
    ends = np.cumsum(blocks)
    req[c.R_TABLE] = ends - blocks
    total = int(ends[-1]) if len(ends) else 0
    contents, count = contents_of(requests, engine.block, req[c.R_TABLE], total)
    # More slots than there are contents would never be used.
    slots = min(engine.host, count)
    there, held = (np.full((ranks, many), -1, np.int64) for many in (count if slots else 0, slots))
    sooner = np.tile(np.arange(-1, slots - 1, dtype=np.int64), (ranks, 1))
    later = np.tile(np.arange(1, slots + 1, dtype=np.int64), (ranks, 1))
    later[:, -1:] = -1
    where = np.full((ranks, count), -1, np.int64)
    return np.zeros(total, np.int64), contents, where, there, held, sooner, later


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
