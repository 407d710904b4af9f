"""Blocks behind those of the device: what is taken there goes to the host's memory, and comes back for a transfer.

The host has `slots`, each with a content, -1: none, and `there` (contents) the slot that has it. What has come back is
still there, until it is what was used longest ago and its slot is needed. Slots are a doubly linked list in the order
of their use, `sooner` and `later`; its ends are in the state. Who finds further blocks there, behind those on the
device, gets blocks of the device for them, and its step lasts longer by the transfer.
"""

from __future__ import annotations

from armillary.base.jit import inner
from armillary.serving.columns import (
    P_BLOCK,
    P_HOST,
    P_REQUESTS,
    R_LOADED,
    R_TABLE,
    S_FIRST_SLOT,
    S_LAST_SLOT,
)  # fmt: skip


@inner
def use_slot(st, tables, slot):
    """Let a slot be the one that was used last."""
    sooner, later = tables[5], tables[6]
    last = st[S_LAST_SLOT]
    if last == slot:
        return
    before, behind = sooner[slot], later[slot]
    if before < 0:
        st[S_FIRST_SLOT] = behind
    else:
        later[before] = behind
    sooner[behind] = before
    later[last] = slot
    sooner[slot], later[slot] = last, -1
    st[S_LAST_SLOT] = slot


@inner
def put(par, st, tables, what):
    """Keep a content that leaves the device."""
    if par[P_HOST] == 0:
        return
    there, slots = tables[3], tables[4]
    slot = there[what]
    if slot < 0:
        slot = st[S_FIRST_SLOT]
        if slots[slot] >= 0:
            there[slots[slot]] = -1
        slots[slot] = what
        there[what] = slot
    use_slot(st, tables, slot)


@inner
def waiting(par, req, tables, r, hit, tokens):
    """Return how many blocks of a request the host has, behind the `hit` first; one token at least stays to compute."""
    if par[P_HOST] == 0:
        return 0
    first = req[R_TABLE * par[P_REQUESTS] + r]
    most = (tokens - 1) // par[P_BLOCK]
    for i in range(hit, most):
        if tables[3][tables[1][first + i]] < 0:
            return i - hit
    return max(0, most - hit)


@inner
def fetch(par, st, req, tables, r, hit, many):
    """Count blocks of a request, behind the `hit` first, that come from the host."""
    n = par[P_REQUESTS]
    first = req[R_TABLE * n + r]
    for i in range(hit, hit + many):
        use_slot(st, tables, tables[3][tables[1][first + i]])
    req[R_LOADED * n + r] += many * par[P_BLOCK]
    return many
