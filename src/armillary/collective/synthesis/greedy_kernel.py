"""All-gather on any graph: whenever a link is free, it takes a chunk that its far end, or the part behind it, lacks.

Time is expanded by events, not by steps (TACOS, Won et al., MICRO 2024, expands by steps of the fastest link): a port,
the link by which messages leave an NPU, is matched when it becomes free, and when something comes to an idle one. Of
the chunks that can be sent, the first at or after a random one is taken, of several draws the one with the fewest
copies.

Sets of chunks are rows of 32 bits per word. Row v of `want` is what NPU v neither has nor is sent; more rows stand for
regions, NPUs that faster links join: a slow link into one takes what nobody in it has.
"""

from __future__ import annotations

from armillary.base.jit import inner, njit, use

events = use("armillary.collective.synthesis.event_kernel")
push, pop, draw, clear_at, hold = events.push, events.pop, events.draw, events.clear_at, events.hold
S_HEAP, S_SENDS, S_MISSING, S_END = events.S_HEAP, events.S_SENDS, events.S_MISSING, events.S_END
H_WHAT, H_COLUMNS = events.H_WHAT, events.H_COLUMNS

# Sizes and options: chunks, words of a row, draws per choice, whether slow links may bring what a region has,
# ps between arrival and use
P_CHUNKS, P_WORDS, P_DRAWS, P_LOOSE, P_AFTER = range(5)


@inner
def lowest(word):
    """Return the number of the lowest bit that is set."""
    bit = 0
    if word & 0xFFFF == 0:
        bit += 16
        word >>= 16
    if word & 0xFF == 0:
        bit += 8
        word >>= 8
    if word & 0xF == 0:
        bit += 4
        word >>= 4
    if word & 0x3 == 0:
        bit += 2
        word >>= 2
    return bit + 1 - (word & 1)


@inner
def common(have, a, want, b, words, start):
    """Return the first chunk at or cyclically after `start` that is in row a of one and row b of the other, or -1."""
    first = start >> 5
    # Bits below `start` are cleared: the search begins within the word.
    word = (have[a + first] & want[b + first]) >> (start & 31) << (start & 31)
    if word != 0:
        return first * 32 + lowest(word)
    for i in range(1, words):
        at = first + i
        if at >= words:
            at -= words
        word = have[a + at] & want[b + at]
        if word != 0:
            return at * 32 + lowest(word)
    # Once round: the low bits of the first word, too.
    word = have[a + first] & want[b + first]
    if word != 0:
        return first * 32 + lowest(word)
    return -1


@inner
def choose(par, st, have, want, copies, node, row):
    """Return a chunk that `node` has and `row` wants, or -1."""
    words = par[P_WORDS]
    best = common(have, node * words, want, row * words, words, draw(st, par[P_CHUNKS]))
    if best < 0:
        return -1
    for _ in range(1, par[P_DRAWS]):
        other = common(have, node * words, want, row * words, words, draw(st, par[P_CHUNKS]))
        # The fewest copies: rarest first, as in BitTorrent.
        if copies[other] < copies[best]:
            best = other
    return best


@inner
def wants(par, want, row, chunk):
    """Tell whether `chunk` is in a row."""
    return (want[row * par[P_WORDS] + (chunk >> 5)] >> (chunk & 31)) & 1 == 1


@inner
def start_send(par, st, heap, graph, want, copies, free, sends, entry, chunk, now):
    """Let an entry carry a chunk from now on."""
    port, target, _, rows_first, rows, path_first, path, duration, latency = graph
    first = path_first[entry]
    arrival = hold(free, path, first, path_first[entry + 1], duration, latency, now) + par[P_AFTER]
    node = target[entry]
    # The target and all regions it is in are served: nobody else sends them this chunk.
    for i in range(rows_first[node], rows_first[node + 1]):
        want[rows[i] * par[P_WORDS] + (chunk >> 5)] &= ~(1 << (chunk & 31))
    copies[chunk] += 1
    out_entry, out_chunk, out_start = sends
    number = st[S_SENDS]
    out_entry[number] = entry
    out_chunk[number] = chunk
    out_start[number] = now
    st[S_SENDS] = number + 1
    st[S_MISSING] -= 1
    st[S_END] = max(st[S_END], arrival)
    # Negative events are ports that become free; others are arrivals.
    push(st, heap, arrival, node * par[P_CHUNKS] + chunk)
    push(st, heap, free[path[first]], -1 - port[entry])


