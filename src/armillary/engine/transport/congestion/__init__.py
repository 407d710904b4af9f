"""Network model `congestion`: FIFO links, one message at a time on each, cut through at every node.

What moves: whole messages. What is ignored: packets, headers, limits of buffers, priorities and fair sharing. What it
costs: an event per message and link of its route.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.base import lazy

if TYPE_CHECKING:
    from armillary.engine.transport.congestion.transport import Congestion

__all__ = ["Congestion"]
__getattr__ = lazy(__name__, {".transport": ("Congestion",)})
