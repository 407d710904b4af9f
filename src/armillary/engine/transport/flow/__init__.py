"""Network model `flow`: messages are fluid and share links max-min fairly.

What moves: one rate per message on all links of its route. What is ignored: packets, queues, losses, and the time that
rate control needs. What it costs: two events per message, each with heap work for the flows whose rates change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.base import lazy

if TYPE_CHECKING:
    from armillary.engine.transport.flow.transport import Flow

__all__ = ["Flow"]
__getattr__ = lazy(__name__, {".transport": ("Flow",)})
