"""Chunk flows that share ports: a chunk flow is one collective on one line of ranks, or one point-to-point channel.

A chunk flow serves one volume at a time, its *head*. Every port it uses divides its bandwidth by the chunk flows on it
(FAIR), or by those that come first in a global order (ORDERED). The chunk flow's rate is the least over its ports.
That is not max-min fair: bandwidth that a chunk flow cannot use, because another of its ports is the bottleneck, stays
idle. So a change of one port changes the rates on that port only, and no other.

Changes within a tick take effect together at its end (`settle`), so their order does not matter. Volumes and rates are
integers: a rate is rounded down and a finish up, so that no result beats the links.

Chunk batches: the chunks of a collective of one phase, which follow one another through the same ports (see also
`batch_kernel`).

A chunk flow serves them in order and keeps its rate from one to the next. So changes of the rate alone decide when each
chunk ends, and one event stands for the whole batch. Until the rate first changes, the rows of the chunks follow from
start and rate and are not written (WHOLE); from then on they are written chunk by chunk (BROKEN). The result is that of
single chunks, to the tick. The bigger of two chunk sizes come first.
"""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inlined, inner, use
from armillary.engine.physical import layout as lk

put_event = use("armillary.engine.common.heap_kernel").put_event
dirty, dirty_ports, entries, chunk_flows = accessors(lk.DIRTY, lk.DIRTY_PORTS, lk.ENTRY, lk.CHUNK_FLOWS)
line_ports, line_state, lines, port_state = accessors(
    lk.LINE_PORTS, lk.LINE_STATE, lk.LINE_ROWS, lk.PORT_STATE
)
ports, stale, items, phases = accessors(lk.PORTS, lk.STALE, lk.ITEMS, lk.PHASES)
plan_chunks, plans, rows = accessors(lk.CHUNKS, lk.PLANS, lk.ROWS)


@inlined
def phase_of(prog, plan, chunk):
    """Return the phase of a chunk of a plan of one phase."""
    return plan_chunks.phase(prog, plans.chunks(prog, plan) + chunk)


@inlined
def ticks_of(volume, rate):
    """Return the ticks that a volume takes at a rate, rounded up."""
    return (max(volume, 0) + rate - 1) // rate


@inlined
def rest(prog, st, chunk_flow, rate):
    """Return the ticks that the chunks behind the head of a chunk batch take at a rate."""
    plan = items.plan(prog, chunk_flows.item(st, chunk_flow))
    last = chunk_flows.chunks(st, chunk_flow) - 1
    head = chunk_flows.head(st, chunk_flow)
    # Bigger chunks that are still to come.
    bigger = max(0, plans.bigger(prog, plan) - head - 1)
    # Each chunk ends at a whole tick: a sum of rounded times, not a rounded sum. Two products, as there are
    # two sizes.
    ticks = (last - head - bigger) * ticks_of(phases.volume(prog, phase_of(prog, plan, last)), rate)
    if bigger > 0:
        ticks += bigger * ticks_of(phases.volume(prog, phase_of(prog, plan, 0)), rate)
    return ticks


@inner
def advance_chunk_batch(prog, st, chunk_flow, tick):
    """Write the rows of the chunks that ended by a tick at the former rate, and what is then left of the head."""
    rate = chunk_flows.rate(st, chunk_flow)
    since = chunk_flows.since(st, chunk_flow)
    chunk_flows.set_since(st, chunk_flow, tick)
    # Nothing has moved since; the first start or a wait behind others in the global order.
    if rate == 0:
        return
    item = chunk_flows.item(st, chunk_flow)
    plan = items.plan(prog, item)
    last = chunk_flows.chunks(st, chunk_flow) - 1
    row = items.row(prog, item)
    chunk = chunk_flows.head(st, chunk_flow)
    end = since + ticks_of(chunk_flows.remaining(st, chunk_flow), rate)
    # A chunk that ends exactly now still ends at the former rate. The last one ends with its event, in
    # `end_chunk_batch`.
    while chunk < last and end <= tick:
        rows.set_end(st, row + chunk, end + phases.latency(prog, phase_of(prog, plan, chunk)))
        chunk += 1
        rows.set_start(st, row + chunk, end)
        chunk_flows.set_remaining(st, chunk_flow, phases.volume(prog, phase_of(prog, plan, chunk)))
        since = end
        end += ticks_of(chunk_flows.remaining(st, chunk_flow), rate)
    chunk_flows.set_head(st, chunk_flow, chunk)
    # Of the head, only what has moved since it began.
    chunk_flows.add_remaining(st, chunk_flow, -rate * (tick - since))


