"""Networks with contention as movers of messages: FIFO links, flows, packets.

A built-in transport is a kernel module with three functions over flat arrays of integers: `inject` a message on a
route, `advance` to a time or to the next arrivals, `change` to the next stage of the network. It knows links
and routes, and no ranks or collectives. `transport` states the protocol, and `offer` runs one without a
workload. A `NetworkModel` is what another package adds instead, in plain Python.

Transports count in picoseconds, and the time of a byte is a fraction. A packet of 4 KiB takes 10 ns at 400
GB/s and a flit less than a tick, so rounding each to a tick would cost or win percents. Ranks stay in ticks:
what arrives within a tick is seen at its end, and messages leave at whole ticks only.

Within a picosecond a transport takes events in the order in which they were made. `flow` takes everything
that begins and ends in a picosecond together, and `credit` decides by what was settled before, so there order
has no effect. What is random (marks, jitter of TCP) is drawn from a seed.

`flow`, `packet` and `credit` have reference evaluators in `tests/engine/transport`; TCP and `packet` are also
compared with ns-3.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from armillary.engine.transport.network_model import Link, Message, NetworkModel

__all__ = ["Link", "Message", "NetworkModel"]


def __getattr__(name: str) -> object:
    """Import a public name on first use: most runs need none."""
    if name in __all__:
        return getattr(importlib.import_module(f"{__name__}.network_model"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
