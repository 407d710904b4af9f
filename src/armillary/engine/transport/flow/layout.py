"""The layout of network model `flow`: rows of flows and of links, and what else it keeps in the state."""

from __future__ import annotations

from armillary.base.tables import Layout, record
from armillary.engine.transport import layout as lk

FLOW = record("FLOW", "A message, in the pool. A level is a rate per weight.")
FLOW.column("next", "what comes behind it in its list, 0: nothing")
FLOW.column("cookie", "what its sender calls it")
M_KEY = FLOW.column("key", "lowest is served first")
FLOW.column("weight", "its weight")
FLOW.column("level", "its level, -1: none yet")
FLOW.column("mark", "whether a new one is being found: see `fair_kernel`")
FLOW.column("new", "the new one")
FLOW.column("link", "the link that holds it back, -1: none yet")
FLOW.column("route", "its route")
FLOW.column("left", "bytes not sent at `since`", "bytes")
FLOW.column("part", "the fraction of a byte of that", "2**-scale bytes")
FLOW.column("since", "see `left`", "ps")
FLOW.column("bound", "earliest possible end, by its slowest link", "ps")
M_PLACE = FLOW.column("place", "its place in the queue, from 1")
FLOW.column("chain", "its first row of places on links, 0: it has ended")
CHAIN = record(
    "CHAIN", "Places of a flow on links, in the pool: the next place on the link, and the one before."
)
CHAIN.column("next", "the next such row")
C_FLOW = CHAIN.column("flow", "the flow")
C_PLACES = CHAIN.width
PLACES = (lk.P_COLUMNS - C_PLACES) // 2

TABLE = Layout("network of flows", lk.TABLE)
OPTION = record("OPTION", "Options of `flow`.")
OPTION.column("weights", "routes that have a row in WEIGHT")
WEIGHT = TABLE.rows("WEIGHT", "routes", "A route whose messages have a weight.")
WEIGHT.column("weight", "weight")
NET = Layout("state of flows", lk.NET)
N_ROWS = NET.place("ROWS")
"""Rows of links (SHARE)."""
DIRTY = NET.rows("DIRTY", "links", "Links whose flows may change.")
DIRTY.column("link", "link")
N_HEAP = NET.place("HEAP")
"""The heap of links."""
N_VALUES = NET.place("VALUES")
"""A row of values (VALUE)."""
SHARE = record("SHARE", "A link. What stands from `stamp` on holds while levels are found.")
K_FIRST = SHARE.column("first", "its first place of a flow, 0: none")
SHARE.column("rate", "sum of the rates on it")
SHARE.column("gone", "part of the rate whose flows have ended in this ps")
SHARE.column("since", "when the rate was last accounted", "ps")
SHARE.column("part", "fraction of a byte carried")
SHARE.column("dirty", "1: it is in DIRTY")
SHARE.column("held", "weight of the flows that it holds back")
SHARE.column("held_at", "their level")
SHARE.column("most", "a level that no flow on it exceeds, where all have one key")
SHARE.column("stamp", "pass in which it was last touched")
SHARE.column("room", "room for flows of this key")
SHARE.column("left", "what is left of it")
SHARE.column("weight", "weight of the open flows")
SHARE.column("full", "level of the flows that it held back, -1: none")
SHARE.column("top", "a level that no flow that keeps its own exceeds")
SHARE.column("top_weight", "weight of those that have it and that it holds back")
K_PLACE = SHARE.column("place", "its place in the heap")
K_COLUMNS = SHARE.width
VALUE = record("VALUE", "Single values.")
VALUE.column("scale", "bits of a fraction of a byte")
VALUE.column("dirty", "links to be looked at")
VALUE.column("heap", "links in the heap")
VALUE.column("stamp", "how often levels were found")
V_LOWEST = VALUE.column("lowest", "the lowest key that has changed")
V_LEAST = VALUE.column("least", "the lowest key so far")
V_HIGHEST = VALUE.column("highest", "the highest key so far")
VALUE.column("chosen", "flows that get a level: a list, 0: none")
VALUE.column("fresh", "flows that have no level yet: a list, 0: none")
VALUE.column("stage", "stage")
VALUES = VALUE.width

# Beyond every limit of `advance`: an event at NEVER stays in the queue until it is moved.
NEVER = lk.FOREVER + 1
MOST_RATE = 1 << 41
"""Rates stay below, so that they can be multiplied by 2**20."""
