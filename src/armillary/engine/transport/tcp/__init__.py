"""Network model `packet`, protocol `tcp`: NewReno, CUBIC and DCTCP over queues that drop at the tail.

What moves: segments and ACKs. What is ignored: urgency, receive windows that change, Nagle, teardown, the host. What it
costs: an event per segment and link, and half as many for ACKs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.base import lazy

if TYPE_CHECKING:
    from armillary.engine.transport.tcp.transport import Tcp

__all__ = ["Tcp"]
__getattr__ = lazy(__name__, {".transport": ("Tcp",)})
