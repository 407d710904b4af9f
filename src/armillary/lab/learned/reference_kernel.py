"""Dependencies of tokens as references that repeat where the program repeats, and back.

A reference names one earlier token: the last kernel (`KERNEL`), the last collective of the own group (`GROUP`), the
n-th last token of a symbol in the same microbatch (`SAME`) or in all (`LAST`), or the n-th last token of any symbol
(`BACK`). Or it names several: all tokens of a symbol since the last token of the own symbol (`SINCE`), or the last n
of a symbol (`TAIL`). Gradients of a bucket's layers are summed over microbatches; for these a reference names the
tokens of a symbol at certain places of every microbatch: the places that the latest microbatch has since the last
token of the own symbol (`EVERY`), or its last n places (`ENDS`).
"""

from __future__ import annotations

from typing import Any

from armillary.base.jit import njit

KERNEL = 0
GROUP = 1
SAME = 2
LAST = 3
SINCE = 4
BACK = 5
TAIL = 6
EVERY = 7
ENDS = 8
COUNTED = (TAIL, ENDS)
"""Forms whose counts are computed by rules."""
IF_ANY = 16
"""Added to a form if the reference may name nothing."""


@njit
def refer(
    symbol: Any,
    batch: Any,
    compute: Any,
    group: Any,
    ptr: Any,
    parent: Any,
    last: Any,
    last_of_group: Any,
    before: Any,
    nth: Any,
    form: Any,
    named: Any,
    count: Any,
    ref_ptr: Any,
) -> int:
    """Find the references of every token.

    Args:
        symbol: Symbol of every token.
        batch: Microbatch of every token.
        compute: 1 for symbols that are kernels.
        group: Group of every symbol, -1: none.
        ptr: Offsets of parents.
        parent: Earlier tokens, ascending.
        last: Room for a number per symbol, -1 at first.
        last_of_group: Room for a number per group, -1 at first.
        before: Room for a number per token.
        nth: Room for a number per token.
        form: Result, (parents,).
        named: Result: symbol, -1: none.
        count: Result: n.
        ref_ptr: Result: offsets.

    Returns:
        The number of references.
    """
    kernel = -1
    used = 0
    for i in range(len(symbol)):
        own = symbol[i]
        low = ptr[i]
        high = ptr[i + 1]
        for at in range(high - 1, low - 1, -1):
            p = parent[at]
            s = symbol[p]
            # Whether all of this symbol since the last of the own one are parents, and two at least.
            mine = 0
            first = 1
            for other in range(low, high):
                if symbol[parent[other]] == s:
                    mine += 1
                    if other > at:
                        first = 0
            whole = 0
            tail = 0
            every = 0
            ends = 0
            if mine > 1:
                # Several parents of one symbol: look for a form that names them all, which stays the same
                # however many layers or microbatches there are.
                every = _in_every(batch, parent, low, high, symbol, s, last[s], last[own], before, nth)
                ends = 0 if every else _at_ends(batch, parent, low, high, symbol, s, last[s], before, nth)
                oldest = _oldest(symbol, parent, low, high, s)
                # `before` links the tokens of a symbol, the latest first: see whether the oldest parent
                # stands mine - 1 steps back.
                walk = last[s]
                for _ in range(mine - 1):
                    walk = before[walk]
                tail = 1 if walk == oldest else 0
                since = 0
                walk = last[s]
                while walk > last[own] and since <= mine:
                    since += 1
                    walk = before[walk]
                whole = 1 if since == mine and oldest > last[own] else 0
            # One reference for all parents of the symbol, written at the latest of them. Two at the tail
            # stay single references: their count would need a rule.
            if every or whole or ends or (tail and mine > 2):
                if first:
                    found = EVERY if every else SINCE if whole else ENDS if ends else TAIL
                    many = ends if found == ENDS else mine if found == TAIL else 0
                    form[used], named[used], count[used] = found, s, many
                    used += 1
                continue
            if p == kernel:
                form[used], named[used], count[used] = KERNEL, -1, 0
            elif group[own] >= 0 and p == last_of_group[group[own]]:
                form[used], named[used], count[used] = GROUP, -1, 0
            else:
                # How far back the parent is among the tokens of its symbol: in all, and within this token's
                # microbatch.
                total = 0
                same = 0
                walk = last[s]
                while walk >= p:
                    total += 1
                    same += 1 if batch[walk] == batch[i] else 0
                    walk = before[walk]
                if batch[p] != batch[i]:
                    same = 0
                # From the name that survives most changes of the program to the one that survives fewest:
                # the last of a symbol in the microbatch, near ones by count, and at last the plain distance.
                if same == 1:
                    form[used], named[used], count[used] = SAME, s, 1
                elif total <= 2:
                    form[used], named[used], count[used] = LAST, s, total
                elif 0 < same <= 4:
                    form[used], named[used], count[used] = SAME, s, same
                elif total <= 16:
                    form[used], named[used], count[used] = LAST, s, total
                else:
                    form[used], named[used], count[used] = BACK, -1, i - p
            used += 1
        # Only now the token joins the links: it never refers to itself.
        ref_ptr[i + 1] = used
        before[i] = last[own]
        nth[i] = _place(batch, last[own], before, nth, batch[i])
        last[own] = i
        if compute[own]:
            kernel = i
        if group[own] >= 0:
            last_of_group[group[own]] = i
    return used


