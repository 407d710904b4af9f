"""When each member of one collective phase finishes, given when each of them starts.

The pipeline is that of `armillary.collective.schedule`. Two evaluators, equal to the tick:
`chain` follows schedules that have one bundle at a time by a recurrence over the steps; `deliver`
moves every message through an event heap and takes any schedule. A phase cost `pc` is an address in `prog`.
"""

from __future__ import annotations

from armillary.base.jit import in_variant, inner, njit, use
from armillary.engine.common.layout_kernel import *

heaps = use("armillary.engine.common.heap_kernel")
bus = use("armillary.engine.astra_sim.bus_kernel")
queue = use("armillary.engine.astra_sim.congestion.queue_kernel")
send_message = use("armillary.engine.astra_sim.congestion.link_kernel").send_message
push, pop = heaps.push, heaps.pop
at_rank, at_end = queue.at_rank, queue.at_end
ask = bus.ask
CONTENTION = in_variant("contention")
"""Messages wait for links (`armillary.engine.astra_sim.congestion`)."""


@inner
def peer_of(relative, n, member, peer):
    """Return the member on the other side of a transfer."""
    if relative == 0:
        return (member + peer) % n
    if relative == 1:
        return (member + peer) % n if member // peer % 2 == 0 else (member - peer) % n
    return peer


@njit
def chain(prog, st, pc, members):
    """Evaluate a phase whose members have one bundle at a time: STARTS to ENDS, REGISTERED, SENT.

    Bundle k of a member completes at its READY_AT; it then posts send k and receive k; receive k
    happens when the message is there and the receive is posted. With ``members == 1`` the member
    stands for all (equal starts): its own messages come back to it.
    """
    n = prog[pc + PC_N]
    relative = prog[pc + PC_RELATIVE]
    role = prog[pc + PC_ROLES]
    stride = prog[pc + PC_DELAY_STRIDE]
    delays = prog[pc + PC_DELAY]
    control = prog[pc + PC_CONTROL]
    starts, ends, ready = st[STARTS], st[ENDS], st[READY_AT]
    registered, sent = st[REGISTERED], st[SENT]
    send_at, arrive_at = st[SEND_AT], st[ARRIVE_AT]
    charge = prog[role + RO_CHARGE]
    wait = prog[charge + CH_WAIT]
    reduce = prog[charge + CH_REDUCE]
    for i in range(members):
        st[ready + i] = st[starts + i] + wait + reduce
        st[sent + i] = st[starts + i]
        st[registered + i] = st[ready + i] - (reduce if reduce > 0 else wait)
    for k in range(prog[role + RO_SENDS]):
        row = prog[role + RO_SEND] + k * SE_COLUMNS
        peer = prog[row + SE_PEER]
        column = prog[row + SE_DELAY]
        charge += CH_COLUMNS
        wait = prog[charge + CH_WAIT]
        reduce = prog[charge + CH_REDUCE]
        for i in range(members):
            to = 0 if members == 1 else peer_of(relative, n, i, peer)
            inject = st[ready + i]
            if control >= 0:
                inject = max(inject, st[ready + to] + prog[control + i * stride + column])
            st[send_at + to] = st[ready + i]
            st[arrive_at + to] = inject + prog[delays + i * stride + column]
        for i in range(members):
            received = max(st[arrive_at + i], st[ready + i])
            tick = received + wait + reduce
            cause = received if reduce > 0 else st[send_at + i]
            if tick == st[ready + i] and st[registered + i] == tick:
                # Both bundles take no time: the turn within the tick is that of the later of them.
                cause = max(cause, st[sent + i])
            st[ready + i] = tick
            st[registered + i] = received + wait if reduce > 0 else received
            st[sent + i] = cause
    for i in range(members):
        st[ends + i] = st[ready + i]


