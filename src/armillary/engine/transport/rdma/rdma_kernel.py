"""Protocol `rdma`: messages as numbered packets on connections, one connection per pair of NPUs.

Ports are those of `port_kernel`, ways those of `hop_kernel`. The NPU's own port takes packets of its connections in
turn. Queues are in `rdma_port_kernel`, senders in `rdma_sender_kernel`, receivers in `rdma_receiver_kernel`; how fast a
sender sends is in `control_kernel` and the kernels of controls, paths in `rdma_path_kernel`.
"""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner, use
from armillary.engine.transport import layout as lk
from armillary.engine.transport.rdma import layout as rl
from armillary.engine.transport.switch import layout as pk

queue_kernel = use("armillary.engine.transport.queue_kernel")
push, pop, deliver = queue_kernel.push, queue_kernel.pop, queue_kernel.deliver
comes, reached, new_row = queue_kernel.comes, queue_kernel.reached, queue_kernel.new_row
port_kernel = use("armillary.engine.transport.switch.port_kernel")
arrive, shut, reopen = port_kernel.arrive, port_kernel.shut, port_kernel.reopen
use_kernel = use("armillary.engine.transport.use_kernel")
link_row = use_kernel.link_row
hop_kernel = use("armillary.engine.transport.switch.hop_kernel")
onward, again = hop_kernel.onward, hop_kernel.again
release = use("armillary.engine.transport.switch.pause_kernel").release
rdma_port_kernel = use("armillary.engine.transport.rdma.rdma_port_kernel")
take, leave, next_urgent, next_data, works, go_on, discard = (
    rdma_port_kernel.take,
    rdma_port_kernel.leave,
    rdma_port_kernel.next_urgent,
    rdma_port_kernel.next_data,
    rdma_port_kernel.works,
    rdma_port_kernel.go_on,
    rdma_port_kernel.discard,
)
rdma_sender_kernel = use("armillary.engine.transport.rdma.rdma_sender_kernel")
poke, next_packet, answered, timeout, say, by_credit, asks = (
    rdma_sender_kernel.poke,
    rdma_sender_kernel.next_packet,
    rdma_sender_kernel.answered,
    rdma_sender_kernel.timeout,
    rdma_sender_kernel.say,
    rdma_sender_kernel.by_credit,
    rdma_sender_kernel.asks,
)
rdma_receiver_kernel = use("armillary.engine.transport.rdma.rdma_receiver_kernel")
received, asked, pulls = rdma_receiver_kernel.received, rdma_receiver_kernel.asked, rdma_receiver_kernel.pulls
control_kernel = use("armillary.engine.transport.control.control_kernel")
begin, woken = control_kernel.begin, control_kernel.woken
flows, links, messages, option, packets = accessors(rl.FLOW, lk.LINK, rl.MESSAGE, rl.OPTION, rl.PACKET)
places, ports, rows, uses = accessors(rl.PLACES, rl.PORT, lk.ROW, lk.USE)


