"""Kernel that finds what kept nodes wait for through nodes that are left out."""

from __future__ import annotations

from typing import Any

from armillary.base.jit import njit


@njit
def bridge(
    ptr: Any,
    parent: Any,
    order: Any,
    keep: Any,
    most: int,
    state: Any,
    first: Any,
    size: Any,
    items: Any,
    chain: Any,
    place: Any,
    tail: Any,
    best: Any,
    stamp: Any,
) -> Any:
    """Find the nearest kept ancestors of every node.

    Those of a node that is left out are the kept ones among its parents and the nearest of the others; of several in
    one chain (of kept nodes that wait for each other) the last. Where that makes more than `most`, the node is kept
    after all (`keep` 2), since each of them would be a dependency of each node behind it.

    Args:
        ptr: offsets of parents.
        parent: parents.
        order: nodes, each after its parents.
        keep: 1 for nodes that are kept.
        most: see above.
        state: position in `order` at which to resume, and used length of `items`; 0 and 0 at first.
        first: where the nearest of a node begin in `items`.
        size: number of the nearest of a node.
        items: room; if it does not suffice, the result is the size needed and the caller calls again.
        chain: chain of every kept node.
        place: position of every kept node in its chain.
        tail: last node of every chain.
        best: room for a node per chain.
        stamp: room for a number per chain, -1 at first.

    Returns:
        0, or the size that `items` needs for the next node.
    """
    used = state[1]
    for at in range(state[0], len(order)):
        node = order[at]
        # A bound on the entries of this node, before duplicates within a chain are merged.
        room = 0
        for edge in range(ptr[node], ptr[node + 1]):
            before = parent[edge]
            room += 1 if keep[before] else size[before]
        # A kernel cannot grow an array: save the place, let the caller enlarge it and call again.
        if used + room > len(items):
            state[0] = at
            state[1] = used
            return used + room
        # The last of each chain, in the order in which chains are met.
        count = 0
        only = -1
        for edge in range(ptr[node], ptr[node + 1]):
            before = parent[edge]
            low = first[before]
            high = low + size[before]
            if keep[before]:
                low = 0
                high = 1
            for k in range(low, high):
                near = before if keep[before] else items[k]
                c = chain[near]
                # Within a chain each node waits for the one before, so the last implies all others.
                # The stamp marks chains that were met for this node and spares clearing `best`.
                if stamp[c] != node:
                    stamp[c] = node
                    best[c] = near
                    items[used + count] = c
                    count += 1
                elif place[near] > place[best[c]]:
                    best[c] = near
            only = before
        if keep[node] == 0 and count > most:
            # Passing on n dependencies to m nodes makes n × m of them; a join makes n + m.
            keep[node] = 2
        if keep[node] == 0 and ptr[node + 1] - ptr[node] == 1 and keep[only] == 0:
            # The same nearest nodes as its only parent: share the range, or long chains of left-out
            # nodes would copy it once per node.
            first[node] = first[only]
            size[node] = size[only]
            continue
        # A kept node extends the first chain that ends at one of its nearest, or starts a chain.
        mine = -1
        for k in range(used, used + count):
            near = best[items[k]]
            items[k] = near
            if mine < 0 and tail[chain[near]] == near:
                mine = near
        first[node] = used
        size[node] = count
        used += count
        if keep[node]:
            chain[node] = node if mine < 0 else chain[mine]
            place[node] = 0 if mine < 0 else place[mine] + 1
            tail[chain[node]] = node
    state[0] = len(order)
    state[1] = used
    return 0
