"""Dependencies of tokens as references that repeat where the program repeats, and back.

A reference names an earlier token: the last kernel (`KERNEL`), the last collective of the own group (`GROUP`), the
n-th last token of a symbol in the same microbatch (`SAME`) or at all (`LAST`), the n-th last token (`BACK`); or all
tokens of a symbol since the last token of the own symbol (`SINCE`), or the last n of a symbol (`TAIL`).
"""

from __future__ import annotations

from typing import Any

from armillary.jit import njit

KERNEL = 0
GROUP = 1
SAME = 2
LAST = 3
SINCE = 4
BACK = 5
TAIL = 6


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
    form: Any,
    named: Any,
    count: Any,
    ref_ptr: Any,
) -> int:
    """Find the references of every token.

    Args:
        symbol: Of every token.
        batch: Microbatch of every token.
        compute: 1 for symbols that are kernels.
        group: Group of every symbol, -1: none.
        ptr: Offsets of parents.
        parent: Earlier tokens, ascending.
        last: Room for a number per symbol, -1 at first.
        last_of_group: Room for a number per group, -1 at first.
        before: Room for a number per token.
        form: Result, (parents,).
        named: Result: symbol, -1: none.
        count: Result: n.
        ref_ptr: Result: offsets.

    Returns:
        How many there are.
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
            if mine > 1:
                oldest = _oldest(symbol, parent, low, high, s)
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
            if whole or (tail and mine > 2):
                if first:
                    form[used], named[used], count[used] = SINCE if whole else TAIL, s, 0 if whole else mine
                    used += 1
                continue
            if p == kernel:
                form[used], named[used], count[used] = KERNEL, -1, 0
            elif group[own] >= 0 and p == last_of_group[group[own]]:
                form[used], named[used], count[used] = GROUP, -1, 0
            else:
                total = 0
                same = 0
                walk = last[s]
                while walk >= p:
                    total += 1
                    same += 1 if batch[walk] == batch[i] else 0
                    walk = before[walk]
                if batch[p] != batch[i]:
                    same = 0
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
        ref_ptr[i + 1] = used
        before[i] = last[own]
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
    ptr: Any,
    parent: Any,
    lost: Any,
    write: int,
) -> int:
    """Find the tokens that references name; what names no earlier token is left out and counted.

    Args:
        symbol: See `refer`, as for the other arguments.
        batch: See there.
        compute: See there.
        group: See there.
        ref_ptr: Offsets of references.
        form: Of references.
        named: Of references.
        count: Of references.
        last: Room, -1.
        last_of_group: Room, -1.
        before: Room.
        ptr: Result: offsets of parents.
        parent: Result: parents, of which two references may name the same.
        lost: Result, (1,): the first token with a reference that names none; -1 at first.
        write: 0: only count, `parent` is not touched.

    Returns:
        How many parents there are.
    """
    kernel = -1
    used = 0
    for i in range(len(symbol)):
        own = symbol[i]
        for at in range(ref_ptr[i], ref_ptr[i + 1]):
            kind = form[at]
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
            if found < 0 and kind not in (SINCE, TAIL) and lost[0] < 0:
                lost[0] = i
            if found >= 0:
                if write:
                    parent[used] = found
                used += 1
        ptr[i + 1] = used
        before[i] = last[own]
        last[own] = i
        if compute[own]:
            kernel = i
        if group[own] >= 0:
            last_of_group[group[own]] = i
    return used
