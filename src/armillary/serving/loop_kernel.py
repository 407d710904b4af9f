"""Requests arrive, steps are filled by the rule of an engine, take their time, and give tokens.

The scheduler runs whenever fewer steps are in flight than the engine allows; with two, it fills the next one while the
device works on the first, and learns of its tokens only afterwards. Requests that come while it waits for a result are
seen when that is there.

Ranks that share experts but have requests and blocks of their own (attention data parallel) go through each step
together: it ends when the slowest has done its part, and with it their experts.
"""

from __future__ import annotations

from armillary.base.jit import inner, njit, use
from armillary.serving.columns import (
    ENDED,
    FIRST_RATIO,
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
    NEVER,
    P_BALANCE,
    P_BLOCKS,
    P_BROUGHT,
    P_CLIENTS,
    P_DEPTH,
    P_EMIT,
    P_INGEST,
    P_POLL,
    P_RANKS,
    P_REQUESTS,
    P_RULE,
    P_SEQUENCES,
    P_TOKEN,
    P_UNTIL,
    R_ARRIVAL,
    R_BEFORE,
    R_DISTURBED,
    R_DONE,
    R_FIRST,
    R_INTERFERED,
    R_LAST,
    R_OUTPUT,
    R_PROMPT,
    R_RANK,
    R_STALLED,
    R_STATE,
    RUNS,
    S_ARRIVED,
    S_AWAITS,
    S_DISTURBED,
    S_DONE,
    S_FLIGHT,
    S_FREE,
    S_GPU,
    S_HEAD,
    S_HELD,
    S_MOST_BLOCKS,
    S_NEXT,
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

_ahead = use("armillary.serving.ahead_kernel")
upcoming, pop, done = _ahead.upcoming, _ahead.pop, _ahead.done
give_back = use("armillary.serving.blocks_kernel").give_back
vllm = use("armillary.serving.vllm_kernel").schedule
trtllm = use("armillary.serving.trtllm_kernel").schedule
sglang = use("armillary.serving.sglang_kernel").schedule
step_ns = use("armillary.serving.price_kernel").step_ns
_step = use("armillary.serving.step_kernel")
GIVES = _step.GIVES
T_TOKENS, T_OUTPUTS, T_NEW, T_SCORES, T_DECODING, T_CONTEXT, T_LOADED = (
    _step.T_TOKENS, _step.T_OUTPUTS, _step.T_NEW, _step.T_SCORES, _step.T_DECODING, _step.T_CONTEXT, _step.T_LOADED,
)  # fmt: skip

FINISHED, STUCK, FULL, PAUSED = range(4)


@inner
def ready(par, main, req, r):
    """Return ns at which a request can be queued: the front end turns prompts into tokens one after another."""
    n = par[P_REQUESTS]
    begun = max(main[S_READY], req[R_ARRIVAL * n + r] + par[P_INGEST])
    return begun + req[R_PROMPT * n + r] * par[P_TOKEN] // 1000


@inner
def rank_of(par, st, r):
    """Return the rank that gets a request: SGLang's go round, others' to the rank that has the fewest."""
    if par[P_RULE] == SGLANG:
        return r % par[P_RANKS]
    best = 0
    for k in range(1, par[P_RANKS]):
        if st[k][S_RUNNING] + st[k][S_WAITING] < st[best][S_RUNNING] + st[best][S_WAITING]:
            best = k
    return best


@inner
def arrive(par, st, req, lists):
    """Queue the requests that have come by now, if the engine looks for them."""
    n, main = par[P_REQUESTS], st[0]
    if par[P_POLL] > 1 and main[S_POLLED] < par[P_POLL]:
        for k in range(par[P_RANKS]):
            if st[k][S_RUNNING] > 0:
                return
    main[S_POLLED] = 0
    while True:
        r = upcoming(par, main, req, lists[2])
        if r < 0 or ready(par, main, req, r) > main[S_NOW]:
            return
        main[S_READY] = ready(par, main, req, r)
        pop(par, main, req, lists[2])
        k = rank_of(par, st, r)
        own = st[k]
        lists[1][k][(own[S_HEAD] + own[S_WAITING]) % n] = r
        own[S_WAITING] += 1
        req[R_RANK * n + r] = k
        req[R_STATE * n + r] = WAITS
        main[S_ARRIVED] += 1


@inner
def end(par, main, own, pool, req, tables, lists, graph, r):
    """Let a request go that has all its tokens; in a closed loop the next one comes at once, and others may follow."""
    n = par[P_REQUESTS]
    running, waiting = lists
    if req[R_STATE * n + r] == RUNS:
        at = 0
        while running[at] != r:
            at += 1
        own[S_RUNNING] -= 1
        for i in range(at, own[S_RUNNING]):
            running[i] = running[i + 1]
    else:
        # It was preempted while its last token was on its way.
        at = 0
        while waiting[(own[S_HEAD] + at) % n] != r:
            at += 1
        own[S_WAITING] -= 1
        for i in range(at, own[S_WAITING]):
            waiting[(own[S_HEAD] + i) % n] = waiting[(own[S_HEAD] + i + 1) % n]
    give_back(par, own, pool, req, tables, r)
    req[R_STATE * n + r] = ENDED
    main[S_DONE] += 1
    done(par, main, req, graph, r)
    if par[P_CLIENTS] > 0:
        follower = par[P_CLIENTS] + main[S_DONE] - 1
        if follower < n:
            req[R_ARRIVAL * n + follower] = req[R_LAST * n + r]


@inner
def own_pool(pool, k):
    """Return the blocks of a rank."""
    return pool[0][k], pool[1][k], pool[2][k], pool[3][k], pool[4][k], pool[5][k]


@inner
def own_tables(tables, k):
    """Return what blocks hold, and where it is for a rank."""
    return tables[0], tables[1], tables[2][k], tables[3][k], tables[4][k], tables[5][k], tables[6][k]


@inner
def results(par, st, pool, req, tables, lists, flights):
    """Take the results of the oldest step in flight."""
    n, most, main = par[P_REQUESTS], par[P_SEQUENCES], st[0]
    ends, outputs, made, disturbed = flights
    graph = (lists[2], lists[3], lists[4])
    slot = main[S_OLDEST]
    main[S_NOW] = max(main[S_NOW], ends[slot])
    for k in range(par[P_RANKS]):
        own, of_rank = st[k], (lists[0][k], lists[1][k])
        blocks = own_pool(pool, k)
        found = own_tables(tables, k)
        for i in range(outputs[k][slot]):
            # Odd: it was preempted since its last token.
            which, gives = made[k][slot * most + i] // GIVES, made[k][slot * most + i] % GIVES
            r = which >> 1
            req[R_DONE * n + r] += gives
            if req[R_DONE * n + r] == gives + par[P_BROUGHT]:
                req[R_FIRST * n + r] = ends[slot] + par[P_EMIT]
            elif which & 1:
                req[R_STALLED * n + r] += ends[slot] - req[R_BEFORE * n + r]
            else:
                req[R_INTERFERED * n + r] += disturbed[slot] - req[R_DISTURBED * n + r]
            req[R_BEFORE * n + r] = ends[slot]
            req[R_DISTURBED * n + r] = disturbed[slot]
            if req[R_DONE * n + r] == req[R_OUTPUT * n + r]:
                req[R_LAST * n + r] = ends[slot] + par[P_EMIT]
                end(par, main, own, blocks, req, found, of_rank, graph, r)
    main[S_OLDEST] = (slot + 1) % par[P_DEPTH]
    main[S_FLIGHT] -= 1


@inner
def hold(par, st):
    """Let prompts wait, for some steps at most, until each rank has one (TensorRT-LLM's attention-dp balance)."""
    main, having, busy = st[0], 0, 0
    for k in range(par[P_RANKS]):
        having += 1 if st[k][S_WAITING] > 0 else 0
        busy += st[k][S_RUNNING]
    waits = busy > 0 and 0 < having < par[P_RANKS] and main[S_HELD] < par[P_BALANCE]
    main[S_HELD] = main[S_HELD] + 1 if waits else 0
    for k in range(1, par[P_RANKS]):
        st[k][S_HELD] = main[S_HELD]


@inner
def took(par, sums, price, prompts):
    """Return ns of a step: of the rank that takes longest; without `prompts` as if there were none."""
    total = 0
    for k in range(par[P_RANKS]):
        # What is no prompt is a token of each that decodes, and drafts.
        total += sums[k][T_TOKENS] if prompts else sums[k][T_TOKENS] - sums[k][T_NEW]
    each, longest = -(-total // par[P_RANKS]), 0
    for k in range(par[P_RANKS]):
        own = sums[k]
        # The mean of what stands before the prompts' tokens, weighted by their number.
        new, decoding = own[T_NEW], own[T_DECODING]
        before = (own[T_SCORES] - new * new) // (2 * new) if new > 0 else 0
        context = own[T_CONTEXT] // decoding if decoding > 0 else 0
        if prompts:
            outputs = own[T_OUTPUTS] + own[T_TOKENS] - new - decoding
            ns = step_ns(price, own[T_TOKENS], outputs, new, before, decoding, context, each)
            ns += -(-own[T_LOADED] // 1000)
        else:
            ns = step_ns(price, own[T_TOKENS] - new, own[T_TOKENS] - new, 0, 0, decoding, context, each)
        longest = max(longest, ns)
    return longest


@inner
def stops(par, main, half, awaits):
    """Return whether what comes at `half` ns is beyond the end of this run, and keep where to go on if it is."""
    if par[P_UNTIL] < 0 or half <= par[P_UNTIL]:
        return False
    main[S_NEXT], main[S_AWAITS] = half, awaits
    return True


@njit
def run(par, st, pool, req, tables, lists, sums, flights, price, log):
    """Run until all requests are served; return FINISHED, STUCK if none can go on, FULL if the log is, or PAUSED.

    Args:
        par: (P_COLUMNS).
        st: (ranks, S_COLUMNS) The state.
        pool: Six arrays (ranks, blocks): the free one before and behind each, how many requests hold it, its content,
            and the next and the last block of the same content.
        req: (R_COLUMNS, requests).
        tables: Blocks of the requests, contents of these, (ranks, contents) the block that has a content, and of the
            tiers four arrays of each rank (`armillary.serving.tier_kernel`).
        lists: (ranks, sequences) Requests that run, in order, and (ranks, requests) a ring of those that wait; where
            some follow others, a heap of those ahead, and which follow each (`armillary.serving.ahead_kernel`).
        sums: (ranks, T_COLUMNS) Numbers of the step that is being filled.
        flights: (steps in flight) Ends; (ranks, steps in flight) how many requests get tokens of each, (ranks, steps in
            flight * most sequences) which, twice its number, and 1 if it was preempted since its last, and how many;
            `S_DISTURBED` at ends.
        price: See `armillary.serving.price_kernel.step_ns`.
        log: (steps * L_COLUMNS) Filled.
    """
    n, most, ranks, main = par[P_REQUESTS], par[P_SEQUENCES], par[P_RANKS], st[0]
    ends, outputs, made, disturbed = flights
    while main[S_DONE] < n:
        have = 0
        # What it stopped for comes first: to schedule twice in a ns is not the same as once.
        if main[S_AWAITS] == 0:
            if stops(par, main, 2 * main[S_NOW] + 1, 0):
                return PAUSED
            arrive(par, st, req, lists)
            for k in range(ranks):
                have += st[k][S_RUNNING] + st[k][S_WAITING]
        main[S_AWAITS] = 0
        if main[S_FLIGHT] < par[P_DEPTH] and have > 0:
            if main[S_STEPS] * L_COLUMNS == len(log):
                return FULL
            slot = (main[S_OLDEST] + main[S_FLIGHT]) % par[P_DEPTH]
            if par[P_BALANCE] > 0:
                hold(par, st)
            tokens, new, decoding, context, running, waiting, used, loaded = 0, 0, 0, 0, 0, 0, 0, 0
            for k in range(ranks):
                own, of_rank = st[k], (lists[0][k], lists[1][k])
                blocks = own_pool(pool, k)
                found = own_tables(tables, k)
                own[S_NOW] = main[S_NOW]
                for i in range(len(sums[k])):
                    sums[k][i] = 0
                step = (sums[k], made[k], slot * most)
                if par[P_RULE] == SGLANG:
                    sglang(par, own, blocks, req, found, of_rank, step)
                elif par[P_RULE] == TRTLLM:
                    trtllm(par, own, blocks, req, found, of_rank, step)
                else:
                    vllm(par, own, blocks, req, found, of_rank, step)
                tokens, new = tokens + sums[k][T_TOKENS], new + sums[k][T_NEW]
                decoding, context = decoding + sums[k][T_DECODING], context + sums[k][T_CONTEXT]
                running, waiting = running + own[S_RUNNING], waiting + own[S_WAITING]
                used, loaded = used + par[P_BLOCKS] - own[S_FREE], loaded + sums[k][T_LOADED]
                outputs[k][slot] = sums[k][T_OUTPUTS]
            if tokens > 0:
                start, lasts = max(main[S_NOW], main[S_GPU]), took(par, sums, price, True)
                if new > 0 or loaded > 0:
                    # Of a step of prompts alone, who decodes waits for all of it.
                    alone = took(par, sums, price, False) if decoding > 0 else 0
                    main[S_DISTURBED] += max(0, lasts - alone)
                main[S_GPU] = start + lasts
                ends[slot] = main[S_GPU]
                disturbed[slot] = main[S_DISTURBED]
                main[S_FLIGHT] += 1
                main[S_MOST_BLOCKS] = max(main[S_MOST_BLOCKS], used)
                row = main[S_STEPS] * L_COLUMNS
                log[row + L_START], log[row + L_END] = start, main[S_GPU]
                log[row + L_TOKENS], log[row + L_NEW] = tokens, new
                log[row + L_DECODING], log[row + L_CONTEXT] = decoding, context
                log[row + L_BLOCKS] = used
                log[row + L_RUNNING], log[row + L_WAITING] = running, waiting
                main[S_STEPS] += 1
                # A step with prompts makes the engine look at once.
                main[S_POLLED] += par[P_POLL] if new > 0 else 1
                continue
        if main[S_FLIGHT] > 0:
            if stops(par, main, 2 * ends[main[S_OLDEST]], 1):
                return PAUSED
            results(par, st, pool, req, tables, lists, flights)
            continue
        # Nothing to do: wait for the next request.
        r = upcoming(par, main, req, lists[2])
        if r < 0:
            return PAUSED if stops(par, main, NEVER, 1) else STUCK
        ahead = ready(par, main, req, r)
        if stops(par, main, 2 * ahead + 1, 1):
            return PAUSED
        if ahead <= main[S_NOW]:
            return STUCK
        main[S_NOW] = ahead
        for k in range(ranks):
            st[k][S_RATIO] = FIRST_RATIO
    return FINISHED
