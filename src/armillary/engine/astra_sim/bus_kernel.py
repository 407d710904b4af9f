"""The LogGP bus between an NPU and its memory that all collectives of a rank share (``model-shared-bus``).

Two ends, at the NPU and at the memory, send to each other; the NPU's end moves every request once more over an
inner pair of ends. A chunk step is a request; requests wait in lists in `mem`. Rules: spec 1(i).
"""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import in_variant, inner, use
from armillary.engine.astra_sim import layout as lk

heap_kernel = use("armillary.engine.common.heap_kernel")
push = heap_kernel.push
at_rank = use("armillary.engine.astra_sim.congestion.queue_kernel").at_rank
bus_ends, charges, member_states, requests = accessors(lk.BUS, lk.CHARGE, lk.MEMBER_STATE, lk.REQUEST)
CONTENTION = in_variant("contention")
"""Messages wait for links (`armillary.engine.astra_sim.congestion`)."""


@inner
def timed(prog, st, mem, heap, base, size, tick, delay, code, end):
    """Schedule an event of one end, or of a chunk step; returns the new heap size."""
    if CONTENTION:
        # A chunk step belongs to a member state, every other event of the bus to an end.
        r = member_states.rank(mem, end) if code == lk.EV_CHUNK_STEP else end // lk.ENDS_PER_RANK
        at_rank(prog, st, mem, heap, r, tick + delay, code, end, 0)
        return st[lk.V_HEAP]
    st[lk.V_SEQ] += 1
    return push(heap, base, size, tick + delay, tick, tick, st[lk.V_SEQ], code, end, 0)


@inner
def new_request(st, mem, ticks, then, ref):
    """Return a new request that takes `ticks` on its bus."""
    request = st[lk.V_REQUESTS]
    if request > 0:
        st[lk.V_REQUESTS] = requests.next(mem, request)
    else:
        # Address 0 means none.
        request = max(st[lk.V_MEMBER_STATE], 1)
        st[lk.V_MEMBER_STATE] = request + lk.Q_COLUMNS
    for j in range(lk.Q_COLUMNS):
        mem[request + j] = 0
    requests.set_ticks(mem, request, ticks)
    requests.set_then(mem, request, then)
    requests.set_ref(mem, request, ref)
    return request


@inner
def append(mem, st, head, request):
    """Append a request to the list of an end whose first stands at `head`, its last after it."""
    requests.set_next(mem, request, 0)
    if st[head] == 0:
        st[head] = request
    else:
        requests.set_next(mem, st[head + 1], request)
    st[head + 1] = request


@inner
def take(mem, st, head):
    """Remove the first request of the list of an end."""
    request = st[head]
    st[head] = requests.next(mem, request)
    return request


@inner
def start_send(prog, st, mem, end, tick, heap, base, size):
    """Start the next send of a free end; returns the new heap size."""
    # Partners differ in the last bit, so this is the other end of the pair.
    partner = end ^ 1
    offset = prog[lk.Z_BUS_O]
    # LogGP: two sends in a row are at least g apart; the overhead o covers part of that.
    if bus_ends.previous(st, end) == lk.SENDING:
        since = tick - bus_ends.last(st, end)
        if prog[lk.Z_BUS_O] + since <= prog[lk.Z_BUS_G]:
            offset = prog[lk.Z_BUS_G] - since
    request = take(mem, st, bus_ends.at_sends(st, end, 0))
    append(mem, st, bus_ends.at_receives(st, partner, 0), request)
    bus_ends.add_waiting(st, partner, 1)
    bus_ends.set_previous(st, partner, bus_ends.state(st, partner))
    bus_ends.set_state(st, partner, lk.RECEIVING)
    bus_ends.set_sent(st, partner, 0)
    moved = offset + requests.ticks(mem, request)
    size = timed(
        prog,
        st,
        mem,
        heap,
        base,
        size,
        # The partner receives after L and its own overhead; this end is free again as soon as it has sent.
        tick,
        moved + prog[lk.Z_BUS_L] + prog[lk.Z_BUS_O],
        lk.EV_BUS_RECEIVED,
        end ^ 1,
    )
    bus_ends.set_state(st, end, lk.SENDING)
    return timed(prog, st, mem, heap, base, size, tick, moved, lk.EV_BUS_SENT, end)


