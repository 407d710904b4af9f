"""Kernel for earliest starts and least remaining times in a graph whose nodes need no resource."""

from __future__ import annotations

from armillary.base.jit import njit


@njit
def longest(n, parent_ptr, parent, least, head, tail, order, stack, cursor):
    """Fill `head` (ticks before a node can start) and `tail` (ticks that must follow its end).

    `least` has the ticks of the n nodes, `parent_ptr` and `parent` are a CSR of what each waits for.
    `head` and `tail` are 0 on entry, `cursor` is -1; `order` and `stack` are room for n nodes.
    """
    done = 0
    # Depth-first over parents with an explicit stack, since nodes may be in any order and kernels
    # have no recursion; `order` ends with every node after its parents.
    for root in range(n):
        if cursor[root] != -1:
            continue
        top = 0
        stack[0] = root
        cursor[root] = parent_ptr[root]
        while top >= 0:
            i = stack[top]
            if cursor[i] == parent_ptr[i + 1]:
                order[done] = i
                done += 1
                top -= 1
                continue
            p = parent[cursor[i]]
            if cursor[p] == -1:
                top += 1
                stack[top] = p
                cursor[p] = parent_ptr[p]
            else:
                # The parent is complete here: it was placed before.
                head[i] = max(head[i], head[p] + least[p])
                cursor[i] += 1
    # Children first, so that the tail of a node is final when its parents read it.
    for k in range(n - 1, -1, -1):
        i = order[k]
        for at in range(parent_ptr[i], parent_ptr[i + 1]):
            p = parent[at]
            tail[p] = max(tail[p], tail[i] + least[i])
