"""All-gather where all NPUs are alike: the tree of one root, whose translates are those of the others.

A send of the root's chunk from x over generator j at time s stands for one from ``x + r`` of every root r: all links of
the generator's class are in use at s, each by one root. So each class of links carries one send at a time, and
translates never meet. `pool` has for each port, a class of links by which messages leave, the sends that were possible
when their source got the chunk.
"""

from __future__ import annotations

from armillary.base.jit import inner, njit, use

events = use("armillary.collective.synthesis.event_kernel")
push, pop, draw, clear_at, hold = events.push, events.pop, events.draw, events.clear_at, events.hold
S_HEAP, S_SENDS, S_MISSING, S_END = events.S_HEAP, events.S_SENDS, events.S_MISSING, events.S_END
H_COLUMNS = events.H_COLUMNS

# Sizes and options: NPUs, chunks of the root, generators, draws per choice, whether slow links may bring what a coset
# has, ps between arrival and use
P_NODES, P_CHUNKS, P_GENERATORS, P_DRAWS, P_LOOSE, P_AFTER = range(6)


@inner
def worth(par, covered, region, add, entry):
    """Return 2 if a send brings its region what nobody there has, 1 if it brings its target something, else 0."""
    generators, chunks, n = par[P_GENERATORS], par[P_CHUNKS], par[P_NODES]
    j = entry % generators
    held = entry // generators
    source, chunk = held // chunks, held % chunks
    target = add[j * n + source]
    if covered[target * chunks + chunk] == 1:
        return 0
    row = region[j * n + target]
    if row == region[j * n + source]:  # a detour within a region
        row = target
    return 2 - covered[row * chunks + chunk]


@inner
def choose(par, st, covered, region, add, pool, pool_first, pool_size, late, late_size, port):
    """Take a send out of a port's pool, or return -1: of several draws the one with the oldest source."""
    first = pool_first[port]
    while pool_size[port] > 0:
        at = draw(st, pool_size[port])
        for _ in range(1, par[P_DRAWS]):
            # Entries stand in about the order in which sources got the chunk: the lowest place is the oldest.
            at = min(at, draw(st, pool_size[port]))
        entry = pool[first + at]
        pool_size[port] -= 1
        # The last entry fills the place, so that removal costs O(1).
        pool[first + at] = pool[first + pool_size[port]]
        value = worth(par, covered, region, add, entry)
        if value == 2:
            return entry
        # Useful for its target only: kept for when nothing better is left.
        if value == 1 and par[P_LOOSE] == 1:
            late[first + late_size[port]] = entry
            late_size[port] += 1
    while late_size[port] > 0:
        late_size[port] -= 1
        entry = late[first + late_size[port]]
        if worth(par, covered, region, add, entry) > 0:
            return entry
    return -1


@inner
def match(par, st, heap, port_of, rows, region, add, covered, pools, path, free, again, sends, port, now):
    """Let a port that is free take a send, if there is one."""
    pool, pool_first, pool_size, late, late_size = pools
    path_first, links, duration, latency = path
    generators, chunks, n = par[P_GENERATORS], par[P_CHUNKS], par[P_NODES]
    entry = choose(par, st, covered, region, add, pool, pool_first, pool_size, late, late_size, port)
    if entry < 0:
        return
    j = entry % generators
    first, end = path_first[j], path_first[j + 1]
    ask = clear_at(free, links, first, end, latency, now)
    if ask > now:
        # Its later links are busy: put it back and ask when they are free.
        pool[pool_first[port] + pool_size[port]] = entry
        pool_size[port] += 1
        if again[port] <= now or ask < again[port]:
            again[port] = ask
            push(st, heap, ask, -1 - port)
        return
    held = entry // generators
    source, chunk = held // chunks, held % chunks
    target = add[j * n + source]
    arrival = hold(free, links, first, end, duration, latency, now) + par[P_AFTER]
    for i in range(len(rows) // n):
        covered[rows[i * n + target] * chunks + chunk] = 1
    out_entry, out_start = sends
    number = st[S_SENDS]
    out_entry[number] = entry
    out_start[number] = now
    st[S_SENDS] = number + 1
    st[S_MISSING] -= 1
    st[S_END] = max(st[S_END], arrival)
    push(st, heap, arrival, target * chunks + chunk)
    push(st, heap, free[links[first]], -1 - port)


@njit
def run(par, st, heap, port_of, port_link, rows, region, add, covered, pools, path, free, again, sends):
    """Fill `sends` until every NPU has or gets every chunk of the root; returns whether the heap is too short.

    Then it is called again, with a longer one. A port that is matched makes two events at most.

    `add` is (generators, NPUs) where a generator leads; `region` of the same shape the row of the region of an
    NPU as the generator's speed sees it; `rows` (levels, NPUs) all rows that an NPU is in.
    """
    pool, pool_first, pool_size, _, _ = pools
    generators, chunks, n = par[P_GENERATORS], par[P_CHUNKS], par[P_NODES]
    while st[S_HEAP] > 0 and st[S_MISSING] > 0:
        now = heap[0]
        if (st[S_HEAP] + 2 * generators) * H_COLUMNS > len(heap):
            return True
        what = pop(st, heap)
        if what < 0:
            port = -1 - what
            if free[port_link[port]] <= now:
                match(
                    par,
                    st,
                    heap,
                    port_of,
                    rows,
                    region,
                    add,
                    covered,
                    pools,
                    path,
                    free,
                    again,
                    sends,
                    port,
                    now,
                )
            continue
        node, chunk = what // chunks, what % chunks
        for j in range(generators):
            if covered[add[j * n + node] * chunks + chunk] == 0:
                port = port_of[j]
                pool[pool_first[port] + pool_size[port]] = what * generators + j
                pool_size[port] += 1
        for j in range(generators):
            port = port_of[j]
            if free[port_link[port]] <= now and pool_size[port] > 0:
                match(
                    par,
                    st,
                    heap,
                    port_of,
                    rows,
                    region,
                    add,
                    covered,
                    pools,
                    path,
                    free,
                    again,
                    sends,
                    port,
                    now,
                )
    return False
