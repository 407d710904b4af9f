"""Requests that have not come yet: which is next, and which come since another is done.

Of most loads all times are known, ascending. Where requests follow others, those whose time is known are a binary heap
by time and number; a request enters it when the last that it follows is done.
"""

from __future__ import annotations

from armillary.base.jit import inner
from armillary.serving.columns import (
    P_FOLLOWS,
    P_REQUESTS,
    R_ARRIVAL,
    R_DELAY,
    R_LAST,
    R_OPEN,
    S_AHEAD,
    S_ARRIVED,
)  # fmt: skip


@inner
def upcoming(par, main, req, ahead):
    """Return the request that comes next; -1: there is none, or it is not known when."""
    n = par[P_REQUESTS]
    if par[P_FOLLOWS] > 0:
        return ahead[0] if main[S_AHEAD] > 0 else -1
    r = main[S_ARRIVED]
    return r if r < n and req[R_ARRIVAL * n + r] >= 0 else -1


@inner
def sooner(par, req, one, other):
    """Return whether a request comes before another."""
    n = par[P_REQUESTS]
    apart = req[R_ARRIVAL * n + one] - req[R_ARRIVAL * n + other]
    return apart < 0 or (apart == 0 and one < other)


@inner
def push(par, main, req, ahead, r):
    """Put a request among those whose time is known."""
    at = main[S_AHEAD]
    main[S_AHEAD] += 1
    while at > 0 and sooner(par, req, r, ahead[(at - 1) // 2]):
        ahead[at] = ahead[(at - 1) // 2]
        at = (at - 1) // 2
    ahead[at] = r


@inner
def pop(par, main, req, ahead):
    """Take the next request away, which has come."""
    if par[P_FOLLOWS] == 0:
        return
    main[S_AHEAD] -= 1
    many = main[S_AHEAD]
    r, at = ahead[many], 0
    while 2 * at + 1 < many:
        least = 2 * at + 1
        if least + 1 < many and sooner(par, req, ahead[least + 1], ahead[least]):
            least += 1
        if sooner(par, req, r, ahead[least]):
            break
        ahead[at] = ahead[least]
        at = least
    ahead[at] = r


@inner
def done(par, main, req, graph, r):
    """Let those come that follow a request, which is done, and no other."""
    if par[P_FOLLOWS] == 0:
        return
    n = par[P_REQUESTS]
    ahead, begin, later = graph
    for i in range(begin[r], begin[r + 1]):
        other = later[i]
        req[R_OPEN * n + other] -= 1
        if req[R_OPEN * n + other] == 0:
            # The last that ends has the latest time.
            req[R_ARRIVAL * n + other] = req[R_LAST * n + r] + req[R_DELAY * n + other]
            push(par, main, req, ahead, other)
