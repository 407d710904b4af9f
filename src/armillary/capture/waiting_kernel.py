"""Kernel: what each node of a rank waits for, by its streams, its events, its communications and its host.

Rows are columns of ``len(rows) // COLUMNS`` numbers. Sets of nodes are lists in `pool`, whose first half holds nodes
and whose second half the place of the next one, -1 at the end; lists share their ends, and none is changed. `main`,
`streams` and `events` have what `armillary.capture.waiting_layout` names.
"""

from __future__ import annotations

from armillary.base.jit import inlined, njit
from armillary.capture.waiting_layout import (
    AT,
    CALL_TAKES,
    CALLED,
    CALLS,
    COLUMNS,
    COMMUNICATION,
    EDGES,
    EPOCH,
    GROW,
    HOST,
    ISSUED,
    JOIN,
    KIND,
    KNOWS,
    LAST,
    MARK,
    MESSAGE,
    MESSAGE_TAKES,
    NODES,
    OPERATOR,
    OWN,
    PENDING,
    POOL,
    PRESENT,
    READ_TAKES,
    RECORD,
    ROOM,
    SHOOK,
    STREAM,
    STREAM_FIELDS,
    SYNCHRONISED,
    WAIT,
    WAITED,
    WAITED_COUNT,
    WAITS,
    WAITS_COUNT,
    WHAT,
)


@inlined
def unmarked(main, mark, node):
    """Mark a node; return whether it was not."""
    if mark[node] == main[MARK]:
        return False
    mark[node] = main[MARK]
    return True


