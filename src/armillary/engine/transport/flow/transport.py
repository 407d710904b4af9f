"""Network model `flow`: max-min fair sharing of links among messages.

Messages are fluid: each has one rate on all links of its route, and rates are max-min fair by weight, the most urgent
key first. Ignored: packets, queues, buffers, losses, and the time that rate control needs to converge; every message
gets its fair rate at once. An event is the begin or end of a message; it costs its links, and the flows whose rate
changes times their hops, each with O(log) of heap work: none in most events of an all-to-all, all of them in the worst
case. Where messages have several keys it also costs the flows on these links, which are looked at one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from armillary.base.errors import InputError
from armillary.engine.transport import layout as lk
from armillary.engine.transport.deadlock import down_links
from armillary.engine.transport.flow import layout as fk
from armillary.engine.transport.network import Routes, Stage
from armillary.engine.transport.transport import Transport
from armillary.platform.topology.graph import Topology

Ints = NDArray[np.int64]
MOST_WEIGHT = 1 << 16


class Flow(Transport):
    """Fluid messages; lower keys first, and equal keys share each link in proportion to weights."""

    name: ClassVar[str] = "flow"
    kernel: ClassVar[str] = "armillary.engine.transport.flow.flow_kernel"

    def __init__(self, weights: ArrayLike = ()) -> None:
        """Make the model.

        Args:
            weights: (routes) of the messages on each route, in the order in which `Routes.add` got them, which
                is that of the messages of `offer`; whole numbers. Routes beyond the last have 1.

        Raises:
            InputError: A weight is no whole number from 1 to 65,536.
        """
        given: NDArray[Any] = np.atleast_1d(np.asarray(weights))
        wrong = np.flatnonzero((given < 1) | (given > MOST_WEIGHT) | (given != np.floor(given)))
        if len(wrong):
            raise InputError(
                f"flow: weights: got {given[wrong[0]]:g} for route {wrong[0]}, expected whole numbers from 1 to "
                f"{MOST_WEIGHT}"
            )
        self.weights: Ints = given.astype(np.int64)

    def on(self, stages: Sequence[Stage], routes: Routes) -> Transport:
        """See `Transport.on`; a message has a row, and one for every few links of its route."""
        # The longest route decides: rooms are the same for all messages.
        longest = int(np.diff(np.concatenate(routes.first)).max(initial=0))
        known = Flow(self.weights)
        known.message = known.burst = 1 + -(-longest // fk.PLACES)
        return known

    def options(self, topology: Topology) -> list[int]:
        """See `Transport.options`."""
        return [len(self.weights)]

    def tables(self, topology: Topology) -> list[Ints]:
        """See `Transport.tables`."""
        return [self.weights]

    def state(self, topology: Topology) -> list[Ints]:
        """See `Transport.state`."""
        values = np.zeros(fk.VALUES, np.int64)
        # Sentinels: no key has changed yet, and none has been seen.
        values[fk.V_LOWEST] = values[fk.V_LEAST] = fk.NEVER
        values[fk.V_HIGHEST] = -fk.NEVER
        rows = np.zeros(topology.links * fk.K_COLUMNS, np.int64)
        return [
            rows,
            np.zeros(topology.links, np.int64),
            np.zeros(topology.links * lk.Q_COLUMNS, np.int64),
            values,
        ]

    def blocked(self, net: Ints, pool: Ints, table: Ints, topology: Topology) -> list[int]:
        """See `Transport.blocked`."""
        shares = np.reshape(net[net[fk.N_ROWS] :][: topology.links * fk.K_COLUMNS], (-1, fk.K_COLUMNS))
        return down_links(net, table, np.flatnonzero(shares[:, fk.K_FIRST]).tolist())
