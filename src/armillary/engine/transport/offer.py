"""Move messages that begin at given times: networks on their own, without a workload."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from armillary.base.jit import Mode, load
from armillary.engine.transport import layout as lk
from armillary.engine.transport.network import Routes, Stage, lower_network
from armillary.engine.transport.transport import Room, Transport, first_state
from armillary.engine.transport.use import LinkUse, link_use
from armillary.platform.topology.planes import parts_of
from armillary.platform.topology.routing import Routing

Ints = NDArray[np.int64]
BUDGET = 1 << 20


@dataclass(frozen=True)
class Offered:
    """When messages arrived (ps; -1: never), the use of every link, how many events it took, and a deadlock.

    `blocked` lists the links that wait for each other in a cycle at the end, see `Transport.blocked`.
    """

    arrived: Ints
    use: LinkUse
    events: int
    blocked: list[int]


def offer(
    transport: Transport,
    routing: Routing,
    source: ArrayLike,
    target: ArrayLike,
    size: ArrayLike,
    begin: ArrayLike = 0,
    *,
    key: ArrayLike = 0,
    flow: ArrayLike | None = None,
    mode: Mode | None = None,
) -> Offered:
    """Move messages.

    Args:
        transport: The transport that moves them.
        routing: The routes of messages, and the topology.
        source: (messages) NPUs.
        target: (messages) NPUs.
        size: (messages) bytes.
        begin: (messages) ps.
        key: (messages) place in the order of urgency, the lowest first.
        flow: (messages) see `Routing.paths`.
        mode: Compiled, or interpreted; by default compiled where the transport can be.
    """
    mode = mode or ("interpreted" if transport.in_python else "compiled")
    given = np.broadcast_arrays(source, target, size, begin, key)
    source, target, size, begin, key = (np.atleast_1d(np.asarray(column, np.int64)) for column in given)
    topology, routes = routing.topology, Routes()
    stage = Stage(0.0, routing, tuple(parts_of(routing)))
    routes.add(stage, source, target, flow)
    transport = transport.on([stage], routes)
    table = lower_network(
        [stage], routes, transport.options(topology), transport.tables(topology), topology.planes
    )
    # Stable: messages that begin in the same ps leave in the order given.
    order = np.argsort(begin, kind="stable")
    rows = np.stack([begin[order], order, size[order], key[order]], axis=1).ravel()
    # Interpreted kernels run faster on lists than on arrays.
    flat: Any = (table, rows) if mode == "compiled" else (table.tolist(), rows.tolist())
    arrived = np.full(len(order), -1, np.int64)
    kernel = load("armillary.engine.transport.offer_kernel", mode, transport.kernel)
    net, room = (
        first_state(transport, topology, mode, routes.count),
        Room(transport, mode, topology.planes + 1, topology.links),
    )
    number = 0
    while True:
        room.fit(net)
        number = kernel.run(flat[0], net, room.pool, room.queue, flat[1], arrived, number, BUDGET)
        # Go on while there is too little room, messages are left to offer, or an event can still happen:
        # those beyond FOREVER (flows that cannot move) never do.
        if not (
            net[lk.N_STATUS] == lk.GROW
            or number < len(order)
            or (net[lk.N_QUEUE] > 0 and room.queue[lk.Q_TIME] <= lk.FOREVER)
        ):
            break
    by_message = np.empty_like(arrived)
    by_message[order] = arrived
    blocked = transport.blocked(net, room.pool, table, topology)
    return Offered(by_message, link_use(np.asarray(net, np.int64), topology), int(net[lk.N_EVENTS]), blocked)