@njit
def _oldest(symbol: Any, parent: Any, low: int, high: int, wanted: int) -> int:
    for at in range(low, high):
        if symbol[parent[at]] == wanted:
            return int(parent[at])
    return -1


@njit
def _place(batch: Any, walk: int, before: Any, nth: Any, wanted: int) -> int:
    """Return the place that the next token of a symbol has in a microbatch, from 1."""
    while walk >= 0 and batch[walk] != wanted:
        walk = before[walk]
    return int(nth[walk]) + 1 if walk >= 0 else 1


@njit
def _places(batch: Any, walk: int, end: int, before: Any, nth: Any) -> Any:
    """Return the first and the last place, in the latest microbatch, of the tokens after `end`."""
    if walk <= end:
        return 1, 0
    latest = batch[walk]
    # The latest token has the highest place of its microbatch.
    low = high = nth[walk]
    while walk > end:
        if batch[walk] == latest:
            low = nth[walk]
        walk = before[walk]
    return low, high


@njit
def _several(batch: Any, parent: Any, low: int, high: int, symbol: Any, wanted: int, walk: int) -> int:
    """Return 1 if the parents of a symbol are in several microbatches, the latest among them; else 0."""
    found = 0
    latest = 0
    for at in range(low, high):
        p = parent[at]
        if symbol[p] == wanted:
            found |= 1 if batch[p] != batch[walk] else 0
            latest |= 1 if batch[p] == batch[walk] else 0
    return found & latest


@njit
def _in_every(
    batch: Any,
    parent: Any,
    low: int,
    high: int,
    symbol: Any,
    wanted: int,
    walk: int,
    end: int,
    before: Any,
    nth: Any,
) -> int:
    """Return 1 if the parents of a symbol are in several microbatches and are those that `EVERY` names; else 0."""
    if not _several(batch, parent, low, high, symbol, wanted, walk):
        return 0
    from_, to = _places(batch, walk, end, before, nth)
    return _are(parent, low, high, symbol, wanted, walk, from_, to, before, nth)


@njit
def _at_ends(
    batch: Any, parent: Any, low: int, high: int, symbol: Any, wanted: int, walk: int, before: Any, nth: Any
) -> int:
    """Return n if the parents of a symbol are in several microbatches and are those that `ENDS` names; else 0."""
    if not _several(batch, parent, low, high, symbol, wanted, walk):
        return 0
    from_ = nth[walk]
    for at in range(low, high):
        p = parent[at]
        if symbol[p] == wanted and batch[p] == batch[walk]:
            from_ = min(from_, nth[p])
    found = _are(parent, low, high, symbol, wanted, walk, from_, nth[walk], before, nth)
    return int(nth[walk] - from_ + 1) if found else 0