@inner
def role_of(prog, pc, position):
    """Return the role row of the member at `position`."""
    return prog[pc + PC_ROLES] + (position * RO_COLUMNS if prog[pc + PC_RELATIVE] == 2 else 0)


@inner
def machine_size(prog, pc):
    """Return the integers that one machine of this phase needs."""
    most = 0
    for i in range(prog[pc + PC_N] if prog[pc + PC_RELATIVE] == 2 else 1):
        role = prog[pc + PC_ROLES] + i * RO_COLUMNS
        most = max(most, prog[role + RO_RECEIVES])
    return M_COLUMNS + 2 * most


@inner
def insert(prog, st, mem, at, tick, number, heap, base, size):
    """Insert bundle `number`; returns the new heap size."""
    role = role_of(prog, mem[at + M_COST], mem[at + M_POSITION])
    row = prog[role + RO_CHARGE] + number * CH_COLUMNS
    if prog[row + CH_BUS] >= 0:
        return ask(prog, st, mem, mem[at + M_RANK], row, at, tick, heap, base, size)
    wait = prog[row + CH_WAIT]
    reduce = prog[row + CH_REDUCE]
    if CONTENTION:
        at_rank(
            prog, st, mem, heap, mem[at + M_RANK], tick + wait, EV_BUNDLE, at, row * prog[row + CH_REDUCES]
        )
        return st[V_HEAP]
    if reduce > 0:
        return push(
            heap, base, size, tick + wait + reduce, tick + wait, tick, mem[at + M_SEQ], EV_BUNDLE, at, 0
        )
    return push(heap, base, size, tick + wait, tick, mem[at + M_SENT], mem[at + M_SEQ], EV_BUNDLE, at, 0)


@inner
def receive(prog, st, mem, at, tick, sent, heap, base, size):
    """Take one message: it inserts the next bundle; returns the new heap size."""
    mem[at + M_SENT] = sent
    role = role_of(prog, mem[at + M_COST], mem[at + M_POSITION])
    number = prog[role + RO_INITIAL] + mem[at + M_RECEIVED]
    mem[at + M_RECEIVED] += 1
    return insert(prog, st, mem, at, tick, number, heap, base, size)


@inner
def other(prog, mem, at, peer):
    """Return the machine on the other side of a transfer."""
    pc = mem[at + M_COST]
    position = peer_of(prog[pc + PC_RELATIVE], prog[pc + PC_N], mem[at + M_POSITION], peer)
    return mem[at + M_BLOCK] + prog[mem[at + M_LINE] + position] * mem[at + M_SIZE]


@inner
def launch(prog, st, mem, at, k, inject, sent, heap, base, size):
    """Put send `k` on the wire at `inject`; returns the heap size."""
    pc = mem[at + M_COST]
    role = role_of(prog, pc, mem[at + M_POSITION])
    row = prog[role + RO_SEND] + k * SE_COLUMNS
    column = mem[at + M_POSITION] * prog[pc + PC_DELAY_STRIDE] + prog[row + SE_DELAY]
    delay = prog[prog[pc + PC_DELAY] + column]
    to = other(prog, mem, at, prog[row + SE_PEER])
    if CONTENTION:
        send_message(
            prog,
            st,
            mem,
            heap,
            mem[at + M_RANK],
            mem[to + M_RANK],
            delay,
            EV_MESSAGE,
            to,
            prog[row + SE_MATCH],
            inject,
        )
        return st[V_HEAP]
    arrival = inject + delay
    st[V_SEQ] += 1
    return push(heap, base, size, arrival, inject, sent, st[V_SEQ], EV_MESSAGE, to, prog[row + SE_MATCH])


@inner
def control_delay(prog, mem, at, k):
    """Return the delay of the rendezvous message that clears send `k`, or -1 without rendezvous."""
    pc = mem[at + M_COST]
    if prog[pc + PC_CONTROL] < 0:
        return -1
    role = role_of(prog, pc, mem[at + M_POSITION])
    column = prog[prog[role + RO_SEND] + k * SE_COLUMNS + SE_DELAY]
    return prog[prog[pc + PC_CONTROL] + mem[at + M_POSITION] * prog[pc + PC_DELAY_STRIDE] + column]


