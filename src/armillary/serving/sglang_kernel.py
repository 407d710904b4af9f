"""The scheduler of SGLang (python/sglang/srt/managers/schedule_policy.py, schedule_batch.py).

Prompts come first: a step has prompts only, as many as fit into a chunk, and only where none can begin does a step give
each running request a token. The prompt that crosses the end of a chunk is cut and goes on alone. A request begins if
its prompt fits, with a share of what those before it may still write; the share sinks from step to step, and when the
cache runs out in spite of that, those with the fewest tokens go back to the queue.
"""

from __future__ import annotations

from armillary.base.jit import inner, use
from armillary.serving.columns import (
    FIRST_RATIO,
    P_BLOCK,
    P_BUDGET,
    P_CACHED,
    P_DRAFTS,
    P_REQUESTS,
    P_SEQUENCES,
    R_AGAIN,
    R_BEGUN,
    R_COMPUTED,
    R_CUT,
    R_HIT,
    R_LOST,
    R_MADE,
    R_OUTPUT,
    R_PROMPT,
    R_STATE,
    RUNS,
    S_FREE,
    S_HEAD,
    S_NOW,
    S_PREEMPTIONS,
    S_RATIO,
    S_RUNNING,
    S_WAITING,
    WAITS,
)  # fmt: skip

_blocks = use("armillary.serving.blocks_kernel")
take, keep, give_back, found, idle_among, lacking, share = (
    _blocks.take, _blocks.keep, _blocks.give_back, _blocks.found, _blocks.idle_among, _blocks.lacking, _blocks.share,
)  # fmt: skip
_tier = use("armillary.serving.tier_kernel")
waiting_there, fetch = _tier.waiting, _tier.fetch
_step = use("armillary.serving.step_kernel")
add, brought, T_LOADED = _step.add, _step.brought, _step.T_LOADED

LEAST_RATIO, RATIO_STEP = 98_000, 1003
"""Millionths of what running requests may still write that is kept free for them: at least, and less for each step of
tokens (a factor of 0.14 of the first, 600 steps)."""
CLIPPED = 4096
"""Most tokens that a request is expected to write still (SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION)."""


