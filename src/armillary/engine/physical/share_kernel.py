"""Lanes that share ports: a lane is one collective on one line of ranks, or one point-to-point channel.

A lane serves one volume at a time, its *head*. Every port it uses divides its bandwidth by the lanes on it
(FAIR), or by those that come first in a global order (ORDERED). The lane's rate is the
least over its ports. Changes within a tick take effect together at its end (`settle`), so their order does not
matter. Volumes and rates are integers: a rate is rounded down, a finish is rounded up.
"""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner, use
from armillary.engine.physical import layout as lk

push = use("armillary.engine.common.heap_kernel").push
train_kernel = use("armillary.engine.physical.train_kernel")
advance_train, rest, ticks_of = train_kernel.advance_train, train_kernel.rest, train_kernel.ticks_of
dirty, dirty_ports, entries, lanes = accessors(lk.DIRTY, lk.DIRTY_PORTS, lk.ENTRY, lk.LANES)
line_ports, line_state, lines, port_state = accessors(
    lk.LINE_PORTS, lk.LINE_STATE, lk.LINE_ROWS, lk.PORT_STATE
)
ports, stale = accessors(lk.PORTS, lk.STALE)


@inner
def schedule(st, heap, tick, code, a, b):
    """Put an event on the heap; within a tick the first made is the first."""
    st[lk.V_SEQUENCE] += 1
    st[lk.V_HEAP] = push(heap, 0, st[lk.V_HEAP], tick, 0, 0, st[lk.V_SEQUENCE], code, a, b)


@inner
def room_for(st, heap, events):
    """Tell whether so many more events fit; else ask for room."""
    if (st[lk.V_HEAP] + events) * lk.HEAP_COLUMNS <= len(heap):
        return True
    if st[lk.V_STATUS] == lk.OK:
        st[lk.V_STATUS] = lk.GROW
        st[lk.V_A] = events
        st[lk.V_B] = 0
    return False


@inner
def touch_lane(st, lane):
    """Have the lane looked at when the tick ends."""
    if lanes.dirty(st, lane) == 0:
        lanes.set_dirty(st, lane, 1)
        dirty.set_lane(st, st[lk.V_DIRTY], lane)
        st[lk.V_DIRTY] += 1


@inner
def touch_ports(prog, st, lane):
    """Have the ports of a lane looked at when the tick ends."""
    line = lanes.line(st, lane)
    first = lines.ports(prog, line)
    for i in range(lines.port_count(prog, line)):
        port = line_ports.port(prog, first + i)
        if port_state.dirty(st, port) == 0:
            port_state.set_dirty(st, port, 1)
            dirty_ports.set_port(st, st[lk.V_PORTS], port)
            st[lk.V_PORTS] += 1


@inner
def room_to_join(prog, st, mem, lane):
    """Tell whether there are entries for the ports of a lane; else ask for room."""
    line = lanes.line(st, lane)
    words = lines.port_count(prog, line) * lk.EN_COLUMNS
    if line_state.free(st, line) > 0 or max(st[lk.V_ENTRIES], 1) + words <= len(mem):
        return True
    if st[lk.V_STATUS] == lk.OK:
        st[lk.V_STATUS] = lk.GROW
        st[lk.V_A] = 0
        st[lk.V_B] = 1 + words  # address 0 means none
    return False


@inner
def join(prog, st, mem, lane):
    """Put a lane on its ports."""
    line = lanes.line(st, lane)
    count = lines.port_count(prog, line)
    entry = line_state.free(st, line)
    if entry > 0:
        line_state.set_free(st, line, entries.next(mem, entry))
    else:
        entry = max(st[lk.V_ENTRIES], 1)  # address 0 means none
        st[lk.V_ENTRIES] = entry + count * lk.EN_COLUMNS
    lanes.set_entry(st, lane, entry)
    first = lines.ports(prog, line)
    for i in range(count):
        port = line_ports.port(prog, first + i)
        at = entry + i * lk.EN_COLUMNS
        head = port_state.first(st, port)
        entries.set_lane(mem, at, lane)
        entries.set_next(mem, at, head)
        entries.set_previous(mem, at, 0)
        entries.set_weight(mem, at, line_ports.weight(prog, first + i))
        if head > 0:
            entries.set_previous(mem, head, at)
        port_state.set_first(st, port, at)
        port_state.add_count(st, port, entries.weight(mem, at))
    touch_ports(prog, st, lane)


