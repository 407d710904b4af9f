"""Messages of a synthesised schedule: each leaves when its data is there and its turn on its port has come.

A schedule has two phases, scatter (reduce) and gather (copy), each with its own order on every port; a port is a
link by which messages leave an NPU. A message waits until its NPU has received `need` messages with its chunk. As in
the loop of workloads, messages leave at whole ticks, and arrivals within a tick are processed at its end.
"""

from __future__ import annotations

from armillary.base.jit import inner, njit, use
from armillary.engine.messages import plan_layout as pk
from armillary.engine.transport import layout as lk

queues = use("armillary.engine.transport.queue_kernel")
full, take_delivered = queues.full, queues.take_delivered
mover = use("armillary.engine.transport.chosen_kernel")
inject, advance = mover.inject, mover.advance
events = use("armillary.collective.synthesis.event_kernel")
push, pop = events.push, events.pop
S_HEAP, H_COLUMNS = events.S_HEAP, events.H_COLUMNS


@inner
def touch(st, dirty, marked, node):
    """Mark an NPU whose ports must be looked at before time advances."""
    if marked[node] == 0:
        marked[node] = 1
        dirty[st[pk.S_DIRTY]] = node
        st[pk.S_DIRTY] += 1


@inner
def arrive(st, scatter, gather, target, owner, dirty, marked, cookie, now):
    """Count a message as used, that is received and added up; its NPU may now have the data of others."""
    st[pk.S_RECEIVED] += 1
    st[pk.S_LAST] = max(st[pk.S_LAST], now)
    # Cookies number the messages of the scatter first, then those of the gather.
    count = len(scatter[pk.A_CHUNK])
    if cookie < count:
        chunk = scatter[pk.A_CHUNK][cookie]
        node = target[scatter[pk.A_EDGE][cookie]]
        at = node * st[pk.S_CHUNKS] + chunk
        scatter[pk.A_NEED][at] -= 1
        ready = scatter[pk.A_NEED][at] == 0
        # At the owner of a chunk the gather begins with the sum, so it waits for the same messages as the scatter.
        if owner[chunk] == node:
            gather[pk.A_NEED][at] -= 1
    else:
        chunk = gather[pk.A_CHUNK][cookie - count]
        node = target[gather[pk.A_EDGE][cookie - count]]
        at = node * st[pk.S_CHUNKS] + chunk
        gather[pk.A_NEED][at] -= 1
        ready = gather[pk.A_NEED][at] == 0
    if ready:
        touch(st, dirty, marked, node)


@inner
def receive(st, heap, scatter, gather, target, owner, dirty, marked, busy, cookie, now):
    """The network has delivered a message; an NPU adds one after the other."""
    at = now + st[pk.S_DELAY]
    if cookie < len(scatter[pk.A_CHUNK]) and st[pk.S_REDUCE] > 0:
        node = target[scatter[pk.A_EDGE][cookie]]
        # A node adds up one message after the other.
        at = max(at, busy[node]) + st[pk.S_REDUCE]
        busy[node] = at
    if at > now:
        push(st, heap, at, cookie)
    else:
        arrive(st, scatter, gather, target, owner, dirty, marked, cookie, now)


@inner
def leave(st, table, net, pool, queue, phase, first_cookie, port, node, size, now):
    """Let messages of a port leave, in order, while their data is there; returns False if a table must grow first."""
    first, after, order, edge, chunk, need = phase
    while after[port] < first[port + 1]:
        number = order[after[port]]
        # Head of line: no later message overtakes, even if its data is there. The order is what was
        # synthesised.
        if need[node * st[pk.S_CHUNKS] + chunk[number]] > 0:
            return True
        if full(net):
            return False
        inject(table, net, pool, queue, first_cookie + number, edge[number], size, 0, now)
        after[port] += 1
    return True


@inner
def start(st, table, net, pool, queue, scatter, gather, node_first, dirty, marked, size):
    """Let every message leave that can; returns False if a table must grow first."""
    count = len(scatter[pk.A_CHUNK])
    while st[pk.S_DIRTY] > 0:
        # Removed from the list only when all its ports are done, so that a retry begins with the same node.
        node = dirty[st[pk.S_DIRTY] - 1]
        for port in range(node_first[node], node_first[node + 1]):
            if not leave(st, table, net, pool, queue, scatter, 0, port, node, size, st[pk.S_TICK]):
                return False
            # A port turns to the gather only after its last message of the scatter.
            if scatter[pk.A_NEXT][port] == scatter[pk.A_FIRST][port + 1] and not leave(
                st, table, net, pool, queue, gather, count, port, node, size, st[pk.S_TICK]
            ):
                return False
        marked[node] = 0
        st[pk.S_DIRTY] -= 1
    return True


@njit
def run(
    table, net, pool, queue, st, heap, scatter, gather, target, owner, node_first, dirty, marked, busy, size
):
    """Run until nothing can happen any more (returns False) or a table must grow (returns True, then call again)."""
    net[lk.N_STATUS] = lk.OK
    while True:
        # S_COLLECT is 1 between the first delivery of a tick and its end: a retry must not start messages
        # there.
        if st[pk.S_COLLECT] == 0:
            if not start(st, table, net, pool, queue, scatter, gather, node_first, dirty, marked, size):
                return True
            limit = lk.FOREVER
            if st[S_HEAP] > 0:
                limit = heap[0]
            at = advance(table, net, pool, queue, limit)
            if net[lk.N_STATUS] != lk.OK:
                return True
            if at == lk.FOREVER:
                return False
            # Up to the next whole tick, still in ps.
            st[pk.S_TICK] = (at + lk.PS - 1) // lk.PS * lk.PS
            st[pk.S_COLLECT] = 1
        end = st[pk.S_TICK]
        while net[lk.N_NOW] < end or net[lk.N_DELIVERED] > 0:
            cookie = 0
            while cookie >= 0:
                # A delivered message makes one event at most.
                if (st[S_HEAP] + 1) * H_COLUMNS > len(heap):
                    return True
                cookie = take_delivered(net, pool)
                if cookie >= 0:
                    receive(st, heap, scatter, gather, target, owner, dirty, marked, busy, cookie, end)
            advance(table, net, pool, queue, end)
            if net[lk.N_STATUS] != lk.OK:
                return True
        # From here on the heap only shrinks until the next tick: no more checks for room.
        st[pk.S_COLLECT] = 0
        while st[S_HEAP] > 0 and heap[0] <= end:
            arrive(st, scatter, gather, target, owner, dirty, marked, pop(st, heap), end)
