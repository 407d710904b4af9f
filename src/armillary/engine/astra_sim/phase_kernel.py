"""When each member of one collective phase finishes, given when each of them starts.

The pipeline is that of `engine.astra_sim.collective.schedule`. Two evaluators, equal to the tick: `chain_kernel`
follows schedules that have one chunk step at a time by a recurrence over the steps; `deliver` moves every message
through an event heap and takes any schedule. A phase cost `pc` is an address in `prog`.
"""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import in_variant, inner, njit, use
from armillary.engine.astra_sim import layout as lk
from armillary.engine.common import layout as common

heap_kernel = use("armillary.engine.common.heap_kernel")
bus_kernel = use("armillary.engine.astra_sim.bus_kernel")
queue_kernel = use("armillary.engine.astra_sim.congestion.queue_kernel")
peer_of = use("armillary.engine.astra_sim.chain_kernel").peer_of
send_message = use("armillary.engine.astra_sim.congestion.link_kernel").send_message
push, pop = heap_kernel.push, heap_kernel.pop
at_rank, at_end = queue_kernel.at_rank, queue_kernel.at_end
ask = bus_kernel.ask
charges, costs, events, member_states, member = accessors(
    lk.CHARGE, lk.COST, common.EVENT, lk.MEMBER_STATE, lk.MEMBER
)
receive_rows, roles, send_rows = accessors(lk.RECEIVE_ROW, lk.ROLE, lk.SEND_ROW)
CONTENTION = in_variant("contention")
"""Messages wait for links (`armillary.engine.astra_sim.congestion`)."""


@inner
def role_of(prog, pc, position):
    """Return the role row of the member at `position`."""
    return costs.roles(prog, pc) + (position * lk.RO_COLUMNS if costs.relative(prog, pc) == 2 else 0)


@inner
def member_state_size(prog, pc):
    """Return the integers that one member state of this phase needs."""
    most = 0
    for i in range(costs.n(prog, pc) if costs.relative(prog, pc) == 2 else 1):
        role = costs.roles(prog, pc) + i * lk.RO_COLUMNS
        most = max(most, roles.receives(prog, role))
    return lk.M_COLUMNS + 2 * most


@inner
def insert(prog, st, mem, at, tick, number, heap, base, size):
    """Insert chunk step `number`; returns the new heap size."""
    role = role_of(prog, member_states.cost(mem, at), member_states.position(mem, at))
    row = roles.charge(prog, role) + number * lk.CH_COLUMNS
    # -1: no shared bus. Otherwise the bus decides when the chunk step is over.
    if charges.bus(prog, row) >= 0:
        return ask(prog, st, mem, member_states.rank(mem, at), row, at, tick, heap, base, size)
    wait = charges.wait(prog, row)
    reduce = charges.reduce(prog, row)
    if CONTENTION:
        at_rank(
            prog,
            st,
            mem,
            heap,
            member_states.rank(mem, at),
            tick + wait,
            lk.EV_CHUNK_STEP,
            at,
            # A reduction is a second event of the rank, registered when the wait is over: its charge is
            # passed on.
            row * charges.reduces(prog, row),
        )
        return st[lk.V_HEAP]
    if reduce > 0:
        return push(
            heap,
            base,
            size,
            tick + wait + reduce,
            # Registered when the wait ends; caused by the tick at which the chunk step was inserted.
            tick + wait,
            tick,
            member_states.seq(mem, at),
            lk.EV_CHUNK_STEP,
            at,
            0,
        )
    return push(
        heap,
        base,
        size,
        tick + wait,
        tick,
        member_states.sent(mem, at),
        member_states.seq(mem, at),
        lk.EV_CHUNK_STEP,
        at,
        0,
    )


@inner
def receive(prog, st, mem, at, tick, sent, heap, base, size):
    """Take one message: it inserts the next chunk step; returns the new heap size."""
    member_states.set_sent(mem, at, sent)
    role = role_of(prog, member_states.cost(mem, at), member_states.position(mem, at))
    number = roles.initial(prog, role) + member_states.received(mem, at)
    member_states.add_received(mem, at, 1)
    return insert(prog, st, mem, at, tick, number, heap, base, size)


@inner
def other(prog, mem, at, peer):
    """Return the member state on the other side of a transfer."""
    pc = member_states.cost(mem, at)
    position = peer_of(costs.relative(prog, pc), costs.n(prog, pc), member_states.position(mem, at), peer)
    return member_states.block(mem, at) + prog[member_states.line(mem, at) + position] * member_states.size(
        mem, at
    )