@inner
def inject(table, net, pool, queue, cookie, route, size, key, now):
    """Let a message leave its NPU at `now` (ps); the key has no meaning here. An empty one is an empty packet."""
    row = new_row(net, pool)
    rows.set_next(pool, row, 0)
    rows.set_cookie(pool, row, cookie)
    net[lk.N_IN_FLIGHT] += 1
    flow = places.connection(table, route)
    if flow < 0:
        push(net, queue, now, row * lk.CODES + rl.HERE)
        return
    mtu = option.mtu(table, table[lk.T_OPTIONS])
    first = flows.end(net, flow)
    idle = flows.una(net, flow) == first
    messages.set_begin(pool, row, first)
    messages.set_end(pool, row, first + max(1, (size + mtu - 1) // mtu))
    messages.set_size(pool, row, size)
    flows.set_end(net, flow, messages.end(pool, row))
    if flows.first(net, flow) == 0:
        flows.set_first(net, flow, row)
    else:
        rows.set_next(pool, flows.last(net, flow), row)
    flows.set_last(net, flow, row)
    if flows.cutting(net, flow) == 0:
        flows.set_cutting(net, flow, row)
    flows.add_left(net, flow, size)
    begin(table, net, pool, flow)
    if by_credit(table):
        _want(table, net, pool, queue, flow, size, idle, now)
    poke(table, net, pool, queue, flow, now)


@inner
def _want(table, net, pool, queue, flow, size, idle, now):
    """Ask for the credit that a new message needs; one that finds its connection idle begins with a window."""
    if idle:
        first = option.largest(table, table[lk.T_OPTIONS])
        flows.set_first_window(net, flow, first)
        flows.add_wants(net, flow, max(0, size - first))
    else:
        flows.add_wants(net, flow, size)
        if flows.credit(net, flow) <= 0:
            # No packet will say it.
            row = say(table, net, pool, queue, flow, rl.ASK, 0, flows.end(net, flow), True, now)
            packets.set_told(pool, row, asks(table, net, flow))


@inner
def _start(table, net, pool, queue, link, now):
    """A port is free: send an ACK, or a packet that came, or one of its own connections."""
    if links.slow(table, link_row(table, net, link)) == 0:
        ports.set_armed(net, link, 0)
        return
    # Armed until the packet has left: a connection that comes back for its next must not find the port free.
    row = next_urgent(net, pool, link)
    if row == 0 and ports.shut(net, link) == 0:
        own = ports.ready(net, link) > 0 and (ports.turn(net, link) > 0 or ports.first(net, link) == 0)
        ports.set_turn(net, link, 0 if own else 1)
        if own:
            row = next_packet(table, net, pool, queue, link, now)
        elif ports.first(net, link) > 0:
            row = next_data(table, net, pool, queue, link, now)
    if row > 0:
        leave(table, net, pool, queue, link, row, now)
    ports.set_armed(net, link, 0)
    go_on(table, net, queue, link, now)


@inner
def _arrived(table, net, pool, queue, link, row, now):
    """A packet is at the end of a link."""
    to = onward(table, net, pool, row, link)
    if to >= 0:
        take(table, net, pool, queue, to, row, now)
        return
    kind = packets.kind(pool, row)
    flow = packets.message(pool, row)
    if kind in (rl.DATA, rl.HEADER):
        received(table, net, pool, queue, row, now)
    elif kind == rl.PULL:
        flows.add_credit(net, flow, packets.told(pool, row))
        poke(table, net, pool, queue, flow, now)
    elif kind == rl.ASK:
        asked(table, net, queue, flow, packets.told(pool, row), 0, now)
    else:
        answered(table, net, pool, queue, row, now)
    discard(net, pool, row)


@inner
def change(table, net, pool, queue, now):
    """The network is in another stage: what waits for a link that went down chooses again."""
    for link in range(table[lk.T_LINKS]):
        row = ports.first(net, link)
        if row > 0 and links.slow(table, link_row(table, net, link)) == 0:
            ports.set_first(net, link, 0)
            uses.set_waiting(net, link, 0)
            while row > 0:
                after = rows.next(pool, row)
                if packets.source(pool, row) >= 0:
                    release(table, net, queue, packets.source(pool, row), packets.size(pool, row), now)
                take(table, net, pool, queue, again(table, net, pool, row, link), row, now)
                row = after
        go_on(table, net, queue, link, now)


@inner
def _connection_event(table, net, pool, queue, code, of, now):
    if code == rl.SEND:
        # A sooner SEND has replaced this one.
        if flows.event(net, of) == now:
            flows.set_event(net, of, 0)
            woken(table, net, pool, of, now)
            poke(table, net, pool, queue, of, now)
    elif code == rl.TIMEOUT:
        timeout(table, net, pool, queue, of, now)
    elif code == rl.PULLS:
        pulls(table, net, pool, queue, of, now)
    else:
        deliver(net, pool, of)


@inner
def advance(table, net, pool, queue, limit):
    """Run up to `limit` (ps), or to the end of the first ps at which messages arrive; returns that time.

    Stops early with status GROW when there is too little room; then it is called again.
    """
    while comes(net, queue, limit):
        now = net[lk.N_NOW]
        what = queue[lk.Q_WHAT]
        code, of = what % lk.CODES, what // lk.CODES
        # Not popped: `arrive` replaces it with the next arrival on the same wire.
        if code == pk.ARRIVE:
            row = arrive(net, pool, queue, of)
            _arrived(table, net, pool, queue, of, row, now)
            continue
        pop(net, queue)
        if code == pk.START:
            _start(table, net, pool, queue, of, now)
        elif code == pk.PAUSE:
            shut(net, of, works(net, of), now)
        elif code == pk.RESUME:
            reopen(table, net, queue, of, works(net, of), now)
        else:
            _connection_event(table, net, pool, queue, code, of, now)
    return reached(net, queue, limit)