@inner
def clear(prog, st, mem, at, k, tick, heap):
    """Send the control message that clears the send which receive `k` meets (rendezvous with contention)."""
    role = role_of(prog, mem[at + M_COST], mem[at + M_POSITION])
    row = prog[role + RO_RECEIVE] + k * RE_COLUMNS
    sender = other(prog, mem, at, prog[row + RE_PEER])
    size = control_delay(prog, mem, sender, prog[row + RE_MATCH])
    send_message(prog, st, mem, heap, mem[at + M_RANK], mem[sender + M_RANK], size, EV_CLEAR, at, k, tick)


@inner
def cleared(prog, st, mem, at, k, tick, heap):
    """The control message of receive `k` is at its sender, who may send now or once it comes to it."""
    slot = at + M_COLUMNS + 2 * k
    if mem[slot] != WAITING:
        mem[slot] = CLEARED
        return
    mem[slot] = POSTED
    role = role_of(prog, mem[at + M_COST], mem[at + M_POSITION])
    row = prog[role + RO_RECEIVE] + k * RE_COLUMNS
    sender = other(prog, mem, at, prog[row + RE_PEER])
    launch(prog, st, mem, sender, prog[row + RE_MATCH], tick, tick, heap, 0, st[V_HEAP])


@inner
def post(prog, st, mem, at, tick, heap, base, size):
    """Post every transfer that may be posted now; returns the new heap size."""
    role = role_of(prog, mem[at + M_COST], mem[at + M_POSITION])
    done = mem[at + M_DONE]
    received = mem[at + M_RECEIVED]
    while mem[at + M_SENDS] < prog[role + RO_SENDS]:
        k = mem[at + M_SENDS]
        row = prog[role + RO_SEND] + k * SE_COLUMNS
        if prog[row + SE_DONE] > done or prog[row + SE_RECEIVED] > received:
            break
        mem[at + M_SENDS] = k + 1
        control = control_delay(prog, mem, at, k)
        inject = tick
        if control >= 0:
            slot = other(prog, mem, at, prog[row + SE_PEER]) + M_COLUMNS + 2 * prog[row + SE_MATCH]
            if CONTENTION:
                if mem[slot] == CLEARED:
                    mem[slot] = POSTED
                    at_end(prog, st, mem, heap, tick, EV_GO, at, k)
                else:
                    mem[slot] = WAITING
                continue
            if mem[slot] == IDLE:
                mem[slot] = WAITING
                mem[slot + 1] = tick
                continue
            inject = max(tick, mem[slot + 1] + control)
        size = launch(prog, st, mem, at, k, inject, tick, heap, base, size)
    while mem[at + M_RECEIVES] < prog[role + RO_RECEIVES]:
        k = mem[at + M_RECEIVES]
        row = prog[role + RO_RECEIVE] + k * RE_COLUMNS
        if prog[row + RE_DONE] > done or prog[row + RE_RECEIVED] > received:
            break
        mem[at + M_RECEIVES] = k + 1
        slot = at + M_COLUMNS + 2 * k
        state = mem[slot]
        if CONTENTION:
            if prog[mem[at + M_COST] + PC_CONTROL] >= 0:
                clear(prog, st, mem, at, k, tick, heap)
                continue
            mem[slot] = POSTED
            if state == ARRIVED:
                at_end(prog, st, mem, heap, tick, EV_LATE, at, 0)
            continue
        mem[slot] = POSTED
        if state == ARRIVED:
            size = receive(prog, st, mem, at, tick, mem[slot + 1], heap, base, size)
        elif state == WAITING:
            sender = other(prog, mem, at, prog[row + RE_PEER])
            match = prog[row + RE_MATCH]
            sent = mem[slot + 1]
            inject = max(sent, tick + control_delay(prog, mem, sender, match))
            size = launch(prog, st, mem, sender, match, inject, sent, heap, base, size)
        mem[slot + 1] = tick
    return st[V_HEAP] if CONTENTION else size


