"""Requests arrive, steps are filled by the rule of an engine, take their time, and give tokens.

The scheduler runs whenever fewer steps are in flight than the engine allows; with two, it fills the next one while the
device works on the first, and learns of its tokens only afterwards. Requests that come while it waits for a result are
seen when that is there.
"""

from __future__ import annotations

from armillary.base.jit import inner, njit, use
from armillary.serving.columns import (
    ENDED,
    L_BLOCKS,
    L_COLUMNS,
    L_CONTEXT,
    L_DECODING,
    L_END,
    L_NEW,
    L_RUNNING,
    L_START,
    L_TOKENS,
    L_WAITING,
    P_BLOCKS,
    P_CLIENTS,
    P_DEPTH,
    P_EMIT,
    P_INGEST,
    P_POLL,
    P_REQUESTS,
    P_RULE,
    P_SEQUENCES,
    P_TOKEN,
    R_ARRIVAL,
    R_BEFORE,
    R_DISTURBED,
    R_DONE,
    R_FIRST,
    R_INTERFERED,
    R_LAST,
    R_OUTPUT,
    R_PROMPT,
    R_STALLED,
    R_STATE,
    RUNS,
    S_ARRIVED,
    S_DISTURBED,
    S_DONE,
    S_FLIGHT,
    S_FREE,
    S_GPU,
    S_HEAD,
    S_MOST_BLOCKS,
    S_NOW,
    S_OLDEST,
    S_POLLED,
    S_RATIO,
    S_READY,
    S_RUNNING,
    S_STEPS,
    S_WAITING,
    SGLANG,
    TRTLLM,
    WAITS,
)  # fmt: skip

give_back = use("armillary.serving.blocks_kernel").give_back
vllm = use("armillary.serving.vllm_kernel").schedule
trtllm = use("armillary.serving.trtllm_kernel").schedule
_sglang = use("armillary.serving.sglang_kernel")
sglang, FIRST_RATIO = _sglang.schedule, _sglang.FIRST_RATIO
step_ns = use("armillary.serving.price_kernel").step_ns
_step = use("armillary.serving.step_kernel")
T_TOKENS, T_OUTPUTS, T_NEW, T_SCORES, T_DECODING, T_CONTEXT = (
    _step.T_TOKENS, _step.T_OUTPUTS, _step.T_NEW, _step.T_SCORES, _step.T_DECODING, _step.T_CONTEXT,
)  # fmt: skip

FINISHED, STUCK, FULL = range(3)


@inner
def ready(par, st, req, r):
    """Return ns at which a request can be queued: the front end turns prompts into tokens one after another."""
    n = par[P_REQUESTS]
    begun = max(st[S_READY], req[R_ARRIVAL * n + r] + par[P_INGEST])
    return begun + req[R_PROMPT * n + r] * par[P_TOKEN] // 1000


@inner
def arrive(par, st, req, lists):
    """Queue the requests that have come by now, if the engine looks for them."""
    n = par[P_REQUESTS]
    if par[P_POLL] > 1 and st[S_RUNNING] > 0 and st[S_POLLED] < par[P_POLL]:
        return
    st[S_POLLED] = 0
    while st[S_ARRIVED] < n:
        r = st[S_ARRIVED]
        if req[R_ARRIVAL * n + r] < 0 or ready(par, st, req, r) > st[S_NOW]:
            return
        st[S_READY] = ready(par, st, req, r)
        lists[1][(st[S_HEAD] + st[S_WAITING]) % n] = r
        st[S_WAITING] += 1
        req[R_STATE * n + r] = WAITS
        st[S_ARRIVED] += 1


@inner
def end(par, st, pool, req, tables, lists, r):
    """Let a request go that has all its tokens; in a closed loop the next one comes at once."""
    n = par[P_REQUESTS]
    running, waiting = lists[0], lists[1]
    if req[R_STATE * n + r] == RUNS:
        at = 0
        while running[at] != r:
            at += 1
        st[S_RUNNING] -= 1
        for i in range(at, st[S_RUNNING]):
            running[i] = running[i + 1]
    else:
        # It was preempted while its last token was on its way.
        at = 0
        while waiting[(st[S_HEAD] + at) % n] != r:
            at += 1
        st[S_WAITING] -= 1
        for i in range(at, st[S_WAITING]):
            waiting[(st[S_HEAD] + i) % n] = waiting[(st[S_HEAD] + i + 1) % n]
    give_back(par, st, pool, req, tables, r)
    req[R_STATE * n + r] = ENDED
    st[S_DONE] += 1
    if par[P_CLIENTS] > 0:
        follower = par[P_CLIENTS] + st[S_DONE] - 1
        if follower < n:
            req[R_ARRIVAL * n + follower] = req[R_LAST * n + r]