@inner
def launch(prog, st, mem, at, k, inject, sent, heap, base, size):
    """Put send `k` on the wire at `inject`; returns the heap size."""
    pc = member_states.cost(mem, at)
    role = role_of(prog, pc, member_states.position(mem, at))
    row = roles.send(prog, role) + k * lk.SE_COLUMNS
    column = member_states.position(mem, at) * costs.delay_stride(prog, pc) + send_rows.delay(prog, row)
    delay = prog[costs.delay(prog, pc) + column]
    to = other(prog, mem, at, send_rows.peer(prog, row))
    if CONTENTION:
        send_message(
            prog,
            st,
            mem,
            heap,
            member_states.rank(mem, at),
            member_states.rank(mem, to),
            delay,
            lk.EV_MESSAGE,
            to,
            send_rows.match(prog, row),
            inject,
        )
        return st[lk.V_HEAP]
    arrival = inject + delay
    # Every message has its own sequence number, in the order in which they are put on the wire.
    st[lk.V_SEQ] += 1
    return push(
        heap, base, size, arrival, inject, sent, st[lk.V_SEQ], lk.EV_MESSAGE, to, send_rows.match(prog, row)
    )


@inner
def control_delay(prog, mem, at, k):
    """Return the delay of the rendezvous message that clears send `k`, or -1 without rendezvous."""
    pc = member_states.cost(mem, at)
    if costs.control(prog, pc) < 0:
        return -1
    role = role_of(prog, pc, member_states.position(mem, at))
    column = send_rows.delay(prog, roles.send(prog, role) + k * lk.SE_COLUMNS)
    return prog[
        costs.control(prog, pc) + member_states.position(mem, at) * costs.delay_stride(prog, pc) + column
    ]


@inner
def clear(prog, st, mem, at, k, tick, heap):
    """Send the control message that clears the send which receive `k` meets (rendezvous with contention)."""
    role = role_of(prog, member_states.cost(mem, at), member_states.position(mem, at))
    row = roles.receive(prog, role) + k * lk.RE_COLUMNS
    sender = other(prog, mem, at, receive_rows.peer(prog, row))
    size = control_delay(prog, mem, sender, receive_rows.match(prog, row))
    send_message(
        prog,
        st,
        mem,
        heap,
        member_states.rank(mem, at),
        member_states.rank(mem, sender),
        size,
        lk.EV_CLEAR,
        at,
        k,
        tick,
    )


@inner
def cleared(prog, st, mem, at, k, tick, heap):
    """The control message of receive `k` is at its sender, who may send now or once it comes to it."""
    slot = at + lk.M_COLUMNS + 2 * k
    # The send has not been posted yet: it goes as soon as it is.
    if mem[slot] != lk.WAITING:
        mem[slot] = lk.CLEARED
        return
    mem[slot] = lk.POSTED
    role = role_of(prog, member_states.cost(mem, at), member_states.position(mem, at))
    row = roles.receive(prog, role) + k * lk.RE_COLUMNS
    sender = other(prog, mem, at, receive_rows.peer(prog, row))
    launch(prog, st, mem, sender, receive_rows.match(prog, row), tick, tick, heap, 0, st[lk.V_HEAP])


@inner
def post(prog, st, mem, at, tick, heap, base, size):
    """Post every transfer that may be posted now; returns the new heap size."""
    role = role_of(prog, member_states.cost(mem, at), member_states.position(mem, at))
    done = member_states.done(mem, at)
    received = member_states.received(mem, at)
    while member_states.sends(mem, at) < roles.sends(prog, role):
        k = member_states.sends(mem, at)
        row = roles.send(prog, role) + k * lk.SE_COLUMNS
        if send_rows.done(prog, row) > done or send_rows.received(prog, row) > received:
            break
        member_states.set_sends(mem, at, k + 1)
        control = control_delay(prog, mem, at, k)
        inject = tick
        if control >= 0:
            slot = (
                other(prog, mem, at, send_rows.peer(prog, row))
                + lk.M_COLUMNS
                + 2 * send_rows.match(prog, row)
            )
            if CONTENTION:
                if mem[slot] == lk.CLEARED:
                    mem[slot] = lk.POSTED
                    at_end(prog, st, mem, heap, tick, lk.EV_GO, at, k)
                else:
                    mem[slot] = lk.WAITING
                continue
            # IDLE: the receive is not posted; the receiver will launch the message.
            if mem[slot] == lk.IDLE:
                mem[slot] = lk.WAITING
                mem[slot + 1] = tick
                continue
            inject = max(tick, mem[slot + 1] + control)
        size = launch(prog, st, mem, at, k, inject, tick, heap, base, size)
    while member_states.receives(mem, at) < roles.receives(prog, role):
        k = member_states.receives(mem, at)
        # A receive may be posted before or after its message arrived, and with rendezvous triggers it.
        row = roles.receive(prog, role) + k * lk.RE_COLUMNS
        if receive_rows.done(prog, row) > done or receive_rows.received(prog, row) > received:
            break
        member_states.set_receives(mem, at, k + 1)
        slot = at + lk.M_COLUMNS + 2 * k
        state = mem[slot]
        if CONTENTION:
            if costs.control(prog, member_states.cost(mem, at)) >= 0:
                clear(prog, st, mem, at, k, tick, heap)
                continue
            mem[slot] = lk.POSTED
            if state == lk.ARRIVED:
                at_end(prog, st, mem, heap, tick, lk.EV_LATE, at, 0)
            continue
        mem[slot] = lk.POSTED
        if state == lk.ARRIVED:
            # ASTRA-sim registers it behind all else of this tick: a chunk step that completes now does not count it.
            if member_states.early(mem, at) == tick:
                st[lk.V_TIED] = 1
            st[lk.V_SEQ] += 1
            size = push(heap, base, size, tick, tick, tick, st[lk.V_SEQ], lk.EV_LATE, at, mem[slot + 1])
        elif state == lk.WAITING:
            sender = other(prog, mem, at, receive_rows.peer(prog, row))
            match = receive_rows.match(prog, row)
            sent = mem[slot + 1]
            inject = max(sent, tick + control_delay(prog, mem, sender, match))
            size = launch(prog, st, mem, sender, match, inject, sent, heap, base, size)
        mem[slot + 1] = tick
    return st[lk.V_HEAP] if CONTENTION else size


