"""The scheduler of TensorRT-LLM (tensorrt_llm/_torch/pyexecutor/scheduler.py), with its defaults.

A request starts only if the cache can hold prompt and answer of all that have started (GUARANTEED_NO_EVICT), so none is
ever stopped. Each step has a token of every request that writes and, with what is left of its budget, whole prompts in
their order; the first that does not fit waits, and others behind it. Ranks with requests of their own may hold prompts
back until each has one, as a step with a prompt lasts for all of them.
"""

from __future__ import annotations

from armillary.base.jit import inner, use
from armillary.serving.columns import (
    P_BLOCK,
    P_BUDGET,
    P_CACHED,
    P_DRAFTS,
    P_REQUESTS,
    P_SEQUENCES,
    R_BEGUN,
    R_COMPUTED,
    R_HIT,
    R_MADE,
    R_OUTPUT,
    R_PROMPT,
    R_STATE,
    RUNS,
    S_FREE,
    S_HEAD,
    S_HELD,
    S_NOW,
    S_RUNNING,
    S_WAITING,
)  # fmt: skip

_blocks = use("armillary.serving.blocks_kernel")
take, keep, found, idle_among, lacking, share = (
    _blocks.take, _blocks.keep, _blocks.found, _blocks.idle_among, _blocks.lacking, _blocks.share,
)  # fmt: skip
_tier = use("armillary.serving.tier_kernel")
waiting_there, fetch = _tier.waiting, _tier.fetch
_step = use("armillary.serving.step_kernel")
add, brought, drafted, T_LOADED = _step.add, _step.brought, _step.drafted, _step.T_LOADED


@inner
def promised(par, req, r):
    """Return how many further blocks a request needs for prompt, answer and drafts."""
    n = par[P_REQUESTS]
    return lacking(par, req, r, req[R_PROMPT * n + r] + req[R_OUTPUT * n + r] + par[P_DRAFTS])


@inner
def compute(par, st, pool, req, tables, step, r, new, drafts):
    """Put `new` tokens of a request and drafts behind them into the step, in blocks that were promised to it."""
    n = par[P_REQUESTS]
    computed = req[R_COMPUTED * n + r]
    short = lacking(par, req, r, computed + new + drafts)
    take(par, st, pool, req, tables, r, short)
    add(par, step, req, r, new, drafts)
    keep(par, pool, req, tables, r, computed, req[R_COMPUTED * n + r])


@inner
def schedule(par, st, pool, req, tables, lists, step):
    """Fill the next step."""
    n, budget = par[P_REQUESTS], par[P_BUDGET]
    running, waiting = lists[0], lists[1]
    reserved = 0
    for at in range(st[S_RUNNING]):
        r = running[at]
        new = req[R_PROMPT * n + r] + req[R_MADE * n + r] - req[R_COMPUTED * n + r]
        if not (req[R_MADE * n + r] == req[R_OUTPUT * n + r] and new <= 1) and budget > 0:
            # Only a prompt that is longer than the budget is ever cut.
            new = min(new, budget)
            drafts = drafted(par, req, r, new)
            if new + drafts <= budget:
                compute(par, st, pool, req, tables, step, r, new, drafts)
                budget -= new + drafts
        reserved += promised(par, req, r)
    while st[S_WAITING] > 0 and st[S_HELD] == 0 and budget > 0 and st[S_RUNNING] < par[P_SEQUENCES]:
        r = waiting[st[S_HEAD]]
        tokens = req[R_PROMPT * n + r] + req[R_MADE * n + r]
        hit = found(par, req, tables, r, tokens)
        loads = waiting_there(par, req, tables, r, hit, tokens)
        idle = idle_among(par, pool, req, tables, r, hit) if par[P_CACHED] else 0
        if promised(par, req, r) - hit + reserved > st[S_FREE] - idle:
            break
        computed = max((hit + loads) * par[P_BLOCK], brought(par, req, r))
        new = tokens - computed
        if new > budget and (tokens <= par[P_BUDGET] or budget < par[P_BUDGET]):
            break
        drafts = par[P_DRAFTS] if new == 1 and computed >= req[R_PROMPT * n + r] else 0
        if drafts > 0 and new + drafts > budget:
            break
        if hit > 0:
            share(par, st, pool, req, tables, r, hit)
        req[R_COMPUTED * n + r] = computed
        req[R_HIT * n + r] += (hit + loads) * par[P_BLOCK]
        if loads > 0:
            step[0][T_LOADED] += fetch(par, st, req, tables, r, hit, loads)
        st[S_HEAD] = (st[S_HEAD] + 1) % n
        st[S_WAITING] -= 1
        running[st[S_RUNNING]] = r
        st[S_RUNNING] += 1
        req[R_STATE * n + r] = RUNS
        if req[R_BEGUN * n + r] < 0:
            req[R_BEGUN * n + r] = st[S_NOW]
        new = min(new, budget)
        compute(par, st, pool, req, tables, step, r, new, drafts)
        keep(par, pool, req, tables, r, hit * par[P_BLOCK], computed)
        budget -= new + drafts
        reserved += promised(par, req, r)
