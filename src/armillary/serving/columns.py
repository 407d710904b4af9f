"""Places in the flat arrays of the loop; see `armillary.serving.loop_kernel`."""

from __future__ import annotations

MOST_DRAFTS = 8
"""Tokens that may be drafted ahead of a step."""
TIERS = 2
"""Where blocks are kept that are taken on the device: the host's memory, and its disk."""
P_COLUMNS = 25 + MOST_DRAFTS
(
    P_REQUESTS, P_BUDGET, P_SEQUENCES, P_BLOCK, P_BLOCKS, P_DEPTH, P_CACHED, P_CLIENTS, P_LONG, P_INGEST, P_EMIT,
    P_RULE, P_TOKEN, P_POLL, P_RANKS, P_BALANCE, P_BROUGHT,
    P_UNTIL, P_FOLLOWS, P_SLOTS, _, P_LOAD, _, P_DRAFTS, P_ACCEPTED,
) = range(P_COLUMNS - MOST_DRAFTS)  # fmt: skip
"""Requests; tokens of a step; sequences that run at a time; tokens of a block; blocks; steps that are scheduled before
the results of the first are known; whether blocks are kept for others; clients of a closed loop, 0: open;
most new tokens of a prompt in a step, 0: no such limit; ns before a request is in the queue, and after its last step
until a token is with the client; number of the rule (`RULES`); ps of a token of a prompt at the front end, which takes
one request after another; steps of tokens between looks for new requests, 1: before each step; ranks that have requests
of their own and go through each step together; steps for which prompts wait until each rank has one (TensorRT-LLM);
1: requests come with the keys and values of their prompts, and with the token that follows these; half ns up to which
it may run, where the results of a ns come before what is scheduled then, half a ns later; -1: no end; 1: some requests
follow others; blocks that each tier keeps, and ps in which one of each is back on the device; tokens that are drafted
of each request before a step, which checks them; of 2**31 - 1 steps, how many accept one draft at least, two at least,
and so on: `MOST_DRAFTS` columns."""
RULES = ("vllm", "sglang", "trtllm")
VLLM, SGLANG, TRTLLM = range(len(RULES))

S_COLUMNS = 27
(
    S_NOW, S_ARRIVED, S_RUNNING, S_HEAD, S_WAITING, S_FREE, S_FIRST_FREE, S_LAST_FREE, S_FLIGHT, S_OLDEST, S_GPU,
    S_STEPS, S_DONE, S_PREEMPTIONS, S_MOST_BLOCKS, S_DISTURBED, S_READY, S_POLLED, S_RATIO, S_HELD,
    S_AWAITS, S_NEXT, S_AHEAD, S_FIRST_SLOT, _, S_LAST_SLOT, _,
) = range(S_COLUMNS)  # fmt: skip
"""ns; requests that arrived; running ones; place of the first that waits, and their number; free blocks, the first and
the last of them; steps in flight, the place of the oldest; ns at which the device has done what is in flight; steps,
finished requests and preemptions so far; most blocks in use; ns by which
prompts have lengthened steps in which others decode; ns at which the front end is done with the last request that
came; steps since the last look for new ones; millionths of what is kept free for answers (SGLang); steps for which
prompts have waited for other ranks, 0: they may begin; whether it stopped when there was nothing to schedule; half ns
at which it goes on if nothing comes, where it stopped; where requests follow others, how many have not come whose time
is known; the slot of each tier that was used longest ago, and the last. Each rank has a row; what is not of its own
requests and blocks stands in the first."""
NEVER = 2**62
"""Of `S_NEXT`: it waits for requests."""
FIRST_RATIO = 700_000
"""Of `S_RATIO`, when nothing was there to do (SGLANG_INIT_NEW_TOKEN_RATIO)."""

R_COLUMNS = 25
(
    R_ARRIVAL, R_PROMPT, R_OUTPUT, R_TABLE, R_COMPUTED, R_MADE, R_HELD, R_DONE, R_STATE, R_BEGUN, R_FIRST, R_LAST,
    R_LOST, R_HIT, R_AGAIN, R_SEEN, R_BEFORE, R_DISTURBED, R_INTERFERED, R_STALLED, R_RANK, R_CUT,
    R_OPEN, R_DELAY, R_LOADED,
) = range(R_COLUMNS)  # fmt: skip
"""Of a request: arrival in ns (-1: not yet known); tokens of prompt and output; where its blocks stand in the tables;
tokens computed; output tokens that are scheduled, blocks that it holds, output tokens that are there; state; ns of the
first step that has it, of its first and its last token here; times it was preempted, tokens found in the cache,
tokens computed again after a preemption; preemptions when its last token was scheduled; ns of the token before, and
`S_DISTURBED` then; ns by which prompts of others lengthened its tokens; ns between two tokens with a preemption between
them; its rank; whether its prompt was cut (SGLang); requests that it follows and that are not done, and ns from their
end until it comes; tokens that came from a tier."""
AHEAD, WAITS, RUNS, ENDED = range(4)

L_COLUMNS = 9
L_START, L_END, L_TOKENS, L_NEW, L_DECODING, L_CONTEXT, L_RUNNING, L_WAITING, L_BLOCKS = range(L_COLUMNS)
"""Of a step: begin and end in ns; tokens; those of prompts; sequences that decode, and tokens in their caches; requests
that run and wait; blocks in use."""