@inner
def set_up(mem, at, size, pc, position, block, line):
    """Lay out the empty member state of one member."""
    # Slots of receives are part of the member state: all start as IDLE, 0.
    for j in range(size):
        mem[at + j] = 0
    member_states.set_cost(mem, at, pc)
    member_states.set_position(mem, at, position)
    member_states.set_block(mem, at, block)
    member_states.set_size(mem, at, size)
    member_states.set_line(mem, at, line)


@inner
def begin(prog, st, mem, at, tick, seq, heap, base, size):
    """Start a member: insert its first chunk steps, post what needs none; returns the new heap size."""
    member_states.set_seq(mem, at, seq)
    member_states.set_sent(mem, at, tick)
    role = role_of(prog, member_states.cost(mem, at), member_states.position(mem, at))
    for number in range(roles.initial(prog, role)):
        size = insert(prog, st, mem, at, tick, number, heap, base, size)
    return post(prog, st, mem, at, tick, heap, base, size)


@inner
def arrive(prog, st, mem, at, k, tick, sent, heap, base, size):
    """Message of receive `k` is there; returns the new heap size."""
    slot = at + lk.M_COLUMNS + 2 * k
    if mem[slot] == lk.POSTED:
        # Had it come before its receive, it would count only when the tick has run.
        if not CONTENTION and mem[slot + 1] == tick:
            st[lk.V_TIED] = 1
        return receive(prog, st, mem, at, tick, sent, heap, base, size)
    mem[slot] = lk.ARRIVED
    mem[slot + 1] = sent
    member_states.set_early(mem, at, tick)
    return size


@inner
def complete(prog, st, mem, at, tick, heap, base, size):
    """Count a completed chunk step and post what it allows; returns the new heap size."""
    member_states.add_done(mem, at, 1)
    return post(prog, st, mem, at, tick, heap, base, size)


@inner
def finished(prog, mem, at):
    """Tell whether the member's last chunk step has completed."""
    role = role_of(prog, member_states.cost(mem, at), member_states.position(mem, at))
    # Every chunk step is either an initial one or inserted by a receive.
    return member_states.done(mem, at) == roles.initial(prog, role) + roles.receives(prog, role)


@njit
def deliver(prog, st, mem, heap, pc, line, positions, members):
    """Evaluate a phase by moving every message: STARTS to ENDS, REGISTERED, SENT, per member state.

    ``prog[positions + i]`` is the position of member state i and ``prog[line + position]`` that of a
    position, so that one may stand for several members that behave alike. Works in the
    memory and on the heap beyond what is in use.
    """
    # Works above what the caller uses: phases are evaluated while its events are pending.
    base = st[lk.V_HEAP] * lk.HEAP_COLUMNS
    first = st[lk.V_MEMBER_STATE]
    each = member_state_size(prog, pc)
    size = 0
    for i in range(members):
        set_up(mem, first + i * each, each, pc, prog[positions + i], first, line)
        start = member.starts(st, i)
        size = push(heap, base, size, start, start, start, i, lk.EV_START, first + i * each, i)
        member.set_ends(st, i, -1)
    while size > 0:
        tick, registered, sent = (
            events.tick(heap, base),
            events.registered(heap, base),
            events.sent(heap, base),
        )
        code, a, b = events.code(heap, base), events.a(heap, base), events.b(heap, base)
        size = pop(heap, base, size)
        if code == lk.EV_START:
            size = begin(prog, st, mem, a, tick, b, heap, base, size)
        elif code == lk.EV_MESSAGE:
            size = arrive(prog, st, mem, a, b, tick, sent, heap, base, size)
        elif code == lk.EV_LATE:
            size = receive(prog, st, mem, a, tick, b, heap, base, size)
        else:
            size = complete(prog, st, mem, a, tick, heap, base, size)
            i = (a - first) // each
            # A chunk step that takes no time has its turn within the tick after those that it follows.
            last = member.registered(st, i) if member.ends(st, i) == tick else -1
            if registered > last or (registered == last and sent > member.sent(st, i)):
                member.set_ends(st, i, tick)
                member.set_registered(st, i, registered)
                member.set_sent(st, i, sent)