@inlined
def add(main, pool, mark, head, node):
    """Return a list with a node in front of another one, if that is not marked."""
    if not unmarked(main, mark, node):
        return head
    at = main[POOL]
    pool[at] = node
    pool[len(pool) // 2 + at] = head
    main[POOL] += 1
    return at


@inlined
def add_all(main, pool, mark, head, other):
    """Return a list with the nodes of another one in front."""
    while other >= 0:
        head = add(main, pool, mark, head, pool[other])
        other = pool[len(pool) // 2 + other]
    return head


@inlined
def add_stream(main, streams, pool, mark, head, stream):
    """Return a list with what ends before the next node of a stream can start."""
    field = stream * STREAM_FIELDS
    head = add_all(main, pool, mark, head, streams[field + WAITS])
    if streams[field + LAST] >= 0:
        head = add(main, pool, mark, head, streams[field + LAST])
    if streams[field + KNOWS] != main[EPOCH]:
        head = add_all(main, pool, mark, head, main[WAITED])
    return head


@inlined
def length(pool, head):
    """Return how many nodes a list has."""
    found = 0
    while head >= 0:
        found += 1
        head = pool[len(pool) // 2 + head]
    return found


@inlined
def room(main, rows, streams, events):
    """Return how many edges and places of the pool the next row may need at most."""
    n = len(rows) // COLUMNS
    at = main[AT]
    found = 2 * main[WAITED_COUNT] + 8
    stream, kind, what = rows[STREAM * n + at], rows[KIND * n + at], rows[WHAT * n + at]
    if stream >= 0:
        found += streams[stream * STREAM_FIELDS + WAITS_COUNT]
    elif kind == HOST and what < 0:
        for each in range(len(streams) // STREAM_FIELDS):
            found += streams[each * STREAM_FIELDS + WAITS_COUNT] + 1
    if kind in (WAIT, HOST) and what >= 0:
        found += events[2 * what + 1]
    # Nodes of the host wait for all that it has waited for.
    return 2 * found


@inlined
def edges_to(main, pool, edges, node, head):
    """Let a node wait for those of a list."""
    while head >= 0:
        edge(main, edges, node, pool[head])
        head = pool[len(pool) // 2 + head]


@inlined
def edge(main, edges, node, before):
    """Let a node wait for another one."""
    edges[main[EDGES]] = node
    edges[len(edges) // 2 + main[EDGES]] = before
    main[EDGES] += 1


@inlined
def of_host(main, pool, nodes, edges, what, calls, head):
    """Add what the host does next; return its node."""
    node = main[NODES]
    nodes[node] = what
    nodes[len(nodes) // 2 + node] = calls
    main[NODES] += 1
    edges_to(main, pool, edges, node, head)
    if main[ISSUED] >= 0:
        edge(main, edges, node, main[ISSUED])
    main[ISSUED] = node
    return node


@inlined
def hosts_wait(main, streams, events, pool, mark, nodes, edges, stream, what):
    """Let the host wait for an event, a stream, or all streams."""
    main[MARK] += 1
    head = -1
    if what >= 0:
        head = add_all(main, pool, mark, head, events[2 * what])
    elif stream >= 0:
        head = add_stream(main, streams, pool, mark, head, stream)
    else:
        for each in range(len(streams) // STREAM_FIELDS):
            if streams[each * STREAM_FIELDS + LAST] >= 0 or streams[each * STREAM_FIELDS + PRESENT]:
                head = add_stream(main, streams, pool, mark, head, each)
    if head < 0:
        return
    main[WAITED] = add_all(main, pool, mark, head, main[WAITED])
    main[WAITED_COUNT] = length(pool, main[WAITED])
    main[EPOCH] += 1
    if main[READ_TAKES]:
        node = of_host(main, pool, nodes, edges, SYNCHRONISED, 0, main[WAITED])
        only(main, pool, mark, node)


@inlined
def only(main, pool, mark, node):
    """Let this node be all that the host has waited for."""
    main[MARK] += 1
    main[WAITED] = add(main, pool, mark, -1, node)
    main[WAITED_COUNT] = 1


@inlined
def place(main, rows, streams, called, pool, mark, nodes, edges):
    """Add the node of an operator or a communication."""
    n = len(rows) // COLUMNS
    at = main[AT]
    stream, own, kind = rows[STREAM * n + at], rows[OWN * n + at], rows[KIND * n + at]
    # Lists of a node alone are forgotten at once.
    before = main[POOL]
    main[MARK] += 1
    head = add_stream(main, streams, pool, mark, -1, stream)
    if own != stream and streams[own * STREAM_FIELDS + LAST] >= 0:
        head = add(main, pool, mark, head, streams[own * STREAM_FIELDS + LAST])
    if main[CALL_TAKES] and main[PENDING]:
        node = of_host(main, pool, nodes, edges, CALLED, main[PENDING], main[WAITED])
        head = add(main, pool, mark, head, node)
        # Later nodes of the host wait for this one, and with it for what the host has waited for.
        main[PENDING] = 0
        main[WAITED] = -1
        main[WAITED_COUNT] = 0
    node = main[NODES]
    nodes[node] = at
    main[NODES] += 1
    edges_to(main, pool, edges, node, head)
    main[POOL] = before
    field = own * STREAM_FIELDS
    streams[field + LAST] = node
    streams[field + KNOWS] = main[EPOCH]
    streams[field + WAITS] = -1
    streams[field + WAITS_COUNT] = 0
    streams[field + PRESENT] = 0
    if kind == COMMUNICATION:
        called[rows[WHAT * n + at]] = node
        if main[MESSAGE_TAKES] and rows[MESSAGE * n + at]:
            main[MARK] += 1
            head = add(main, pool, mark, -1, node)
            only(main, pool, mark, of_host(main, pool, nodes, edges, SHOOK, 0, head))
            main[EPOCH] += 1


@inlined
def wait(main, streams, pool, mark, stream, other):
    """Let a stream wait for the nodes of a list."""
    field = stream * STREAM_FIELDS
    main[MARK] += 1
    each = streams[field + WAITS]
    while each >= 0:
        mark[pool[each]] = main[MARK]
        each = pool[len(pool) // 2 + each]
    before = main[POOL]
    streams[field + WAITS] = add_all(main, pool, mark, streams[field + WAITS], other)
    streams[field + WAITS_COUNT] += main[POOL] - before
    streams[field + PRESENT] = 1


@njit
def follow(main, rows, streams, events, called, pool, mark, nodes, edges):
    """Go through the rows; return 0 at their end, `GROW` if `edges` and `pool` have not `main[ROOM]` more places."""
    n = len(rows) // COLUMNS
    while main[AT] < n:
        at = main[AT]
        main[ROOM] = room(main, rows, streams, events)
        free = min(len(edges) // 2 - main[EDGES], len(pool) // 2 - main[POOL])
        if free < main[ROOM]:
            return GROW
        kind, what, stream = rows[KIND * n + at], rows[WHAT * n + at], rows[STREAM * n + at]
        main[PENDING] += rows[CALLS * n + at]
        if kind in (OPERATOR, COMMUNICATION):
            place(main, rows, streams, called, pool, mark, nodes, edges)
        elif kind == RECORD:
            main[MARK] += 1
            events[2 * what] = add_stream(main, streams, pool, mark, -1, stream)
            events[2 * what + 1] = length(pool, events[2 * what])
        elif kind == WAIT:
            wait(main, streams, pool, mark, stream, events[2 * what])
        elif kind == JOIN:
            if called[what] >= 0:
                main[MARK] += 1
                # A list of one, which `wait` takes over.
                head = add(main, pool, mark, -1, called[what])
                wait(main, streams, pool, mark, stream, head)
        elif kind == HOST:
            hosts_wait(main, streams, events, pool, mark, nodes, edges, stream, what)
        main[AT] += 1
    return 0