@inner
def set_up(mem, at, size, pc, position, block, line):
    """Lay out the empty machine of one member."""
    for j in range(size):
        mem[at + j] = 0
    mem[at + M_COST] = pc
    mem[at + M_POSITION] = position
    mem[at + M_BLOCK] = block
    mem[at + M_SIZE] = size
    mem[at + M_LINE] = line


@inner
def begin(prog, st, mem, at, tick, seq, heap, base, size):
    """Start a member: insert its first bundles, post what needs none; returns the new heap size."""
    mem[at + M_SEQ] = seq
    mem[at + M_SENT] = tick
    role = role_of(prog, mem[at + M_COST], mem[at + M_POSITION])
    for number in range(prog[role + RO_INITIAL]):
        size = insert(prog, st, mem, at, tick, number, heap, base, size)
    return post(prog, st, mem, at, tick, heap, base, size)


@inner
def arrive(prog, st, mem, at, k, tick, sent, heap, base, size):
    """Message of receive `k` is there; returns the new heap size."""
    slot = at + M_COLUMNS + 2 * k
    if mem[slot] == POSTED:
        return receive(prog, st, mem, at, tick, sent, heap, base, size)
    mem[slot] = ARRIVED
    mem[slot + 1] = sent
    return size


@inner
def complete(prog, st, mem, at, tick, heap, base, size):
    """Count a completed bundle and post what it allows; returns the new heap size."""
    mem[at + M_DONE] += 1
    return post(prog, st, mem, at, tick, heap, base, size)


@inner
def finished(prog, mem, at):
    """Tell whether the member's last bundle has completed."""
    role = role_of(prog, mem[at + M_COST], mem[at + M_POSITION])
    return mem[at + M_DONE] == prog[role + RO_INITIAL] + prog[role + RO_RECEIVES]


@njit
def deliver(prog, st, mem, heap, pc, line, positions, members):
    """Evaluate a phase by moving every message: STARTS to ENDS, REGISTERED, SENT, per machine.

    ``prog[positions + i]`` is the position of machine i and ``prog[line + position]`` the machine of a
    position, so that one machine may stand for several members that behave alike. Works in the
    memory and on the heap beyond what is in use.
    """
    base = st[V_HEAP] * HEAP_COLUMNS
    first = st[V_MACHINE]
    starts = st[STARTS]
    each = machine_size(prog, pc)
    size = 0
    for i in range(members):
        set_up(mem, first + i * each, each, pc, prog[positions + i], first, line)
        at = starts + i
        size = push(heap, base, size, st[at], st[at], st[at], i, EV_START, first + i * each, i)
        st[st[ENDS] + i] = -1
    while size > 0:
        tick, registered, sent = heap[base], heap[base + 1], heap[base + 2]
        code, a, b = heap[base + 4], heap[base + 5], heap[base + 6]
        size = pop(heap, base, size)
        if code == EV_START:
            size = begin(prog, st, mem, a, tick, b, heap, base, size)
        elif code == EV_MESSAGE:
            size = arrive(prog, st, mem, a, b, tick, sent, heap, base, size)
        else:
            size = complete(prog, st, mem, a, tick, heap, base, size)
            i = (a - first) // each
            # A bundle that takes no time has its turn within the tick after those that it follows.
            last = st[st[REGISTERED] + i] if st[st[ENDS] + i] == tick else -1
            if registered > last or (registered == last and sent > st[st[SENT] + i]):
                st[st[ENDS] + i] = tick
                st[st[REGISTERED] + i] = registered
                st[st[SENT] + i] = sent
