"""The LogGP bus between an NPU and its memory that all collectives of a rank share (``model-shared-bus``).

Two ends, at the NPU and at the memory, send to each other; the NPU's end moves everything once more over an
inner pair of ends. A bundle is a request; requests wait in lists of `mem`. Rules: spec 1(i).
"""

from __future__ import annotations

from armillary.base.jit import in_variant, inner, use
from armillary.engine.common.layout_kernel import *

heaps = use("armillary.engine.common.heap_kernel")
push = heaps.push
at_rank = use("armillary.engine.astra_sim.congestion.queue_kernel").at_rank
CONTENTION = in_variant("contention")
"""Messages wait for links (`armillary.engine.astra_sim.congestion`)."""


@inner
def timed(prog, st, mem, heap, base, size, tick, delay, code, end):
    """Schedule an event of one end, or of a bundle; returns the new heap size."""
    if CONTENTION:
        r = mem[end + M_RANK] if code == EV_BUNDLE else end // ENDS_PER_RANK
        at_rank(prog, st, mem, heap, r, tick + delay, code, end, 0)
        return st[V_HEAP]
    st[V_SEQ] += 1
    return push(heap, base, size, tick + delay, tick, tick, st[V_SEQ], code, end, 0)


@inner
def new_request(st, mem, ticks, then, ref):
    """Return a new request that takes `ticks` on its bus."""
    request = st[V_REQUESTS]
    if request > 0:
        st[V_REQUESTS] = mem[request + Q_NEXT]
    else:
        # Address 0 means none.
        request = max(st[V_MACHINE], 1)
        st[V_MACHINE] = request + Q_COLUMNS
    for j in range(Q_COLUMNS):
        mem[request + j] = 0
    mem[request + Q_TICKS] = ticks
    mem[request + Q_THEN] = then
    mem[request + Q_REF] = ref
    return request


@inner
def append(st, mem, at, column, request):
    """Append a request to a list of an end."""
    mem[request + Q_NEXT] = 0
    if st[at + column] == 0:
        st[at + column] = request
    else:
        mem[st[at + column + 1] + Q_NEXT] = request
    st[at + column + 1] = request


@inner
def take(st, mem, at, column):
    """Remove the first request of a list of an end."""
    request = st[at + column]
    st[at + column] = mem[request + Q_NEXT]
    return request


@inner
def start_send(prog, st, mem, end, tick, heap, base, size):
    """Start the next send of a free end; returns the new heap size."""
    at = st[BUS] + end * E_COLUMNS
    partner = st[BUS] + (end ^ 1) * E_COLUMNS
    offset = prog[Z_BUS_O]
    if st[at + E_PREVIOUS] == SENDING:
        since = tick - st[at + E_LAST]
        if prog[Z_BUS_O] + since <= prog[Z_BUS_G]:
            offset = prog[Z_BUS_G] - since
    request = take(st, mem, at, E_SENDS)
    append(st, mem, partner, E_RECEIVES, request)
    st[partner + E_WAITING] += 1
    st[partner + E_PREVIOUS] = st[partner + E_STATE]
    st[partner + E_STATE] = RECEIVING
    st[partner + E_SENT] = 0
    moved = offset + mem[request + Q_TICKS]
    size = timed(
        prog, st, mem, heap, base, size, tick, moved + prog[Z_BUS_L] + prog[Z_BUS_O], EV_BUS_RECEIVED, end ^ 1
    )
    st[at + E_STATE] = SENDING
    return timed(prog, st, mem, heap, base, size, tick, moved, EV_BUS_SENT, end)


@inner
def kick(prog, st, mem, end, tick, heap, base, size):
    """Let a free end with requests send, unless it is its partner's turn; returns the new heap size."""
    at = st[BUS] + end * E_COLUMNS
    if st[at + E_STATE] != FREE_END or st[at + E_SENDS] == 0:
        return size
    partner = st[BUS] + (end ^ 1) * E_COLUMNS
    if st[at + E_SENT] > BURST and st[partner + E_SENDS] != 0 and st[partner + E_SENT] <= BURST:
        if st[partner + E_STATE] == FREE_END:
            return start_send(prog, st, mem, end ^ 1, tick, heap, base, size)
        return size
    return start_send(prog, st, mem, end, tick, heap, base, size)


@inner
def through_inner(prog, st, mem, end, side, back, then, request, tick, heap, base, size):
    """Move a request over the inner pair of an outer NPU end, from `side`, and `back`; returns the heap size."""
    moved = new_request(st, mem, mem[request + Q_INNER], then, request)
    mem[moved + Q_BACK] = back
    append(st, mem, st[BUS] + (end + side) * E_COLUMNS, E_SENDS, moved)
    return kick(prog, st, mem, end + side, tick, heap, base, size)


