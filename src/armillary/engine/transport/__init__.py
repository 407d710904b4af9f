"""Networks with contention that move messages: FIFO links, fluid flows, packets.

A built-in transport is a kernel module with three functions over flat arrays of integers: `inject` a message on a
route, `advance` to a time or to the next arrivals, `change` to the next stage of the network. It knows links
and routes, but no ranks or collectives. `transport` states the protocol, and `offer` runs one without a
workload. Another package adds a `NetworkModel` instead, in plain Python.

Each transport is a folder that says what moves, what is ignored and what it costs. `switch` has what packets of several
of them meet on their way, `control` the congestion controls.

Transports count in picoseconds and keep the time of a byte as a fraction. A packet of 4 KiB takes 10 ns at 400
GB/s and a flit less than a tick, so rounding each to a tick would change results by percents. Ranks stay in ticks:
they see at the end of a tick what arrived within it, and messages leave at whole ticks only.

Within a picosecond a transport handles events in the order in which they were scheduled. `flow` handles everything
that begins and ends in a picosecond together, and `credit` decides on state settled before it, so order has no effect
on these two. Random choices (marks, TCP's jitter) are drawn from a seed.

`flow`, `packet` and `credit` have reference evaluators in `tests/engine/transport`; TCP and `packet` are also
compared with ns-3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.base import lazy

if TYPE_CHECKING:
    from armillary.engine.transport.network_model import Link, Message, NetworkModel

__all__ = ["Link", "Message", "NetworkModel"]
__getattr__ = lazy(
    __name__,
    {
        ".network_model": ("Link", "Message", "NetworkModel"),
    },
)
