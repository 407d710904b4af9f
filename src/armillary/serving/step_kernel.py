"""The step that is being filled: what its time depends on, and which requests get a token from it."""

from __future__ import annotations

from armillary.base.jit import inner
from armillary.serving.columns import (
    P_ACCEPTED,
    P_BROUGHT,
    P_DRAFTS,
    P_REQUESTS,
    R_COMPUTED,
    R_LOST,
    R_MADE,
    R_OUTPUT,
    R_PROMPT,
    R_SEEN,
)  # fmt: skip

T_TOKENS, T_OUTPUTS, T_NEW, T_SCORES, T_DECODING, T_CONTEXT, T_LOADED, T_COLUMNS = range(8)
"""Tokens, with drafts; sequences that get a token; new tokens of prompts, and twice their scores but for those among
themselves; sequences that decode, and the tokens before these; ps in which blocks come back from tiers."""

GIVES = 16
"""Above the tokens that a step gives to a request, which stand in one number with the request."""


@inner
def brought(par, req, r):
    """Return how many tokens a request brings keys and values of; what a preemption has lost is computed here."""
    n = par[P_REQUESTS]
    return req[R_PROMPT * n + r] if par[P_BROUGHT] > 0 and req[R_LOST * n + r] == 0 else 0


@inner
def drafted(par, req, r, new):
    """Return how many drafts go with `new` tokens of a request: all with a token that it decodes."""
    n = par[P_REQUESTS]
    return par[P_DRAFTS] if new == 1 and req[R_COMPUTED * n + r] >= req[R_PROMPT * n + r] else 0


@inner
def accepted(par, r, made):
    """Return how many drafts behind token `made` of a request are accepted.

    The draw depends on nothing else, so it is the same however requests are batched. Products stay below 2**63. The
    shifts are what makes it chance: without them draws would be linear in `made`, and `made` grows by what was drawn.
    """
    draw = (r * 7919 + made * 104729 + 1) % 2147483647
    for _ in range(3):
        draw = (draw ^ (draw >> 16)) * 73244475 % 2147483647
    draw = draw ^ (draw >> 16)
    many = 0
    for i in range(par[P_DRAFTS]):
        many += 1 if draw < par[P_ACCEPTED + i] else 0
    return many


@inner
def add(par, step, req, r, new, drafts):
    """Add `new` tokens of a request to the step, and `drafts` that it checks behind these; return how many it gives.

    The step is numbers, requests that get tokens, and where these begin.
    """
    n = par[P_REQUESTS]
    sums, made, first = step
    computed = req[R_COMPUTED * n + r]
    known = req[R_PROMPT * n + r] + req[R_MADE * n + r]
    sums[T_TOKENS] += new + drafts
    gives = 0
    if new == 1 and computed >= req[R_PROMPT * n + r]:
        sums[T_DECODING] += 1
        sums[T_CONTEXT] += computed
    else:
        sums[T_NEW] += new
        sums[T_SCORES] += new * (2 * computed + new)
    # The last token that is known gives the next one, and those of drafts that are what the model says.
    if computed + new == known and req[R_MADE * n + r] < req[R_OUTPUT * n + r]:
        gives = 1
        if drafts > 0:
            gives = min(
                1 + accepted(par, r, req[R_MADE * n + r]), req[R_OUTPUT * n + r] - req[R_MADE * n + r]
            )
        req[R_MADE * n + r] += gives
        late = 1 if req[R_LOST * n + r] > req[R_SEEN * n + r] else 0
        made[first + sums[T_OUTPUTS]] = (2 * r + late) * GIVES + gives
        req[R_SEEN * n + r] = req[R_LOST * n + r]
        sums[T_OUTPUTS] += 1
    # Of what is given the last token is not computed yet.
    req[R_COMPUTED * n + r] = computed + new + max(0, gives - 1)
    return gives