@inner
def match(par, st, heap, ports, graph, have, want, copies, free, again, sends, one, node, now):
    """Let an idle port of `node` take chunk `one`, or any if that is -1, if there is something to take."""
    port_first, port_entry, at = ports
    _, target, region, _, _, path_first, path, _, latency = graph
    first, count = port_first[at], port_first[at + 1] - port_first[at]
    # A random start spreads the use of a port's edges evenly.
    turn = draw(st, count) if count > 1 else 0
    ask = -1
    # First what regions lack; then, if allowed, what only the target lacks.
    for rank in range(2 if par[P_LOOSE] == 1 else 1):
        for i in range(count):
            place = turn + i
            if place >= count:
                place -= count
            entry = port_entry[first + place]
            row = region[entry] if rank == 0 else target[entry]
            if rank == 1 and row == region[entry]:
                continue
            if count > 1:
                when = clear_at(free, path, path_first[entry], path_first[entry + 1], latency, now)
                if when > now:
                    ask = when if ask < 0 else min(ask, when)
                    continue
            chunk = one
            if one >= 0:
                if not wants(par, want, row, one):
                    continue
            else:
                chunk = choose(par, st, have, want, copies, node, row)
                if chunk < 0:
                    continue
            start_send(par, st, heap, graph, want, copies, free, sends, entry, chunk, now)
            return
    # Ask again when the first busy path is free, unless that is scheduled already.
    if ask > 0 and (again[at] <= now or ask < again[at]):
        again[at] = ask
        push(st, heap, ask, -1 - at)


@njit
def run(
    par,
    st,
    heap,
    node_first,
    port_first,
    port_entry,
    port_source,
    graph,
    have,
    want,
    copies,
    free,
    again,
    sends,
):
    """Fill `sends` until nothing is missing or nothing can happen any more; returns whether the heap is too short.

    Then it is called again, with a longer one. A port that is matched makes two events at most.
    Ports of a node have consecutive numbers. `graph` is (port, target, region row of an entry, rows that hold a node:
    first and rows, links of an entry: first and links, ps per chunk and ps of latency of a link).
    """
    path_first, path = graph[5], graph[6]
    while st[S_HEAP] > 0 and st[S_MISSING] > 0:
        now = heap[0]
        what = heap[H_WHAT]
        node = what // par[P_CHUNKS]
        ports_touched = 1 if what < 0 else node_first[node + 1] - node_first[node]
        if (st[S_HEAP] + 2 * ports_touched) * H_COLUMNS > len(heap):
            return True
        pop(st, heap)
        if what < 0:
            port = -1 - what
            if free[path[path_first[port_entry[port_first[port]]]]] <= now:
                ports = (port_first, port_entry, port)
                match(
                    par,
                    st,
                    heap,
                    ports,
                    graph,
                    have,
                    want,
                    copies,
                    free,
                    again,
                    sends,
                    -1,
                    port_source[port],
                    now,
                )
            continue
        chunk = what % par[P_CHUNKS]
        have[node * par[P_WORDS] + (chunk >> 5)] |= 1 << (chunk & 31)
        for port in range(node_first[node], node_first[node + 1]):
            if free[path[path_first[port_entry[port_first[port]]]]] <= now:
                ports = (port_first, port_entry, port)
                match(par, st, heap, ports, graph, have, want, copies, free, again, sends, chunk, node, now)
    return False
