"""Network model `packet`, protocol `lossless`: packets that switches store, forward, pause and mark.

What moves: packets of messages. What is ignored: losses, ACKs, cut-through, and the bandwidth of pauses. What it costs:
an event per packet and link, and a second where it waits; `unbounded` needs fewer where no queue has a limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.base import lazy

if TYPE_CHECKING:
    from armillary.engine.transport.packet.transport import Packet

__all__ = ["Packet"]
__getattr__ = lazy(__name__, {".transport": ("Packet",)})