@inner
def kick(prog, st, mem, end, tick, heap, base, size):
    """Let a free end with requests send, unless it is its partner's turn; returns the new heap size."""
    if bus_ends.state(st, end) != lk.FREE_END or bus_ends.sends(st, end, 0) == 0:
        return size
    partner = end ^ 1
    # A burst of sends yields to a partner that has requests and has not had its burst.
    if (
        bus_ends.sent(st, end) > lk.BURST
        and bus_ends.sends(st, partner, 0) != 0
        and bus_ends.sent(st, partner) <= lk.BURST
    ):
        if bus_ends.state(st, partner) == lk.FREE_END:
            return start_send(prog, st, mem, end ^ 1, tick, heap, base, size)
        return size
    return start_send(prog, st, mem, end, tick, heap, base, size)


@inner
def through_inner(prog, st, mem, end, side, back, then, request, tick, heap, base, size):
    """Move a request over the inner pair of an outer NPU end, from `side`, and `back`; returns the heap size."""
    moved = new_request(st, mem, requests.inner(mem, request), then, request)
    requests.set_back(mem, moved, back)
    append(mem, st, bus_ends.at_sends(st, end + side, 0), moved)
    return kick(prog, st, mem, end + side, tick, heap, base, size)


@inner
def ask(prog, st, mem, r, charge, owner, tick, heap, base, size):
    """Put the chunk step of `charge` on the bus of rank `r`; returns the new heap size."""
    request = new_request(st, mem, charges.bus(prog, charge), lk.THEN_CHUNK_STEP, owner)
    requests.set_inner(mem, request, charges.inner(prog, charge))
    requests.set_process_ticks(mem, request, charges.process(prog, charge))
    requests.set_reduce(mem, request, charges.reduce(prog, charge))
    requests.set_process(mem, request, charges.reduces(prog, charge))
    requests.set_back(mem, request, 1 if charges.loads(prog, charge) == 2 else 0)
    end = r * lk.ENDS_PER_RANK
    # Data that leaves the NPU first crosses the inner pair at the NPU, then the outer bus.
    if charges.loads(prog, charge) == 0:
        # Side 3 is the inner memory end, 2 the inner NPU end (ENDS_PER_RANK).
        return through_inner(prog, st, mem, end, 3, 0, lk.THEN_SEND, request, tick, heap, base, size)
    # Data from memory starts at the outer memory end.
    append(mem, st, bus_ends.at_sends(st, end + 1, 0), request)
    return kick(prog, st, mem, end + 1, tick, heap, base, size)


@inner
def process_next(prog, st, mem, end, tick, heap, base, size):
    """Start processing the next request of an end if it is idle; returns the new heap size."""
    if bus_ends.processing(st, end) == 0 and bus_ends.process(st, end, 0) != 0:
        bus_ends.set_processing(st, end, 1)
        delay = requests.process_ticks(mem, bus_ends.process(st, end, 0))
        return timed(prog, st, mem, heap, base, size, tick, delay, lk.EV_BUS_PROCESSED, end)
    return size


@inner
def retire(prog, st, mem, request, tick, heap, base, size):
    """A chunk step leaves the bus: it completes now, or after its reduction; returns the new heap size."""
    reduce = requests.reduce(mem, request)
    if reduce > 0:
        size = timed(
            prog, st, mem, heap, base, size, tick, reduce, lk.EV_CHUNK_STEP, requests.ref(mem, request)
        )
    else:
        st[lk.V_THROUGH] = requests.ref(mem, request)
    # Requests are recycled through a free list: every chunk step makes one.
    requests.set_next(mem, request, st[lk.V_REQUESTS])
    st[lk.V_REQUESTS] = request
    return size


