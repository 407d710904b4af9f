"""The layout of network model `congestion`: messages, and the state of links."""

from __future__ import annotations

from armillary.base.tables import Layout, record
from armillary.engine.transport import layout as lk

MESSAGE = record("MESSAGE", "A message, in the pool.")
MESSAGE.column("next", "what comes behind it in its list, 0: nothing")
MESSAGE.column("cookie", "what its sender calls it")
M_AT = MESSAGE.column("at", "place of its next link, in ROUTE_LINK")
MESSAGE.column("end", "place after its last link")
MESSAGE.column("size", "its bytes", "bytes")
MESSAGE.column("tail", "when its last byte is at the next node", "ps")
HEAD, ARRIVED, AGAIN = range(3)
"""Events of a message: its head reaches the next link; it has arrived; a link that it waits for may be up again."""

NET = Layout("state of congestion", lk.NET)
FREE_AT = NET.rows("FREE_AT", "links", "A link.")
FREE_AT.column("time", "when all messages that came so far have left", "ps")