@inlined
def schedule(st, heap, tick, code, a, b):
    """Put an event on the heap; of events at one tick, the one made first comes first."""
    st[lk.V_SEQUENCE] += 1
    put_event(heap, st[lk.V_HEAP], tick, st[lk.V_SEQUENCE], (a << lk.CODE_BITS) + code, b)
    st[lk.V_HEAP] += 1


@inlined
def code_of(what):
    """Return what happens; `what` shifted by CODE_BITS is to which."""
    return what & ((1 << lk.CODE_BITS) - 1)


@inlined
def room_for(st, heap, events):
    """Tell whether `events` more events fit on the heap; if not, set the status to GROW."""
    if (st[lk.V_HEAP] + events) * lk.HEAP_COLUMNS <= len(heap):
        return True
    if st[lk.V_STATUS] == lk.OK:
        st[lk.V_STATUS] = lk.GROW
        st[lk.V_A] = events
        st[lk.V_B] = 0
    return False


@inlined
def touch_chunk_flow(st, chunk_flow):
    """Mark a chunk flow to be looked at in the second half of the tick."""
    if chunk_flows.dirty(st, chunk_flow) == 0:
        chunk_flows.set_dirty(st, chunk_flow, 1)
        dirty.set_chunk_flow(st, st[lk.V_DIRTY], chunk_flow)
        st[lk.V_DIRTY] += 1


@inner
def touch_ports(prog, st, chunk_flow):
    """Mark the ports of a chunk flow: the rates on them are computed anew at the end of the tick."""
    line = chunk_flows.line(st, chunk_flow)
    first = lines.ports(prog, line)
    for i in range(lines.port_count(prog, line)):
        port = line_ports.port(prog, first + i)
        if port_state.dirty(st, port) == 0:
            port_state.set_dirty(st, port, 1)
            dirty_ports.set_port(st, st[lk.V_PORTS], port)
            st[lk.V_PORTS] += 1


@inner
def room_to_join(prog, st, mem, heap, chunk_flow):
    """Tell whether a chunk flow and those alone on its ports have room for entries and events; if not, set GROW."""
    line = chunk_flows.line(st, chunk_flow)
    first = lines.ports(prog, line)
    # One event for itself, or for each that is alone on one of its ports.
    count = max(1, lines.port_count(prog, line))
    words = lines.port_count(prog, line) * lk.EN_COLUMNS
    for i in range(lines.port_count(prog, line)):
        other = port_state.alone(st, line_ports.port(prog, first + i)) - 1
        if other >= 0:
            words += lines.port_count(prog, chunk_flows.line(st, other)) * lk.EN_COLUMNS
    if max(st[lk.V_ENTRIES], 1) + words <= len(mem) and (st[lk.V_HEAP] + count) * lk.HEAP_COLUMNS <= len(
        heap
    ):
        return True
    # Both at once: what was not asked for may be taken away again, see `base.checked`.
    if st[lk.V_STATUS] == lk.OK:
        st[lk.V_STATUS] = lk.GROW
        st[lk.V_A] = count
        st[lk.V_B] = 1 + words  # address 0 means none
    return False


