"""The protocol of what moves messages over links: the models `congestion`, `flow`, `packet` and others.

A transport is a kernel module with three functions over flat arrays (see `layout`); times are ps:

* ``inject(table, net, pool, queue, cookie, route, size, key, now)``: a message leaves its NPU now, on a route,
  with `size` bytes. Messages of one route leave one after the other, as on a connection. `key` is its
  place in the order of urgency: the lowest is first, and equal ones share.
* ``advance(table, net, pool, queue, limit) -> time``: run up to and including `limit`, or to the end of the first
  ps at which messages arrive. Arrived messages are taken by `queue_kernel.take_delivered`. With status GROW
  (pool or queue beyond its room) it is called again after both have grown. What stands in the queue beyond FOREVER
  does not happen unless something else does: `flow` keeps messages there that cannot move.
* ``change(table, net, pool, queue, now)``: the network has just gone into the stage ``net[N_STAGE]``: links may
  have other bandwidths. Messages in flight keep their routes; on links that are down they wait until these are up.

`inject` may be called at the time that `advance` returned, and at that time or later only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from armillary.base.jit import Mode, is_checking
from armillary.base.tables import at_least, before_table, room
from armillary.engine.transport import layout as lk
from armillary.engine.transport.network import Routes, Stage
from armillary.platform.topology.graph import Topology

Ints = NDArray[np.int64]
FIRST_BIN_BITS = 20
"""The first bins of use are about a us wide."""

FIRST_ROWS = 1 << 18


class Transport(ABC):
    """A network model that moves messages: its kernel does the work, this class prepares its tables and state."""

    name: ClassVar[str]
    kernel: ClassVar[str]
    """Its module; `chosen_kernel` is compiled with it."""
    in_python: ClassVar[bool] = False
    """Whether its kernel calls what no compiler knows: it is interpreted then."""
    burst: int = 64
    """Rows of the pool, and of the queue, that one event may take, whatever it is about."""
    message: int = 4
    """Rows of either that a message may take when it leaves."""

    def on(self, stages: Sequence[Stage], routes: Routes) -> Transport:
        """Return the transport that knows the network over time and the routes of messages; most need not."""
        return self

    @property
    def grain(self) -> int:
        """Most bytes that move as one: the work grows with the messages, and with their bytes by this."""
        return lk.FOREVER

    def options(self, topology: Topology) -> list[int]:
        """Return what stands at ``table[T_OPTIONS]``."""
        return []

    def tables(self, topology: Topology) -> list[Ints]:
        """Return further constant tables, found by ``table[T_OWN + i]``."""
        return []

    @abstractmethod
    def state(self, topology: Topology) -> list[Ints]:
        """Return the state before the first event, as tables found by ``net[N_OWN + i]``."""

    def blocked(self, net: Ints, pool: Ints, table: Ints, topology: Topology) -> list[int]:
        """Return the links that hold up what never arrived: those that are down, or a cycle of full buffers."""
        return []

    def abandoned(self, net: Ints, topology: Topology) -> list[str]:
        """Return lines on what the protocol no longer tries to deliver, and what would avoid it."""
        return []


def first_state(transport: Transport, topology: Topology, mode: Mode, routes: int) -> Any:
    """Return `net` before the first event, for messages on `routes` routes."""
    parts: Mapping[int, Ints] = {
        lk.N_USE: np.zeros(topology.links * lk.U_COLUMNS, np.int64),
        lk.N_BINS_BYTES: np.zeros(topology.links * lk.BINS, np.int64),
        lk.N_BINS_DEPTH: np.zeros(topology.links * lk.BINS, np.int64),
        lk.N_GATES: np.zeros(routes * lk.GA_COLUMNS, np.int64),
    } | {lk.N_OWN + i: table for i, table in enumerate(transport.state(topology))}
    head = np.zeros(lk.NET_HEAD, np.int64)
    # Row 0 is never used, so that address 0 can mean none.
    head[lk.N_POOL], head[lk.N_BIN_BITS] = lk.P_COLUMNS, FIRST_BIN_BITS
    flat, at = [head], lk.NET_HEAD
    for place, part in parts.items():
        # In checked mode a guard precedes each table; else this adds nothing.
        at += len(before_table())
        head[place] = at
        at += part.size
        flat += [before_table(part.size), np.ravel(part)]
    net = np.concatenate([*flat, before_table()])
    # Interpreted kernels run faster on lists than on arrays.
    return net if mode == "compiled" else net.tolist()


class Room:
    """Pool and queue, which grow."""

    def __init__(self, transport: Transport, mode: Mode, messages: int = 1, links: int = 0) -> None:
        """Make room for at least `messages` that begin at once, and for events of `links` that change."""
        self.mode, self.rows = mode, transport.burst + transport.message * messages
        self.events = self.rows + links
        # Twice a burst and some: the first GROW comes late. Memory that nobody writes is not taken, and copies are.
        first = 2 * self.rows + (64 if mode == "interpreted" or is_checking() else FIRST_ROWS)
        self.pool: Any = room(first * lk.P_COLUMNS, mode)
        self.queue: Any = room((2 * self.events + 64) * lk.Q_COLUMNS, mode)

    def fit(self, net: Any) -> None:
        """Let both be large enough for another burst, and say so in `net`."""
        self.pool = at_least(self.pool, net[lk.N_POOL] + self.rows * lk.P_COLUMNS, self.mode)
        # `flow` may give every message a place in the queue at once.
        events = max(net[lk.N_QUEUE] + self.events, len(self.pool) // lk.P_COLUMNS)
        self.queue = at_least(self.queue, events * lk.Q_COLUMNS, self.mode)
        # One burst below the end: an event that begins within this room cannot run out of it.
        net[lk.N_POOL_ROOM] = len(self.pool) - self.rows * lk.P_COLUMNS
        net[lk.N_QUEUE_ROOM] = len(self.queue) // lk.Q_COLUMNS - self.events