@inner
def prompts(par, st, pool, req, tables, lists, step):
    """Fill a step with prompts; return how many tokens it has."""
    n, budget = par[P_REQUESTS], par[P_BUDGET]
    running, waiting = lists[0], lists[1]
    reserved, cut = 0, False
    for at in range(st[S_RUNNING]):
        r = running[at]
        left = req[R_PROMPT * n + r] + req[R_MADE * n + r] - req[R_COMPUTED * n + r]
        reserved += min(CLIPPED, req[R_OUTPUT * n + r] - req[R_MADE * n + r]) * st[S_RATIO] // 1_000_000
        if req[R_CUT * n + r]:
            new, computed = min(left, budget), req[R_COMPUTED * n + r]
            short = lacking(par, req, r, computed + new)
            cut = True
            if short <= st[S_FREE]:
                take(par, st, pool, req, tables, r, short)
                add(par, step, req, r, new, 0)
                keep(par, pool, req, tables, r, computed, computed + new)
                budget -= new
                cut = new < left
                req[R_CUT * n + r] = int(cut)
    while not cut and st[S_WAITING] > 0 and budget > 0 and st[S_RUNNING] < par[P_SEQUENCES]:
        r = waiting[st[S_HEAD]]
        tokens = req[R_PROMPT * n + r] + req[R_MADE * n + r]
        hit = found(par, req, tables, r, tokens)
        loads = waiting_there(par, req, tables, r, hit, tokens)
        free = st[S_FREE] - (idle_among(par, pool, req, tables, r, hit) if par[P_CACHED] else 0)
        whole = -(-tokens // par[P_BLOCK]) - hit
        own = min(CLIPPED, req[R_OUTPUT * n + r] - req[R_MADE * n + r])
        if whole > free or (
            st[S_RUNNING] > 0 and whole * par[P_BLOCK] + reserved + own > free * par[P_BLOCK]
        ):
            break
        if hit > 0:
            share(par, st, pool, req, tables, r, hit)
        came = brought(par, req, r)
        computed = max((hit + loads) * par[P_BLOCK], came)
        req[R_COMPUTED * n + r] = computed
        req[R_HIT * n + r] += (hit + loads) * par[P_BLOCK]
        if loads > 0:
            step[0][T_LOADED] += fetch(par, st, req, tables, r, hit, loads)
        # What comes with its prompt writes like any other.
        left = 0 if came > 0 else tokens - computed
        new = min(left, budget)
        # What is left may be one token, as of a request that writes.
        cut = new < left
        req[R_CUT * n + r] = int(cut)
        take(par, st, pool, req, tables, r, lacking(par, req, r, computed + new))
        budget -= new
        reserved += own * st[S_RATIO] // 1_000_000
        st[S_HEAD] = (st[S_HEAD] + 1) % n
        st[S_WAITING] -= 1
        running[st[S_RUNNING]] = r
        st[S_RUNNING] += 1
        req[R_STATE * n + r] = RUNS
        if req[R_BEGUN * n + r] < 0:
            req[R_BEGUN * n + r] = st[S_NOW]
        if new > 0:
            add(par, step, req, r, new, 0)
        keep(par, pool, req, tables, r, hit * par[P_BLOCK], computed + new)
    return par[P_BUDGET] - budget


@inner
def writes(req, n, r):
    """Return whether a running request has a token to write, which is not yet on its way."""
    made = req[R_MADE * n + r]
    known = req[R_PROMPT * n + r] + made - req[R_COMPUTED * n + r] == 1
    return made < req[R_OUTPUT * n + r] and known and not req[R_CUT * n + r]


@inner
def retract(par, st, pool, req, tables, lists):
    """Send the running request with the fewest tokens back to the queue; of several that with the longest prompt."""
    n, running, waiting = par[P_REQUESTS], lists[0], lists[1]
    worst = 0
    for at in range(1, st[S_RUNNING]):
        r, other = running[at], running[worst]
        fewer = req[R_MADE * n + r] - req[R_MADE * n + other]
        if fewer < 0 or (fewer == 0 and req[R_PROMPT * n + r] > req[R_PROMPT * n + other]):
            worst = at
    r = running[worst]
    st[S_RUNNING] -= 1
    for at in range(worst, st[S_RUNNING]):
        running[at] = running[at + 1]
    give_back(par, st, pool, req, tables, r)
    req[R_AGAIN * n + r] += req[R_COMPUTED * n + r]
    req[R_COMPUTED * n + r] = 0
    req[R_CUT * n + r] = 0
    req[R_STATE * n + r] = WAITS
    req[R_LOST * n + r] += 1
    st[S_PREEMPTIONS] += 1
    st[S_RATIO] = FIRST_RATIO
    st[S_HEAD] = (st[S_HEAD] - 1) % n
    waiting[st[S_HEAD]] = r
    st[S_WAITING] += 1


@inner
def tokens(par, st, pool, req, tables, lists, step):
    """Fill a step with a token of each running request."""
    n, running = par[P_REQUESTS], lists[0]
    short = 1
    while short > 0:
        short = -st[S_FREE]
        for at in range(st[S_RUNNING]):
            r = running[at]
            if writes(req, n, r):
                short += lacking(par, req, r, req[R_COMPUTED * n + r] + 1 + par[P_DRAFTS])
        if short > 0:
            retract(par, st, pool, req, tables, lists)
    for at in range(st[S_RUNNING]):
        r = running[at]
        if writes(req, n, r):
            computed = req[R_COMPUTED * n + r]
            take(par, st, pool, req, tables, r, lacking(par, req, r, computed + 1 + par[P_DRAFTS]))
            add(par, step, req, r, 1, par[P_DRAFTS])
            keep(par, pool, req, tables, r, computed, req[R_COMPUTED * n + r])


@inner
def schedule(par, st, pool, req, tables, lists, step):
    """Fill the next step."""
    if prompts(par, st, pool, req, tables, lists, step) == 0:
        tokens(par, st, pool, req, tables, lists, step)
        st[S_RATIO] = max(LEAST_RATIO, st[S_RATIO] - RATIO_STEP)