@inner
def join(prog, st, mem, chunk_flow):
    """Put a chunk flow on its ports."""
    line = chunk_flows.line(st, chunk_flow)
    # All chunk flows of a line use the same number of ports, so blocks of entries are reused by line, whole.
    count = lines.port_count(prog, line)
    entry = line_state.free(st, line)
    if entry > 0:
        line_state.set_free(st, line, entries.next(mem, entry))
    else:
        entry = max(st[lk.V_ENTRIES], 1)  # address 0 means none
        st[lk.V_ENTRIES] = entry + count * lk.EN_COLUMNS
    chunk_flows.set_entry(st, chunk_flow, entry)
    first = lines.ports(prog, line)
    # Doubly linked lists per port, so that a chunk flow leaves each in constant time.
    for i in range(count):
        port = line_ports.port(prog, first + i)
        at = entry + i * lk.EN_COLUMNS
        head = port_state.first(st, port)
        entries.set_chunk_flow(mem, at, chunk_flow)
        entries.set_next(mem, at, head)
        entries.set_previous(mem, at, 0)
        entries.set_weight(mem, at, line_ports.weight(prog, first + i))
        if head > 0:
            entries.set_previous(mem, head, at)
        port_state.set_first(st, port, at)
        # `weight`: a class of ranks may stand for several lines of the machine on this port.
        port_state.add_count(st, port, entries.weight(mem, at))
    touch_ports(prog, st, chunk_flow)


@inner
def leave(prog, st, mem, chunk_flow):
    """Take a chunk flow off its ports."""
    touch_ports(prog, st, chunk_flow)
    line = chunk_flows.line(st, chunk_flow)
    first = lines.ports(prog, line)
    entry = chunk_flows.entry(st, chunk_flow)
    for i in range(lines.port_count(prog, line)):
        port = line_ports.port(prog, first + i)
        at = entry + i * lk.EN_COLUMNS
        before = entries.previous(mem, at)
        after = entries.next(mem, at)
        if before > 0:
            entries.set_next(mem, before, after)
        else:
            port_state.set_first(st, port, after)
        if after > 0:
            entries.set_previous(mem, after, before)
        port_state.add_count(st, port, -entries.weight(mem, at))
    # The first entry links the free list of the line; the others of the block follow it in memory.
    entries.set_next(mem, entry, line_state.free(st, line))
    line_state.set_free(st, line, entry)
    chunk_flows.set_entry(st, chunk_flow, 0)


@inlined
def mark_stale(st, chunk_flow):
    """Mark a chunk flow whose rate must be computed anew: once, however many of its ports have changed."""
    if chunk_flows.dirty(st, chunk_flow) < 2:
        chunk_flows.set_dirty(st, chunk_flow, 2)
        stale.set_chunk_flow(st, st[lk.V_STALE], chunk_flow)
        st[lk.V_STALE] += 1


@inner
def find_first(st, mem, port):
    """Note the lowest place in the global order at a port and how many have it; mark all chunk flows there as stale."""
    priority = key = count = 0
    at = port_state.first(st, port)
    while at > 0:
        chunk_flow = entries.chunk_flow(mem, at)
        mark_stale(st, chunk_flow)
        urgent = chunk_flows.priority(st, chunk_flow)
        place = chunk_flows.key(st, chunk_flow)
        if count == 0 or urgent < priority or (urgent == priority and place < key):
            priority = urgent
            key = place
            count = 0
        # Several may share a place, e.g. collectives that were ready at one tick: they divide the port.
        if urgent == priority and place == key:
            count += entries.weight(mem, at)
        at = entries.next(mem, at)
    port_state.set_priority(st, port, priority)
    port_state.set_key(st, port, key)
    port_state.set_first_count(st, port, count)


@inner
def first_at(st, port, chunk_flow):
    """Return how many chunk flows come first at a port in the global order, 0 if `chunk_flow` is not among them."""
    if chunk_flows.priority(st, chunk_flow) != port_state.priority(st, port) or chunk_flows.key(
        st, chunk_flow
    ) != port_state.key(st, port):
        return 0
    return port_state.first_count(st, port)


