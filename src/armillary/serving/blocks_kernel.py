"""Blocks of the KV cache: free ones in the order in which they were freed, and what each still holds.

As in vLLM, a block that is freed keeps its tokens until it is taken, the longest free first, so a request that begins
with the same tokens finds them. A block has a content, -1: none, and `where` (contents) the first block
that has it. Others of the same content, which requests computed at the same time, are a ring with that one (`next`,
`last`), in the order in which they were filled: when the first is taken, the next is found, as in vLLM's map of blocks.
Free blocks are a doubly linked list, `before` and `behind`; its ends are in the state.
"""

from __future__ import annotations

from armillary.base.jit import inner, use
from armillary.serving.columns import (
    P_BLOCK,
    P_CACHED,
    P_REQUESTS,
    R_HELD,
    R_TABLE,
    S_FIRST_FREE,
    S_FREE,
    S_LAST_FREE,
)  # fmt: skip

put = use("armillary.serving.tier_kernel").put


@inner
def unlink(st, pool, block):
    """Take a block out of the list of free ones."""
    before, behind = pool[0][block], pool[1][block]
    if before < 0:
        st[S_FIRST_FREE] = behind
    else:
        pool[1][before] = behind
    if behind < 0:
        st[S_LAST_FREE] = before
    else:
        pool[0][behind] = before
    st[S_FREE] -= 1


@inner
def append(st, pool, block):
    """Put a block behind the free ones."""
    last = st[S_LAST_FREE]
    pool[0][block], pool[1][block] = last, -1
    if last < 0:
        st[S_FIRST_FREE] = block
    else:
        pool[1][last] = block
    st[S_LAST_FREE] = block
    st[S_FREE] += 1


@inner
def forget(par, st, pool, tables, block):
    """Let nobody find what a block holds; another block of the same content, or a tier's, is found from now on."""
    what, where = pool[3][block], tables[2]
    if what < 0:
        return
    following, last = pool[4][block], pool[5][block]
    if following == block:
        where[what] = -1
        put(par, st, tables, what)
    else:
        pool[4][last], pool[5][following] = following, last
        if where[what] == block:
            where[what] = following
    pool[3][block] = -1


@inner
def take(par, st, pool, req, tables, r, many):
    """Give a request `many` further blocks; there are as many free ones."""
    n = par[P_REQUESTS]
    held = req[R_HELD * n + r]
    req[R_HELD * n + r] = held + many
    if par[P_CACHED] == 0:
        st[S_FREE] -= many
        return
    table = tables[0]
    first = req[R_TABLE * n + r]
    for i in range(held, held + many):
        block = st[S_FIRST_FREE]
        unlink(st, pool, block)
        # Found by others once its tokens are computed; see `keep`.
        forget(par, st, pool, tables, block)
        pool[2][block] = 1
        table[first + i] = block


@inner
def keep(par, pool, req, tables, r, before, after):
    """Let others find the blocks that a step has filled: those of a request from `before` to `after` tokens."""
    if par[P_CACHED] == 0:
        return
    n, size = par[P_REQUESTS], par[P_BLOCK]
    table, content, where = tables[0], tables[1], tables[2]
    first = req[R_TABLE * n + r]
    for i in range(before // size, after // size):
        what, block = content[first + i], table[first + i]
        if pool[3][block] >= 0:
            continue
        pool[3][block] = what
        head = where[what]
        if head < 0:
            where[what] = pool[4][block] = pool[5][block] = block
        else:
            # Another block has the same content: that one stays the one that is found.
            last = pool[5][head]
            pool[4][block], pool[5][block] = head, last
            pool[4][last] = pool[5][head] = block


@inner
def give_back(par, st, pool, req, tables, r):
    """Free all blocks of a request, the last first: later tokens are worth less to others."""
    n = par[P_REQUESTS]
    held = req[R_HELD * n + r]
    req[R_HELD * n + r] = 0
    if par[P_CACHED] == 0:
        st[S_FREE] += held
        return
    first = req[R_TABLE * n + r]
    for i in range(held - 1, -1, -1):
        block = tables[0][first + i]
        pool[2][block] -= 1
        if pool[2][block] == 0:
            append(st, pool, block)


@inner
def found(par, req, tables, r, tokens):
    """Return how many whole blocks at the begin of a request are in the cache; one token at least stays to compute."""
    if par[P_CACHED] == 0:
        return 0
    n = par[P_REQUESTS]
    first = req[R_TABLE * n + r]
    most = (tokens - 1) // par[P_BLOCK]
    for i in range(most):
        if tables[2][tables[1][first + i]] < 0:
            return i
    return most


@inner
def idle_among(par, pool, req, tables, r, many):
    """Return how many of the first `many` blocks that a request would find are free: taking them uses up free ones."""
    count = 0
    first = req[R_TABLE * par[P_REQUESTS] + r]
    for i in range(many):
        if pool[2][tables[2][tables[1][first + i]]] == 0:
            count += 1
    return count


@inner
def share(par, st, pool, req, tables, r, many):
    """Give a request the first `many` blocks that it finds in the cache."""
    n = par[P_REQUESTS]
    first = req[R_TABLE * n + r]
    for i in range(many):
        block = tables[2][tables[1][first + i]]
        if pool[2][block] == 0:
            unlink(st, pool, block)
        pool[2][block] += 1
        tables[0][first + i] = block
    req[R_HELD * n + r] = many


@inner
def lacking(par, req, r, tokens):
    """Return how many further blocks a request needs to hold `tokens`; drafts may have left it some."""
    return max(0, -(-tokens // par[P_BLOCK]) - req[R_HELD * par[P_REQUESTS] + r])
