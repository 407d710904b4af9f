"""Senders of protocol `rdma`: which packet is next, when, and on which path; what ACKs and timeouts tell of losses.

With selective repeat a packet is lost when one that was sent later, by more than what paths differ, is acknowledged
(RACK, RFC 8985, in place of IRN's bitmap of gaps: the same on one path). With go-back-N the receiver takes packets in
order only, and asks once for the one it misses: all from there on are sent again (InfiniBand's transport).
"""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner, use
from armillary.engine.transport import layout as lk
from armillary.engine.transport.rdma import layout as rl

queue_kernel = use("armillary.engine.transport.queue_kernel")
push, new_row = queue_kernel.push, queue_kernel.new_row
arm = use("armillary.engine.transport.switch.port_kernel").arm
take_urgent = use("armillary.engine.transport.rdma.rdma_port_kernel").take_urgent
mix = use("armillary.engine.transport.switch.mark_kernel").mix
aim = use("armillary.engine.transport.switch.hop_kernel").aim
path_kernel = use("armillary.engine.transport.rdma.rdma_path_kernel")
next_path, path_back = path_kernel.next_path, path_kernel.path_back
control_kernel = use("armillary.engine.transport.control.control_kernel")
paced, on_ack, on_loss, on_timeout = (
    control_kernel.paced,
    control_kernel.on_ack,
    control_kernel.on_loss,
    control_kernel.on_timeout,
)
flows, messages, option, packets = accessors(rl.FLOW, rl.MESSAGE, rl.OPTION, rl.PACKET)
ports, slots, rows = accessors(rl.PORT, rl.SLOT, lk.ROW)
UNHEARD = 8
"""Timeouts in a row after which a sender sends a packet without credit: grants may be lost, too."""


@inner
def slot_of(table, flow, number):
    """Return the slot of a packet."""
    most = option.slots(table, table[lk.T_OPTIONS])
    return flow * most + (number & (most - 1))


@inner
def by_credit(table):
    """Tell whether the receiver grants what may be sent."""
    rule = option.rule(table, table[lk.T_OPTIONS])
    return rule in (rl.NDP, rl.RCCC, rl.BOTH)


