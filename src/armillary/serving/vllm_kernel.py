"""The scheduler of vLLM V1 (vllm/v1/core/sched/scheduler.py).

There are no phases: every request has tokens that are not computed yet, a prompt at first and then one token at a time,
and a step computes as many as its budget allows. Requests that run come first, in their order; one that finds no free
block takes those of the last in the list, which begins anew. Only if that was not needed are requests admitted, the
first to come first, with what they find in the prefix cache; one that finds no room holds up those behind it.
"""

from __future__ import annotations

from armillary.base.jit import inner, use
from armillary.serving.columns import (
    P_BLOCK,
    P_BUDGET,
    P_CACHED,
    P_DRAFTS,
    P_LONG,
    P_REQUESTS,
    P_SEQUENCES,
    R_AGAIN,
    R_BEGUN,
    R_COMPUTED,
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
add, brought, drafted, T_LOADED = _step.add, _step.brought, _step.drafted, _step.T_LOADED


@inner
def preempt(par, st, pool, req, tables, lists):
    """Send the request that came last back to the head of the queue, without what it had computed; return it."""
    n = par[P_REQUESTS]
    st[S_RUNNING] -= 1
    r = lists[0][st[S_RUNNING]]
    give_back(par, st, pool, req, tables, r)
    req[R_AGAIN * n + r] += req[R_COMPUTED * n + r]
    req[R_COMPUTED * n + r] = 0
    req[R_STATE * n + r] = WAITS
    req[R_LOST * n + r] += 1
    st[S_PREEMPTIONS] += 1
    # The queue is a ring with room for all requests.
    st[S_HEAD] = (st[S_HEAD] - 1) % n
    lists[1][st[S_HEAD]] = r
    st[S_WAITING] += 1
    return r


@inner
def schedule(par, st, pool, req, tables, lists, step):
    """Fill the next step."""
    n, budget = par[P_REQUESTS], par[P_BUDGET]
    running, waiting = lists[0], lists[1]
    preempted = False
    at = 0
    while at < st[S_RUNNING] and budget > 0:
        r = running[at]
        computed = req[R_COMPUTED * n + r]
        new = req[R_PROMPT * n + r] + req[R_MADE * n + r] - computed
        # All its tokens are on their way.
        if req[R_MADE * n + r] == req[R_OUTPUT * n + r] and new <= 1:
            at += 1
            continue
        if par[P_LONG] > 0:
            new = min(new, par[P_LONG])
        new = min(new, budget)
        drafts = drafted(par, req, r, new)
        if new + drafts > budget:
            break
        short = lacking(par, req, r, computed + new + drafts)
        gone = False
        while short > st[S_FREE]:
            preempted = True
            if preempt(par, st, pool, req, tables, lists) == r:
                gone = True
                break
        if gone:
            break
        take(par, st, pool, req, tables, r, short)
        budget -= new + drafts
        add(par, step, req, r, new, drafts)
        keep(par, pool, req, tables, r, computed, req[R_COMPUTED * n + r])
        at += 1
    while not preempted and st[S_WAITING] > 0 and budget > 0 and st[S_RUNNING] < par[P_SEQUENCES]:
        r = waiting[st[S_HEAD]]
        tokens = req[R_PROMPT * n + r] + req[R_MADE * n + r]
        hit = found(par, req, tables, r, tokens)
        loads = waiting_there(par, req, tables, r, hit, tokens)
        # The whole prompt must find room, though only a part of it may be computed now, and drafts behind it.
        whole = -(-(tokens + par[P_DRAFTS]) // par[P_BLOCK]) - hit
        if whole + (idle_among(par, pool, req, tables, r, hit) if par[P_CACHED] else 0) > st[S_FREE]:
            break
        computed = max((hit + loads) * par[P_BLOCK], brought(par, req, r))
        new = tokens - computed
        if par[P_LONG] > 0:
            new = min(new, par[P_LONG])
        new = min(new, budget)
        # It may decode at once, with what it has brought or found.
        drafts = par[P_DRAFTS] if new == 1 and computed >= req[R_PROMPT * n + r] else 0
        if new + drafts > budget:
            break
        if hit > 0:
            share(par, st, pool, req, tables, r, hit)
        req[R_COMPUTED * n + r] = computed
        req[R_HIT * n + r] += (hit + loads) * par[P_BLOCK]
        if loads > 0:
            step[0][T_LOADED] += fetch(par, st, req, tables, r, hit, loads)
        take(par, st, pool, req, tables, r, lacking(par, req, r, computed + new + drafts))
        budget -= new + drafts
        st[S_HEAD] = (st[S_HEAD] + 1) % n
        st[S_WAITING] -= 1
        running[st[S_RUNNING]] = r
        st[S_RUNNING] += 1
        req[R_STATE * n + r] = RUNS
        if req[R_BEGUN * n + r] < 0:
            req[R_BEGUN * n + r] = st[S_NOW]
        add(par, step, req, r, new, drafts)
        keep(par, pool, req, tables, r, hit * par[P_BLOCK], req[R_COMPUTED * n + r])
