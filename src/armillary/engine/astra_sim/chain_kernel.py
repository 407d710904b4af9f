"""When each member of a phase finishes whose schedule has one chunk step at a time: a recurrence over the steps."""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner, njit
from armillary.engine.astra_sim import layout as lk

charges, costs, member, roles = accessors(lk.CHARGE, lk.COST, lk.MEMBER, lk.ROLE)
send_rows = accessors(lk.SEND_ROW)


@inner
def peer_of(relative, n, member, peer):
    """Return the member on the other side of a transfer."""
    if relative == 0:
        return (member + peer) % n
    if relative == 1:
        # The lower half of each block of 2 * peer looks up, the upper half down.
        return (member + peer) % n if member // peer % 2 == 0 else (member - peer) % n
    return peer


@njit
def chain(prog, st, pc, members):
    """Evaluate a phase whose members have one chunk step at a time: STARTS to ENDS, REGISTERED, SENT.

    Chunk step k of a member completes at its READY_AT; it then posts send k and receive k; receive k
    happens when the message is there and the receive is posted. With ``members == 1`` the member
    stands for all (equal starts): its own messages come back to it.
    """
    n = costs.n(prog, pc)
    relative = costs.relative(prog, pc)
    role = costs.roles(prog, pc)
    stride = costs.delay_stride(prog, pc)
    delays = costs.delay(prog, pc)
    control = costs.control(prog, pc)
    charge = roles.charge(prog, role)
    wait = charges.wait(prog, charge)
    reduce = charges.reduce(prog, charge)
    for i in range(members):
        member.set_ready_at(st, i, member.starts(st, i) + wait + reduce)
        member.set_sent(st, i, member.starts(st, i))
        # The last wait decides the turn: a reduction is registered when the endpoint delay is over.
        member.set_registered(st, i, member.ready_at(st, i) - (reduce if reduce > 0 else wait))
    for k in range(roles.sends(prog, role)):
        row = roles.send(prog, role) + k * lk.SE_COLUMNS
        peer = send_rows.peer(prog, row)
        column = send_rows.delay(prog, row)
        # Charge k + 1 is that of the chunk step which receive k inserts.
        charge += lk.CH_COLUMNS
        wait = charges.wait(prog, charge)
        reduce = charges.reduce(prog, charge)
        # All members post step k before any receives it: arrivals of a step depend on the step before only.
        for i in range(members):
            to = 0 if members == 1 else peer_of(relative, n, i, peer)
            inject = member.ready_at(st, i)
            # Rendezvous: the receiver posts its receive when its own chunk step k completes.
            if control >= 0:
                inject = max(inject, member.ready_at(st, to) + prog[control + i * stride + column])
            member.set_send_at(st, to, member.ready_at(st, i))
            member.set_arrive_at(st, to, inject + prog[delays + i * stride + column])
        for i in range(members):
            received = max(member.arrive_at(st, i), member.ready_at(st, i))
            tick = received + wait + reduce
            cause = received if reduce > 0 else member.send_at(st, i)
            if tick == member.ready_at(st, i) and member.registered(st, i) == tick:
                # Both chunk steps take no time: the turn within the tick is that of the later of them.
                cause = max(cause, member.sent(st, i))
            member.set_ready_at(st, i, tick)
            member.set_registered(st, i, received + wait if reduce > 0 else received)
            member.set_sent(st, i, cause)
    for i in range(members):
        member.set_ends(st, i, member.ready_at(st, i))
