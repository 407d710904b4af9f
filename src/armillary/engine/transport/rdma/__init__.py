"""Network model `packet`, protocol `rdma`: RoCE and Ultra Ethernet.

What moves: numbered packets with an ACK each, over queues that pause, drop or trim; the congestion controls are in
`control`. What is ignored: the host and its bus, limits of a NIC, ACKs that share a packet. What it costs: an event per
packet and link, and as many for ACKs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.base import lazy

if TYPE_CHECKING:
    from armillary.engine.transport.rdma.transport import Rdma

__all__ = ["Rdma"]
__getattr__ = lazy(__name__, {".transport": ("Rdma",)})
