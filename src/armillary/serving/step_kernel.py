"""The step that is being filled: what its time depends on, and which requests get a token from it."""

from __future__ import annotations

from armillary.base.jit import inner
from armillary.serving.columns import (
    P_BROUGHT,
    P_REQUESTS,
    R_COMPUTED,
    R_LOST,
    R_MADE,
    R_OUTPUT,
    R_PROMPT,
    R_SEEN,
)  # fmt: skip

T_TOKENS, T_OUTPUTS, T_NEW, T_SCORES, T_DECODING, T_CONTEXT, T_COLUMNS = range(7)
"""Tokens; sequences that get a token; new tokens of prompts, and twice their scores but for those among themselves;
sequences that decode, and the tokens before these."""


@inner
def brought(par, req, r):
    """Return how many tokens a request brings keys and values of; what a preemption has lost is computed here."""
    n = par[P_REQUESTS]
    return req[R_PROMPT * n + r] if par[P_BROUGHT] > 0 and req[R_LOST * n + r] == 0 else 0


@inner
def add(par, step, req, r, new):
    """Add `new` tokens of a request to the step, which is numbers, requests that get a token, and where these begin."""
    n = par[P_REQUESTS]
    sums, made, first = step
    computed = req[R_COMPUTED * n + r]
    known = req[R_PROMPT * n + r] + req[R_MADE * n + r]
    sums[T_TOKENS] += new
    if new == 1 and computed >= req[R_PROMPT * n + r]:
        sums[T_DECODING] += 1
        sums[T_CONTEXT] += computed
    else:
        sums[T_NEW] += new
        sums[T_SCORES] += new * (2 * computed + new)
    req[R_COMPUTED * n + r] = computed + new
    # The last token that is known gives the next one.
    if computed + new == known and req[R_MADE * n + r] < req[R_OUTPUT * n + r]:
        req[R_MADE * n + r] += 1
        made[first + sums[T_OUTPUTS]] = 2 * r + (1 if req[R_LOST * n + r] > req[R_SEEN * n + r] else 0)
        req[R_SEEN * n + r] = req[R_LOST * n + r]
        sums[T_OUTPUTS] += 1
