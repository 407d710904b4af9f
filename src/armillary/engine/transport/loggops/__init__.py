"""Network model `loggops`: LogGOPS parameters in place of links.

What moves: whole messages between processors and NICs. What is ignored: routes, and links that messages share. What it
costs: a few events per message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.base import lazy

if TYPE_CHECKING:
    from armillary.engine.transport.loggops.transport import LogGops

__all__ = ["LogGops"]
__getattr__ = lazy(__name__, {".transport": ("LogGops",)})