@njit
def _are(
    parent: Any,
    low: int,
    high: int,
    symbol: Any,
    wanted: int,
    walk: int,
    from_: int,
    to: int,
    before: Any,
    nth: Any,
) -> int:
    """Return 1 if the parents of a symbol are just its tokens at places `from_` to `to` of all microbatches; else 0."""
    # Parents and links both go back in time, so one pass over both compares the sets.
    at = high - 1
    while walk >= 0:
        if from_ <= nth[walk] <= to:
            while at >= low and symbol[parent[at]] != wanted:
                at -= 1
            if at < low or parent[at] != walk:
                return 0
            at -= 1
        walk = before[walk]
    while at >= low:
        if symbol[parent[at]] == wanted:
            return 0
        at -= 1
    return 1


@njit
def resolve(
    symbol: Any,
    batch: Any,
    compute: Any,
    group: Any,
    ref_ptr: Any,
    form: Any,
    named: Any,
    count: Any,
    last: Any,
    last_of_group: Any,
    before: Any,
    nth: Any,
    ptr: Any,
    parent: Any,
    ends: Any,
    lost: Any,
    write: int,
) -> int:
    """Find the tokens that references name; references that name no earlier token are left out.

    Args:
        symbol: As in `refer`.
        batch: As in `refer`.
        compute: As in `refer`.
        group: As in `refer`.
        ref_ptr: Offsets of references.
        form: Form of every reference, plus `IF_ANY` if it may name nothing.
        named: Symbol of every reference.
        count: Count of every reference.
        last: Room, -1.
        last_of_group: Room, -1.
        before: Room.
        nth: Room.
        ptr: Result: offsets of parents.
        parent: Result: parents; two references of a token may name the same.
        ends: Result: offset after the parents of every reference.
        lost: Result, (1,): the first token with a reference that names nothing; -1 at first.
        write: 0: only count, do not write `parent`.

    Returns:
        The number of parents.
    """
    kernel = -1
    used = 0
    for i in range(len(symbol)):
        own = symbol[i]
        for at in range(ref_ptr[i], ref_ptr[i + 1]):
            kind = form[at] % IF_ANY
            found = -1
            if kind == KERNEL:
                found = kernel
            elif kind == GROUP:
                found = last_of_group[group[own]] if group[own] >= 0 else -1
            elif kind == BACK:
                found = i - count[at]
            elif kind == SINCE:
                walk = last[named[at]]
                while walk > last[own]:
                    if write:
                        parent[used] = walk
                    used += 1
                    walk = before[walk]
            elif kind in (EVERY, ENDS):
                walk = last[named[at]]
                low, high = _places(batch, walk, last[own] if kind == EVERY else -1, before, nth)
                if kind == ENDS:
                    # The microbatch may have fewer tokens than the count asks for.
                    low = max(1, high - count[at] + 1)
                while walk >= 0 and low <= high:
                    if low <= nth[walk] <= high:
                        if write:
                            parent[used] = walk
                        used += 1
                    walk = before[walk]
            elif kind == TAIL:
                walk = last[named[at]]
                left = count[at]
                while walk >= 0 and left > 0:
                    if write:
                        parent[used] = walk
                    used += 1
                    left -= 1
                    walk = before[walk]
            else:
                left = count[at]
                walk = last[named[at]]
                while walk >= 0:
                    if kind == LAST or batch[walk] == batch[i]:
                        left -= 1
                        if left <= 0:
                            break
                    walk = before[walk]
                found = walk
            # Forms that name several tokens may name none: that is a set without members.
            if found < 0 and form[at] < IF_ANY and kind not in (SINCE, TAIL, EVERY, ENDS) and lost[0] < 0:
                lost[0] = i
            if found >= 0:
                if write:
                    parent[used] = found
                used += 1
            ends[at] = used
        ptr[i + 1] = used
        before[i] = last[own]
        nth[i] = _place(batch, last[own], before, nth, batch[i])
        last[own] = i
        if compute[own]:
            kernel = i
        if group[own] >= 0:
            last_of_group[group[own]] = i
    return used