@inner
def results(par, st, pool, req, tables, lists, flights):
    """Take the results of the oldest step in flight."""
    n, most = par[P_REQUESTS], par[P_SEQUENCES]
    ends, outputs, made, disturbed = flights
    slot = st[S_OLDEST]
    st[S_NOW] = max(st[S_NOW], ends[slot])
    for i in range(outputs[slot]):
        # Odd: it was preempted since its last token.
        r = made[slot * most + i] >> 1
        req[R_DONE * n + r] += 1
        if req[R_DONE * n + r] == 1:
            req[R_FIRST * n + r] = ends[slot] + par[P_EMIT]
        elif made[slot * most + i] & 1:
            req[R_STALLED * n + r] += ends[slot] - req[R_BEFORE * n + r]
        else:
            req[R_INTERFERED * n + r] += disturbed[slot] - req[R_DISTURBED * n + r]
        req[R_BEFORE * n + r] = ends[slot]
        req[R_DISTURBED * n + r] = disturbed[slot]
        if req[R_DONE * n + r] == req[R_OUTPUT * n + r]:
            req[R_LAST * n + r] = ends[slot] + par[P_EMIT]
            end(par, st, pool, req, tables, lists, r)
    st[S_OLDEST] = (slot + 1) % par[P_DEPTH]
    st[S_FLIGHT] -= 1


@njit
def run(par, st, pool, req, tables, lists, sums, flights, price, log):
    """Run until all requests are served; return FINISHED, STUCK if none can go on, or FULL if the log is.

    Args:
        par: (P_COLUMNS).
        st: (S_COLUMNS) The state.
        pool: Four arrays (blocks): the free one before and behind each, how many requests hold it, its content.
        req: (R_COLUMNS, requests).
        tables: Blocks of the requests, contents of these, and the block that has a content.
        lists: Requests that run, in order, and a ring of those that wait.
        sums: (T_COLUMNS) Numbers of the step that is being filled.
        flights: Ends of the steps in flight, how many tokens they give, to whom (depth, most sequences; twice the
            request, and 1 if it was preempted since its last), and `S_DISTURBED` at their ends.
        price: See `armillary.serving.price_kernel.step_ns`.
        log: (steps * L_COLUMNS) Filled.
    """
    n, most = par[P_REQUESTS], par[P_SEQUENCES]
    ends, outputs, made, disturbed = flights
    while st[S_DONE] < n:
        arrive(par, st, req, lists)
        if st[S_FLIGHT] < par[P_DEPTH] and st[S_RUNNING] + st[S_WAITING] > 0:
            if st[S_STEPS] * L_COLUMNS == len(log):
                return FULL
            slot = (st[S_OLDEST] + st[S_FLIGHT]) % par[P_DEPTH]
            for i in range(len(sums)):
                sums[i] = 0
            step = (sums, made, slot * most)
            if par[P_RULE] == SGLANG:
                sglang(par, st, pool, req, tables, lists, step)
            elif par[P_RULE] == TRTLLM:
                trtllm(par, st, pool, req, tables, lists, step)
            else:
                vllm(par, st, pool, req, tables, lists, step)
            if sums[T_TOKENS] > 0:
                # The mean of what stands before the prompts' tokens, weighted by their number.
                new = sums[T_NEW]
                before = (sums[T_SCORES] - new * new) // (2 * new) if new > 0 else 0
                context = sums[T_CONTEXT] // sums[T_DECODING] if sums[T_DECODING] > 0 else 0
                start, decoding = max(st[S_NOW], st[S_GPU]), sums[T_DECODING]
                took = step_ns(price, sums[T_TOKENS], sums[T_OUTPUTS], new, before, decoding, context)
                if new > 0 and decoding > 0:
                    alone = step_ns(price, decoding, decoding, 0, 0, decoding, context)
                    st[S_DISTURBED] += max(0, took - alone)
                st[S_GPU] = start + took
                ends[slot] = st[S_GPU]
                disturbed[slot] = st[S_DISTURBED]
                outputs[slot] = sums[T_OUTPUTS]
                st[S_FLIGHT] += 1
                st[S_MOST_BLOCKS] = max(st[S_MOST_BLOCKS], par[P_BLOCKS] - st[S_FREE])
                row = st[S_STEPS] * L_COLUMNS
                log[row + L_START], log[row + L_END] = start, st[S_GPU]
                log[row + L_TOKENS], log[row + L_NEW] = sums[T_TOKENS], new
                log[row + L_DECODING], log[row + L_CONTEXT] = decoding, sums[T_CONTEXT]
                log[row + L_BLOCKS] = par[P_BLOCKS] - st[S_FREE]
                log[row + L_RUNNING], log[row + L_WAITING] = st[S_RUNNING], st[S_WAITING]
                st[S_STEPS] += 1
                # A step with prompts makes the engine look at once.
                st[S_POLLED] += par[P_POLL] if new > 0 else 1
                continue
        if st[S_FLIGHT] > 0:
            results(par, st, pool, req, tables, lists, flights)
            continue
        # Nothing to do: wait for the next request.
        if st[S_ARRIVED] == n or req[R_ARRIVAL * n + st[S_ARRIVED]] < 0:
            return STUCK
        ahead = ready(par, st, req, st[S_ARRIVED])
        if ahead <= st[S_NOW]:
            return STUCK
        st[S_NOW] = ahead
        st[S_RATIO] = FIRST_RATIO
    return FINISHED
