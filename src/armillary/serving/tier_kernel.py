"""Blocks behind those of the device: what is taken there goes to the host's memory, what is taken there to its disk.

A tier, 0: memory, 1: disk, has slots, each with a content, -1: none. `there` (tiers * contents) is the slot that has a
content in a tier, `held` what each slot has; slots of the disk stand behind those of the memory. What has come back to
the device is still there, until it is what was used longest ago in its tier and its slot is needed. Slots of a tier are
a doubly linked list in the order of their use, `sooner` and `later`; its ends are in the state. Who finds further
blocks there, behind those on the device, gets blocks of the device for them, and its step lasts longer by the transfer.
"""

from __future__ import annotations

from armillary.base.jit import inner
from armillary.serving.columns import (
    P_BLOCK,
    P_LOAD,
    P_REQUESTS,
    P_SLOTS,
    R_LOADED,
    R_TABLE,
    S_FIRST_SLOT,
    S_LAST_SLOT,
    TIERS,
)  # fmt: skip


@inner
def use_slot(st, tables, tier, slot):
    """Let a slot be the one of its tier that was used last."""
    sooner, later = tables[5], tables[6]
    last = st[S_LAST_SLOT + tier]
    if last == slot:
        return
    before, behind = sooner[slot], later[slot]
    if before < 0:
        st[S_FIRST_SLOT + tier] = behind
    else:
        later[before] = behind
    sooner[behind] = before
    later[last] = slot
    sooner[slot], later[slot] = last, -1
    st[S_LAST_SLOT + tier] = slot


@inner
def put(par, st, tables, what):
    """Keep a content that leaves the device, and what leaves one tier for it in the next."""
    there, held, contents = tables[3], tables[4], len(tables[2])
    for tier in range(TIERS):
        if what < 0 or par[P_SLOTS + tier] == 0:
            continue
        slot, gone = there[tier * contents + what], -1
        if slot < 0:
            slot = st[S_FIRST_SLOT + tier]
            gone = held[slot]
            if gone >= 0:
                there[tier * contents + gone] = -1
            held[slot] = what
            there[tier * contents + what] = slot
        use_slot(st, tables, tier, slot)
        what = gone


@inner
def tier_of(par, tables, what):
    """Return the first tier that has a content; TIERS: none has."""
    for tier in range(TIERS):
        if par[P_SLOTS + tier] > 0 and tables[3][tier * len(tables[2]) + what] >= 0:
            return tier
    return TIERS


@inner
def waiting(par, req, tables, r, hit, tokens):
    """Return how many blocks of a request tiers have, behind the `hit` first; one token at least stays to compute."""
    if par[P_SLOTS] + par[P_SLOTS + 1] == 0:
        return 0
    first = req[R_TABLE * par[P_REQUESTS] + r]
    most = (tokens - 1) // par[P_BLOCK]
    for i in range(hit, most):
        if tier_of(par, tables, tables[1][first + i]) == TIERS:
            return i - hit
    return max(0, most - hit)


@inner
def fetch(par, st, req, tables, r, hit, many):
    """Let blocks of a request, behind the `hit` first, come from their tiers; return ps that it takes."""
    n, took = par[P_REQUESTS], 0
    first = req[R_TABLE * n + r]
    for i in range(hit, hit + many):
        what = tables[1][first + i]
        tier = tier_of(par, tables, what)
        use_slot(st, tables, tier, tables[3][tier * len(tables[2]) + what])
        took += par[P_LOAD + tier]
    req[R_LOADED * n + r] += many * par[P_BLOCK]
    return took
