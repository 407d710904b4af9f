"""Network model `packet`, protocol `credit`: routers with virtual channels and credits.

What moves: whole packets, with the times of their flits. What is ignored: buffers smaller than a packet, crossbars,
errors. What it costs: an event per packet and link, and arbitrations that scan the slots of a node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.base import lazy

if TYPE_CHECKING:
    from armillary.engine.transport.credit.transport import Credit

__all__ = ["Credit"]
__getattr__ = lazy(__name__, {".transport": ("Credit",)})