@inner
def ask(prog, st, mem, r, charge, owner, tick, heap, base, size):
    """Put the bundle of `charge` on the bus of rank `r`; returns the new heap size."""
    request = new_request(st, mem, prog[charge + CH_BUS], THEN_BUNDLE, owner)
    mem[request + Q_INNER] = prog[charge + CH_INNER]
    mem[request + Q_PROCESS_TICKS] = prog[charge + CH_PROCESS]
    mem[request + Q_REDUCE] = prog[charge + CH_REDUCE]
    mem[request + Q_PROCESS] = prog[charge + CH_REDUCES]
    mem[request + Q_BACK] = 1 if prog[charge + CH_LOADS] == 2 else 0
    end = r * ENDS_PER_RANK
    if prog[charge + CH_LOADS] == 0:
        return through_inner(prog, st, mem, end, 3, 0, THEN_SEND, request, tick, heap, base, size)
    append(st, mem, st[BUS] + (end + 1) * E_COLUMNS, E_SENDS, request)
    return kick(prog, st, mem, end + 1, tick, heap, base, size)


@inner
def process_next(prog, st, mem, end, tick, heap, base, size):
    """Start processing the next request of an end if it is idle; returns the new heap size."""
    at = st[BUS] + end * E_COLUMNS
    if st[at + E_PROCESSING] == 0 and st[at + E_PROCESS] != 0:
        st[at + E_PROCESSING] = 1
        delay = mem[st[at + E_PROCESS] + Q_PROCESS_TICKS]
        return timed(prog, st, mem, heap, base, size, tick, delay, EV_BUS_PROCESSED, end)
    return size


@inner
def retire(prog, st, mem, request, tick, heap, base, size):
    """A bundle is through: it completes now, or after its reduction; returns the new heap size."""
    reduce = mem[request + Q_REDUCE]
    if reduce > 0:
        size = timed(prog, st, mem, heap, base, size, tick, reduce, EV_BUNDLE, mem[request + Q_REF])
    else:
        st[V_THROUGH] = mem[request + Q_REF]
    mem[request + Q_NEXT] = st[V_REQUESTS]
    st[V_REQUESTS] = request
    return size


@inner
def leave(prog, st, mem, end, request, tick, heap, base, size):
    """A request has been received or processed at an end: send it back, or hand it over."""
    outer = end % ENDS_PER_RANK == 0
    if mem[request + Q_BACK] == 1:
        mem[request + Q_BACK] = 0
        if outer:
            # Over the inner pair from the NPU's side and back, as what is to be processed does.
            return through_inner(prog, st, mem, end, 2, 1, THEN_SEND, request, tick, heap, base, size)
        append(st, mem, st[BUS] + end * E_COLUMNS, E_SENDS, request)
        return size
    if outer:
        return through_inner(prog, st, mem, end, 2, 0, THEN_RETIRE, request, tick, heap, base, size)
    then = mem[request + Q_THEN]
    if then == THEN_BUNDLE:
        return retire(prog, st, mem, request, tick, heap, base, size)
    # The request moved over the inner pair for the sake of another one, at the outer NPU end.
    other = mem[request + Q_REF]
    mem[request + Q_NEXT] = st[V_REQUESTS]
    st[V_REQUESTS] = request
    npu = end - end % ENDS_PER_RANK
    at = st[BUS] + npu * E_COLUMNS
    if then == THEN_SEND:
        append(st, mem, at, E_SENDS, other)
    elif then == THEN_PROCESS:
        append(st, mem, at, E_PROCESS, other)
        size = process_next(prog, st, mem, npu, tick, heap, base, size)
    else:
        size = retire(prog, st, mem, other, tick, heap, base, size)
    st[V_SERVED] = npu + 1
    return size


@inner
def bus_event(prog, st, mem, code, end, tick, heap, base, size):
    """Handle one event of an end, up to the completion of a bundle (V_THROUGH); `bus_go_on` does the rest."""
    at = st[BUS] + end * E_COLUMNS
    if code == EV_BUS_SENT:
        st[at + E_LAST] = tick
        st[at + E_PREVIOUS] = SENDING
        st[at + E_STATE] = FREE_END
        st[at + E_SENT] += 1
    elif code == EV_BUS_RECEIVED:
        st[at + E_LAST] = tick
        st[at + E_PREVIOUS] = st[at + E_STATE]
        if st[at + E_WAITING] < 2:
            st[at + E_STATE] = FREE_END
        st[at + E_WAITING] -= 1
        request = take(st, mem, at, E_RECEIVES)
        if mem[request + Q_PROCESS] == 1:
            mem[request + Q_PROCESS] = 0
            if end % ENDS_PER_RANK == 0:
                size = through_inner(prog, st, mem, end, 2, 1, THEN_PROCESS, request, tick, heap, base, size)
            else:
                append(st, mem, at, E_PROCESS, request)
            size = process_next(prog, st, mem, end, tick, heap, base, size)
        else:
            size = leave(prog, st, mem, end, request, tick, heap, base, size)
    else:
        st[at + E_PROCESSING] = 0
        request = take(st, mem, at, E_PROCESS)
        size = leave(prog, st, mem, end, request, tick, heap, base, size)
    return size


@inner
def bus_go_on(prog, st, mem, end, tick, heap, base, size):
    """Let the ends go on after an event of `end`; returns the new heap size."""
    if st[V_SERVED] > 0:
        served = st[V_SERVED] - 1
        st[V_SERVED] = 0
        size = kick(prog, st, mem, served, tick, heap, base, size)
    size = process_next(prog, st, mem, end, tick, heap, base, size)
    return kick(prog, st, mem, end, tick, heap, base, size)
