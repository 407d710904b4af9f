"""The layout of network model `flow`: rows of flows and of links, and what else it keeps in the state."""

from __future__ import annotations

from armillary.engine.transport.layout_kernel import FOREVER, P_COLUMNS

# Row of a flow: key; weight; level (-1: none yet: a level is a rate per weight); whether a new one is being found, and
# that one; a link that gives it no more; its route; bytes left and a fraction of one, at a time; when it can have
# ended at best; place in the queue, from 1; first row of its places on links (0: it flows no more)
(
    M_KEY, M_WEIGHT, M_LEVEL, M_MARK, M_NEW, M_LINK, M_ROUTE, M_LEFT, M_PART, M_SINCE, M_BOUND, M_PLACE, M_CHAIN,
) = range(2, 15)  # fmt: skip
# Row of places on links: the next such row; the flow, 0 if it has gone; then the next places on the same links
C_FLOW, C_PLACES = 1, 2
PLACES = P_COLUMNS - C_PLACES

# State of its own: rows of links; links to be looked at; heap of links; single values
N_ROWS, N_DIRTY, N_HEAP, N_VALUES = range(24, 28)
# Row of a link: first place of a flow; sum of rates, what of it has gone, since when it is so, fraction of a byte
# carried; whether it is to be looked at. While levels are found: when it was touched; room for flows of this key, and
# what is left of it; weight of the open flows; level of the flows it held back (-1: none); highest level of flows
# that keep theirs, and weight of those that have it; place in the heap
(
    K_FIRST, K_RATE, K_GONE, K_SINCE, K_PART, K_DIRTY, K_STAMP, K_ROOM, K_LEFT, K_WEIGHT, K_FULL, K_TOP, K_TOP_WEIGHT,
    K_PLACE,
) = range(14)  # fmt: skip
K_COLUMNS = 14
# Bits of a fraction of a byte; number of links to be looked at, and in the heap; count of sharings; keys that
# have changed: the lowest; of all flows so far: the highest; flows that get a level; places to give back; stage
V_SCALE, V_DIRTY, V_HEAP, V_STAMP, V_LOWEST, V_HIGHEST, V_CHOSEN, V_DEAD, V_STAGE = range(9)
VALUES = 9

NEVER = FOREVER + 1
MOST_RATE = 1 << 41
"""Rates stay below, so that they can be multiplied by 2**20."""