@inner
def leave(prog, st, mem, end, request, tick, heap, base, size):
    """A request has been received or processed at an end: send it back, or hand it over."""
    outer = end % lk.ENDS_PER_RANK == 0
    if requests.back(mem, request) == 1:
        requests.set_back(mem, request, 0)
        if outer:
            # Over the inner pair from the NPU's side and back, as what is to be processed does.
            return through_inner(prog, st, mem, end, 2, 1, lk.THEN_SEND, request, tick, heap, base, size)
        append(mem, st, bus_ends.at_sends(st, end, 0), request)
        return size
    if outer:
        return through_inner(prog, st, mem, end, 2, 0, lk.THEN_RETIRE, request, tick, heap, base, size)
    then = requests.then(mem, request)
    if then == lk.THEN_CHUNK_STEP:
        return retire(prog, st, mem, request, tick, heap, base, size)
    # The request moved over the inner pair for the sake of another one, at the outer NPU end.
    other = requests.ref(mem, request)
    requests.set_next(mem, request, st[lk.V_REQUESTS])
    st[lk.V_REQUESTS] = request
    npu = end - end % lk.ENDS_PER_RANK
    if then == lk.THEN_SEND:
        append(mem, st, bus_ends.at_sends(st, npu, 0), other)
    elif then == lk.THEN_PROCESS:
        append(mem, st, bus_ends.at_process(st, npu, 0), other)
        size = process_next(prog, st, mem, npu, tick, heap, base, size)
    else:
        size = retire(prog, st, mem, other, tick, heap, base, size)
    # The outer end has a new request; the caller lets it go on after this event.
    st[lk.V_SERVED] = npu + 1
    return size


@inner
def bus_event(prog, st, mem, code, end, tick, heap, base, size):
    """Handle one event of an end, up to the completion of a chunk step (V_THROUGH); `bus_go_on` does the rest."""
    if code == lk.EV_BUS_SENT:
        bus_ends.set_last(st, end, tick)
        bus_ends.set_previous(st, end, lk.SENDING)
        bus_ends.set_state(st, end, lk.FREE_END)
        bus_ends.add_sent(st, end, 1)
    elif code == lk.EV_BUS_RECEIVED:
        bus_ends.set_last(st, end, tick)
        bus_ends.set_previous(st, end, bus_ends.state(st, end))
        # With more requests in flight to it the end stays busy receiving.
        if bus_ends.waiting(st, end) < 2:
            bus_ends.set_state(st, end, lk.FREE_END)
        bus_ends.add_waiting(st, end, -1)
        request = take(mem, st, bus_ends.at_receives(st, end, 0))
        if requests.process(mem, request) == 1:
            requests.set_process(mem, request, 0)
            if end % lk.ENDS_PER_RANK == 0:
                size = through_inner(
                    prog, st, mem, end, 2, 1, lk.THEN_PROCESS, request, tick, heap, base, size
                )
            else:
                append(mem, st, bus_ends.at_process(st, end, 0), request)
            size = process_next(prog, st, mem, end, tick, heap, base, size)
        else:
            size = leave(prog, st, mem, end, request, tick, heap, base, size)
    else:
        bus_ends.set_processing(st, end, 0)
        request = take(mem, st, bus_ends.at_process(st, end, 0))
        size = leave(prog, st, mem, end, request, tick, heap, base, size)
    return size


@inner
def bus_go_on(prog, st, mem, end, tick, heap, base, size):
    """Let the ends go on after an event of `end`; returns the new heap size."""
    if st[lk.V_SERVED] > 0:
        served = st[lk.V_SERVED] - 1
        st[lk.V_SERVED] = 0
        size = kick(prog, st, mem, served, tick, heap, base, size)
    size = process_next(prog, st, mem, end, tick, heap, base, size)
    return kick(prog, st, mem, end, tick, heap, base, size)
