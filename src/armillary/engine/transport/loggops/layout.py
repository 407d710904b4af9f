"""The layout of network model `loggops`: messages, and what an NPU and its links are busy with."""

from __future__ import annotations

from armillary.base.tables import Layout, record
from armillary.engine.transport import layout as lk

OPTION = record("LOGGOPS", "Options of network model `loggops`.")
OPTION.column("L", "latency, -1: that of the links of the route", "ps")
OPTION.column("o", "what a message takes of a CPU at either end", "ps")
OPTION.column("g", "what it takes of a link of an NPU", "ps")
OPTION.column("G", "and per byte, of PART; -1: what the slowest link of the route takes", "ps")
OPTION.column("O", "what a byte takes of a CPU, of PART", "ps")
OPTION.column("S", "most of a message that its sender need not wait for", "bytes")
BITS = 20
PART = 1 << BITS
"""Parts of a ps in which times of a byte are given."""

MESSAGE = record("LOGGOPS_MESSAGE", "A message, in the pool.")
MESSAGE.column("next", "what comes behind it in its line, 0: nothing")
MESSAGE.column("cookie", "what its sender calls it")
MESSAGE.column("first", "the first link of its route")
MESSAGE.column("last", "the last")
MESSAGE.column("size", "its bytes", "bytes")
MESSAGE.column("route", "its route")
MESSAGE.column("step", "POST, ARRIVE")
MESSAGE.column("whole", "what its bytes take of a link", "ps")
POST, ARRIVE, DONE, WAKE, AGAIN = range(5)
"""Events: a message wants to leave; its first byte comes; all of it has come; something is free; links have changed."""

NET = Layout("state of loggops", lk.NET)
BUSY = NET.rows(
    "BUSY", "NPUs and switches, then links as the first of a route, then as the last", "A resource."
)
BUSY.column("until", "when it is free", "ps")
BUSY.column("line", "the first message that waits for it, 0: none")
BUSY.column("line_last", "the last")