@inlined
def rate_of(prog, st, chunk_flow):
    """Return the rate of a chunk flow now: the least that any of its ports gives it."""
    line = chunk_flows.line(st, chunk_flow)
    first = lines.ports(prog, line)
    rate = lk.NEVER
    for i in range(lines.port_count(prog, line)):
        use_of = first + i
        port = line_ports.port(prog, use_of)
        sharers = (
            port_state.count(st, port) if prog[lk.Z_POLICY] == lk.FAIR else first_at(st, port, chunk_flow)
        )
        # ORDERED: others come first at this port, and this one waits for them.
        if sharers == 0:
            return 0
        # At least 1: a rate rounded down to 0 would never end, and no event would say so.
        rate = min(rate, max(1, ports.rate(prog, port) // (line_ports.factor(prog, use_of) * sharers)))
    return rate


@inner
def advance(st, chunk_flow, tick):
    """Account for what a chunk flow has moved since its rate was set."""
    chunk_flows.add_remaining(
        st, chunk_flow, -chunk_flows.rate(st, chunk_flow) * (tick - chunk_flows.since(st, chunk_flow))
    )
    chunk_flows.set_since(st, chunk_flow, tick)


@inner
def update(prog, st, heap, chunk_flow, tick):
    """Give a chunk flow its rate, and schedule the end of its head if that has changed."""
    # It left its ports in this tick.
    if chunk_flows.head(st, chunk_flow) < 0:
        return
    rate = rate_of(prog, st, chunk_flow)
    # The same rate: the end on the heap still holds, and nothing is rounded once more.
    if rate == chunk_flows.rate(st, chunk_flow) and chunk_flows.reset(st, chunk_flow) == 0:
        return
    chunk_batch = chunk_flows.chunks(st, chunk_flow) > 0
    if chunk_batch:
        # A batch that has no rate at its start, or changes it later, needs times for each of its chunks.
        if rate == 0 or chunk_flows.reset(st, chunk_flow) == 0:
            # Until now its rate was that of its start, so that was when the rate was set.
            if chunk_flows.queue(st, chunk_flow) == lk.WHOLE:
                row = items.row(prog, chunk_flows.item(st, chunk_flow))
                rows.set_start(st, row, chunk_flows.since(st, chunk_flow))
            chunk_flows.set_queue(st, chunk_flow, lk.BROKEN)
        advance_chunk_batch(prog, st, chunk_flow, tick)
    else:
        advance(st, chunk_flow, tick)
    chunk_flows.set_reset(st, chunk_flow, 0)
    chunk_flows.set_rate(st, chunk_flow, rate)
    # This makes the end that was scheduled at the former rate void. It stays on the heap: a binary heap cannot
    # remove from its middle cheaply.
    version = chunk_flows.add_version(st, chunk_flow, 1)
    if rate > 0:
        end = tick + ticks_of(chunk_flows.remaining(st, chunk_flow), rate)
        if chunk_batch:
            end += rest(prog, st, chunk_flow, rate)
        schedule(st, heap, end, lk.EV_VOLUME, chunk_flow, version)


@inlined
def start_head(st, chunk_flow, key, volume, tick):
    """Let a chunk flow serve the volume with this key."""
    chunk_flows.set_head(st, chunk_flow, key)
    chunk_flows.set_remaining(st, chunk_flow, volume)
    # At rate 0 until `settle_ports`; `reset` makes `update` schedule an end even if the rate is the last
    # one's.
    chunk_flows.set_rate(st, chunk_flow, 0)
    chunk_flows.set_since(st, chunk_flow, tick)
    chunk_flows.set_reset(st, chunk_flow, 1)


@inner
def settle_ports(prog, st, mem, heap, tick):
    """Give every chunk flow on a changed port its new rate; returns whether there was room for that."""
    for i in range(st[lk.V_PORTS]):
        port = dirty_ports.port(st, i)
        port_state.set_dirty(st, port, 0)
        if prog[lk.Z_POLICY] == lk.ORDERED:
            find_first(st, mem, port)
            continue
        # FAIR: one more or less on a port changes the rate of everyone on it.
        at = port_state.first(st, port)
        while at > 0:
            mark_stale(st, entries.chunk_flow(mem, at))
            at = entries.next(mem, at)
    # Stale marks survive a GROW, so the ports need not be walked again.
    st[lk.V_PORTS] = 0
    # Each stale chunk flow schedules one end at most.
    if not room_for(st, heap, st[lk.V_STALE]):
        return False
    for i in range(st[lk.V_STALE]):
        chunk_flow = stale.chunk_flow(st, i)
        chunk_flows.set_dirty(st, chunk_flow, 0)
        update(prog, st, heap, chunk_flow, tick)
    st[lk.V_STALE] = 0
    return True