@inner
def leave(prog, st, mem, lane):
    """Take a lane off its ports."""
    touch_ports(prog, st, lane)
    line = lanes.line(st, lane)
    first = lines.ports(prog, line)
    entry = lanes.entry(st, lane)
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
    entries.set_next(mem, entry, line_state.free(st, line))
    line_state.set_free(st, line, entry)
    lanes.set_entry(st, lane, 0)


@inner
def mark_stale(st, lane):
    """Have the rate of a lane computed anew, once, however many of its ports have changed."""
    if lanes.dirty(st, lane) < 2:
        lanes.set_dirty(st, lane, 2)
        stale.set_lane(st, st[lk.V_STALE], lane)
        st[lk.V_STALE] += 1


@inner
def find_first(st, mem, port):
    """Note which place in the global order comes first at a port, and how many lanes have it; mark all its lanes."""
    key = lk.NEVER
    count = 0
    at = port_state.first(st, port)
    while at > 0:
        lane = entries.lane(mem, at)
        mark_stale(st, lane)
        other = lanes.key(st, lane)
        if other < key:
            key = other
            count = 0
        if other == key:
            count += entries.weight(mem, at)
        at = entries.next(mem, at)
    port_state.set_key(st, port, key)
    port_state.set_first_count(st, port, count)


@inner
def first_at(st, port, lane):
    """Return how many lanes come first at a port in the global order, 0 if `lane` is not among them."""
    return port_state.first_count(st, port) if lanes.key(st, lane) == port_state.key(st, port) else 0


@inner
def rate_of(prog, st, lane):
    """Return the rate of a lane now: the least that any of its ports gives it."""
    line = lanes.line(st, lane)
    first = lines.ports(prog, line)
    rate = lk.NEVER
    for i in range(lines.port_count(prog, line)):
        use_of = first + i
        port = line_ports.port(prog, use_of)
        sharers = port_state.count(st, port) if prog[lk.Z_POLICY] == lk.FAIR else first_at(st, port, lane)
        if sharers == 0:
            return 0
        # Never 0 for want of digits: that lane would wait for ever.
        rate = min(rate, max(1, ports.rate(prog, port) // (line_ports.factor(prog, use_of) * sharers)))
    return rate


@inner
def advance(st, lane, tick):
    """Account for what a lane has moved since its rate was set."""
    lanes.add_remaining(st, lane, -lanes.rate(st, lane) * (tick - lanes.since(st, lane)))
    lanes.set_since(st, lane, tick)


@inner
def update(prog, st, heap, lane, tick):
    """Give a lane its rate, and schedule the end of its head if that has changed."""
    if lanes.head(st, lane) < 0:
        return
    rate = rate_of(prog, st, lane)
    if rate == lanes.rate(st, lane) and lanes.reset(st, lane) == 0:
        return
    train = lanes.chunks(st, lane) > 0
    if train:
        if rate == 0 or lanes.reset(st, lane) == 0:
            lanes.set_queue(st, lane, lk.BROKEN)
        advance_train(prog, st, lane, tick)
    else:
        advance(st, lane, tick)
    lanes.set_reset(st, lane, 0)
    lanes.set_rate(st, lane, rate)
    # An end that was scheduled at the rate before is void; it stays on the heap until it is due.
    version = lanes.add_version(st, lane, 1)
    if rate > 0:
        end = tick + ticks_of(lanes.remaining(st, lane), rate)
        if train:
            end += rest(prog, st, lane, rate)
        schedule(st, heap, end, lk.EV_VOLUME, lane, version)


@inner
def start_head(st, lane, key, volume, tick):
    """Let a lane serve the volume with this key."""
    lanes.set_head(st, lane, key)
    lanes.set_remaining(st, lane, volume)
    lanes.set_rate(st, lane, 0)
    lanes.set_since(st, lane, tick)
    lanes.set_reset(st, lane, 1)


@inner
def settle_ports(prog, st, mem, heap, tick):
    """Give every lane on a changed port its new rate; returns whether there was room for that."""
    for i in range(st[lk.V_PORTS]):
        port = dirty_ports.port(st, i)
        port_state.set_dirty(st, port, 0)
        if prog[lk.Z_POLICY] == lk.ORDERED:
            find_first(st, mem, port)
            continue
        at = port_state.first(st, port)
        while at > 0:
            mark_stale(st, entries.lane(mem, at))
            at = entries.next(mem, at)
    st[lk.V_PORTS] = 0
    if not room_for(st, heap, st[lk.V_STALE]):
        return False
    for i in range(st[lk.V_STALE]):
        lane = stale.lane(st, i)
        lanes.set_dirty(st, lane, 0)
        update(prog, st, heap, lane, tick)
    st[lk.V_STALE] = 0
    return True