@inner
def asks(table, net, flow):
    """Return how much credit a sender asks for in all: never more than a window that it cannot use yet."""
    options = table[lk.T_OPTIONS]
    usable = option.largest(table, options)
    if option.rule(table, options) == rl.BOTH:
        usable = min(usable, flows.window(net, flow) // rl.PART + option.mtu(table, options))
    return flows.wants(net, flow) - max(0, flows.left(net, flow) - usable)


@inner
def _first_lost(table, net, flow):
    """Return the number of the first of some lost packets."""
    number = flows.hole(net, flow)
    while slots.state(net, slot_of(table, flow, number)) & 3 != rl.LOST:
        number += 1
    flows.set_hole(net, flow, number)
    return number


@inner
def _is_empty(table, net, pool, flow):
    """Tell whether the next packet has no payload: nobody grants credit for none."""
    if flows.lost(net, flow) > 0:
        return slots.state(net, slot_of(table, flow, _first_lost(table, net, flow))) >> 2 == 0
    return messages.size(pool, flows.cutting(net, flow)) == 0


@inner
def _may_send(table, net, pool, flow):
    """Tell whether a connection has a packet that its window, credit and slots let go."""
    options = table[lk.T_OPTIONS]
    if flows.tries(net, flow) > option.retries(table, options):
        return False
    if flows.lost(net, flow) == 0:
        sent = flows.sent(net, flow)
        if sent == flows.end(net, flow) or sent - flows.una(net, flow) >= option.slots(table, options):
            return False
    if by_credit(table):
        granted = (
            flows.credit(net, flow) > 0
            or flows.first_window(net, flow) > 0
            or _is_empty(table, net, pool, flow)
        )
        if not granted or option.rule(table, options) != rl.BOTH:
            return granted
    flight = flows.flight(net, flow)
    # At least one packet, however small the window: `paced` then spaces them.
    return flight == 0 or (flight + option.mtu(table, options)) * rl.PART <= flows.window(net, flow)


@inner
def poke(table, net, pool, queue, flow, now):
    """Something has changed: put a connection that may send on the list of its port, now or when its time comes."""
    if flows.ready(net, flow) > 0 or not _may_send(table, net, pool, flow):
        return
    time = flows.time(net, flow)
    if time > now:
        event = flows.event(net, flow)
        if event == 0 or time < event:
            flows.set_event(net, flow, time)
            push(net, queue, time, flow * lk.CODES + rl.SEND)
        return
    link = flows.out(net, flow)
    flows.set_ready(net, flow, 1)
    flows.set_next(net, flow, 0)
    if ports.ready(net, link) == 0:
        ports.set_ready(net, link, flow + 1)
    else:
        flows.set_next(net, ports.ready_last(net, link) - 1, flow + 1)
    ports.set_ready_last(net, link, flow + 1)
    arm(table, net, queue, link, now)


@inner
def next_packet(table, net, pool, queue, link, now):
    """Return the next packet of the first connection in the list of a port; 0: it has none after all."""
    flow = ports.ready(net, link) - 1
    ports.set_ready(net, link, flows.next(net, flow))
    flows.set_ready(net, flow, 0)
    # Losses may have shrunk the window since.
    if not _may_send(table, net, pool, flow):
        return 0
    number = _lost(table, net, flow)
    slot = slot_of(table, flow, number)
    payload = slots.state(net, slot) >> 2
    if number == flows.sent(net, flow):
        payload = _cut(table, net, pool, flow)
    slots.set_state(net, slot, payload * 4 + rl.FLYING)
    slots.set_time(net, slot, now)
    flows.add_flight(net, flow, payload)
    if by_credit(table):
        if flows.first_window(net, flow) > 0:
            flows.add_first_window(net, flow, -payload)
        else:
            flows.add_credit(net, flow, -payload)
    row = _made(
        table,
        net,
        pool,
        flow,
        flows.source(net, flow),
        flows.goal(net, flow),
        next_path(table, net, flow, number),
    )
    packets.set_size(pool, row, payload + option.header(table, table[lk.T_OPTIONS]))
    packets.set_number(pool, row, number)
    packets.set_kind(pool, row, rl.DATA)
    packets.set_stamp(pool, row, now)
    packets.set_told(pool, row, asks(table, net, flow))
    packets.set_payload(pool, row, payload)
    flows.set_time(net, flow, paced(table, net, pool, flow, packets.size(pool, row), now))
    if flows.deadline(net, flow) == 0:
        set_deadline(table, net, queue, flow, now)
    poke(table, net, pool, queue, flow, now)
    return row


@inner
def _lost(table, net, flow):
    """Return the number of the first lost packet, or of the next new one."""
    if flows.lost(net, flow) == 0:
        return flows.sent(net, flow)
    number = _first_lost(table, net, flow)
    flows.set_hole(net, flow, number + 1)
    flows.add_lost(net, flow, -1)
    return number


@inner
def _cut(table, net, pool, flow):
    """Cut the next new packet; returns its payload."""
    message = flows.cutting(net, flow)
    number = flows.sent(net, flow)
    flows.set_sent(net, flow, number + 1)
    mtu = option.mtu(table, table[lk.T_OPTIONS])
    payload = min(mtu, messages.size(pool, message) - (number - messages.begin(pool, message)) * mtu)
    flows.add_left(net, flow, -payload)
    if number + 1 == messages.end(pool, message):
        flows.set_cutting(net, flow, rows.next(pool, message))
    return payload


@inner
def _made(table, net, pool, flow, node, goal, path):
    """Return a new packet of a connection from a node to a goal."""
    row = new_row(net, pool)
    packets.set_message(pool, row, flow)
    packets.set_source(pool, row, -1)
    packets.set_mark(pool, row, 0)
    packets.set_path(pool, row, path)
    packets.set_trail(pool, row, 0)
    packets.set_payload(pool, row, 0)
    options = table[lk.T_OPTIONS]
    tag = path
    if option.choice(table, options) != rl.PERMUTED:
        tag = mix(mix(mix(option.salt(table, options), node), goal), path)
    aim(table, net, pool, row, node, goal, tag)
    return row


@inner
def say(table, net, pool, queue, flow, kind, number, path, forth, now):
    """Send a packet without payload to the other end; returns its row, whose columns are read when it arrives."""
    node = flows.source(net, flow) if forth else flows.goal(net, flow)
    goal = flows.goal(net, flow) if forth else flows.source(net, flow)
    row = _made(table, net, pool, flow, node, goal, path)
    packets.set_size(pool, row, option.ack(table, table[lk.T_OPTIONS]))
    packets.set_number(pool, row, number)
    packets.set_kind(pool, row, kind)
    packets.set_stamp(pool, row, now)
    packets.set_told(pool, row, 0)
    take_urgent(table, net, pool, queue, flows.out(net, flow) if forth else flows.back(net, flow), row, now)
    return row


@inner
def set_deadline(table, net, queue, flow, now):
    """Start the timer of a connection anew; each timeout in a row doubles it. Without a timeout nothing is lost."""
    if option.rto(table, table[lk.T_OPTIONS]) == 0:
        return
    time = now + (option.rto(table, table[lk.T_OPTIONS]) << min(flows.tries(net, flow), 6))
    flows.set_deadline(net, flow, time)
    # One live event: a later deadline is followed up when the earlier event comes.
    if flows.timer(net, flow) == 0:
        flows.set_timer(net, flow, time)
        push(net, queue, time, flow * lk.CODES + rl.TIMEOUT)


@inner
def _lose(table, net, flow, number):
    """A packet in flight is lost."""
    slot = slot_of(table, flow, number)
    payload = slots.state(net, slot) >> 2
    slots.set_state(net, slot, payload * 4 + rl.LOST)
    flows.add_flight(net, flow, -payload)
    flows.set_hole(net, flow, number if flows.lost(net, flow) == 0 else min(number, flows.hole(net, flow)))
    flows.add_lost(net, flow, 1)
    return payload


@inner
def _end_first_window(table, net, flow):
    """Something is lost: from now on the receiver says what may be sent, also of what the first window would take."""
    rest = flows.first_window(net, flow)
    if rest > 0:
        flows.set_first_window(net, flow, 0)
        flows.add_wants(net, flow, min(rest, flows.left(net, flow)))


@inner
def _flying(table, net, flow, number):
    return slots.state(net, slot_of(table, flow, number)) & 3 == rl.FLYING


@inner
def _settle(table, net, flow, number):
    """A packet has arrived; returns its payload unless that was known."""
    slot = slot_of(table, flow, number)
    state = slots.state(net, slot)
    if state & 3 == rl.ACKED or state & 3 == rl.UNSENT:
        return 0
    payload = state >> 2
    if state & 3 == rl.FLYING:
        flows.add_flight(net, flow, -payload)
    else:
        flows.add_lost(net, flow, -1)
    slots.set_state(net, slot, payload * 4 + rl.ACKED)
    return max(payload, 1)


@inner
def answered(table, net, pool, queue, row, now):
    """An ACK or NACK has come back."""
    flow = packets.message(pool, row)
    options = table[lk.T_OPTIONS]
    number = packets.number(pool, row)
    told = packets.told(pool, row)
    una = flows.una(net, flow)
    acked = 0
    if packets.kind(pool, row) == rl.ACK and number >= una:
        acked = _settle(table, net, flow, number)
    while una < told:
        acked += _settle(table, net, flow, una)
        una += 1
    # Those beyond that are known to have arrived.
    while una < flows.sent(net, flow) and slots.state(net, slot_of(table, flow, una)) & 3 == rl.ACKED:
        una += 1
    flows.set_una(net, flow, una)
    flows.set_hole(net, flow, max(una, flows.hole(net, flow)))
    path_back(table, net, flow, packets.path(pool, row), packets.mark(pool, row), packets.kind(pool, row))
    lost = 0
    if packets.kind(pool, row) == rl.NACK:
        if option.backward(table, options) > 0:
            for each in range(una, flows.sent(net, flow)):
                if _flying(table, net, flow, each):
                    lost += _lose(table, net, flow, each)
        elif (
            number >= una
            and _flying(table, net, flow, number)
            and (slots.time(net, slot_of(table, flow, number)) == packets.stamp(pool, row))
        ):
            lost = _lose(table, net, flow, number)
    elif option.full(table, options) == rl.DROP and option.backward(table, options) == 0 and una < number:
        lost = _overtaken(table, net, flow, una, packets.stamp(pool, row) - option.reorder(table, options))
    if acked > 0:
        flows.set_tries(net, flow, 0)
        on_ack(table, net, pool, flow, row, acked, now)
        flows.set_deadline(net, flow, 0)
        if una < flows.sent(net, flow):
            set_deadline(table, net, queue, flow, now)
    if lost > 0:
        _end_first_window(table, net, flow)
        # Of what was cut the receiver has a header; of what was dropped it knows nothing, and the credit is gone.
        if by_credit(table) and option.full(table, options) == rl.DROP:
            flows.add_wants(net, flow, lost)
            if flows.credit(net, flow) <= 0:
                _ask(table, net, pool, queue, flow, now)
        on_loss(table, net, pool, flow, lost, now)
    poke(table, net, pool, queue, flow, now)


@inner
def _overtaken(table, net, flow, una, time):
    """Count as lost what was sent before `time` and has not arrived; returns the bytes."""
    lost = 0
    for each in range(una, flows.sent(net, flow)):
        if _flying(table, net, flow, each) and slots.time(net, slot_of(table, flow, each)) < time:
            lost += _lose(table, net, flow, each)
    return lost


@inner
def _ask(table, net, pool, queue, flow, now):
    """Ask for credit without a packet that would say it."""
    row = say(table, net, pool, queue, flow, rl.ASK, 0, flows.una(net, flow), True, now)
    packets.set_told(pool, row, asks(table, net, flow))


@inner
def timeout(table, net, pool, queue, flow, now):
    """The event of the timer has come; the deadline may have moved since."""
    flows.set_timer(net, flow, 0)
    deadline = flows.deadline(net, flow)
    if deadline == 0:
        return
    if deadline > now:
        flows.set_timer(net, flow, deadline)
        push(net, queue, deadline, flow * lk.CODES + rl.TIMEOUT)
        return
    options = table[lk.T_OPTIONS]
    flows.add_tries(net, flow, 1)
    flows.set_deadline(net, flow, 0)
    if flows.tries(net, flow) > option.retries(table, options):
        return  # given up, so that the run ends
    lost = 0
    for each in range(flows.una(net, flow), flows.sent(net, flow)):
        if _flying(table, net, flow, each):
            lost += _lose(table, net, flow, each)
    _end_first_window(table, net, flow)
    if by_credit(table):
        # The receiver does not know of packets that were dropped whole. It is told a sum: once more does no harm.
        flows.add_wants(net, flow, lost)
        if lost == 0 and flows.tries(net, flow) >= UNHEARD:
            flows.set_credit(net, flow, max(flows.credit(net, flow), option.mtu(table, options)))
        elif flows.credit(net, flow) <= 0:
            _ask(table, net, pool, queue, flow, now)
    on_timeout(table, net, pool, flow, lost, now)
    set_deadline(table, net, queue, flow, now)
    poke(table, net, pool, queue, flow, now)
