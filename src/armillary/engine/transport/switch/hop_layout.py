"""Ways that packets choose at every node: the links that they may take next, and how they choose among them.

Where a packet has a route (`switch.layout`) it has its destination here, a tag that its choices hash, and the node that
it goes by way of.
"""

from __future__ import annotations

from armillary.base.tables import Layout, extended
from armillary.engine.transport.switch import layout as pk

HOPPER = extended(pk.PACKET, "HOPPER", "A packet that chooses its way.")
HOPPER.column("goal", "its destination, an NPU", at=pk.K_AT)
HOPPER.column("tag", "31 bits that it hashes", at=pk.K_LAST)
HOPPER.column(
    "via", "the node it goes by way of, plus 1; 0: none; UNDECIDED: its first switch says", at=pk.K_STEP
)
UNDECIDED = -1

TABLE = Layout("network of packets that choose their ways", pk.PAUSES)
NODE = TABLE.rows("NODE", "nodes", "A node.")
NODE.column("number", "the row of its next links as a destination, -1: it is none")
NODE.column("anchor", "the node that has these links: itself, or the switch of an NPU with one link")
NODE.column("last", "the link from there to it, -1: it is itself")
NODE.column("place", "part of the machine in which a detour to it ends")
NEXT = TABLE.rows("NEXT", "nodes of destinations of stages", "A node for a destination in a stage.")
NEXT.column("first", "the first of its next links, in CHOICE; they end where those of the next row begin")
NEXT.column("far", "links to the destination")
CHOICE = TABLE.rows("CHOICE", "next links", "A link that may be next.")
CHOICE.column("link", "link")
BETWEEN = TABLE.rows("BETWEEN", "nodes between", "A node to go by way of.")
BETWEEN.column("node", "node")

NET = Layout("state of ways", pk.NET)
FLOWLET = NET.rows("FLOWLET", "slots of nodes", "A slot of a node's flowlets, or of its destinations.")
FLOWLET.column("time", "when its last packet came", "ps")
FLOWLET.column("link", "the link that it took, plus 1; 0: none")
FLOWLET.column("turn", "DIGITS: packets to destinations of this slot, and numbers that were left out", at=0)
SLOTS = 256
"""Slots of a node: flows that share one share a way; destinations that share one take ways in turn together."""

WAYS = extended(pk.OPTION, "WAYS", "Options of ways, after those of model `packet`.")
WAYS.column("by_queue", "1: the link with the least waiting; 0: by hash")
WAYS.column(
    "spread",
    "what takes one way: ALL of a queue pair, EACH packet, what comes without GAPS; DIGITS: all ways in turn",
)
WAYS.column("pairs", "queue pairs of a connection")
WAYS.column("gap", "time without a packet after which a flow may take another link", "ps")
WAYS.column("detour", "NEVER, ALWAYS (Valiant), SOONER (UGAL)")
WAYS.column("bias", "what must wait more on the shortest way", "bytes")
WAYS.column("count", "destinations in NEXT")
WAYS.column("nodes_between", "rows of BETWEEN")
WAYS.column("salt", "random seed")
ALL, EACH, GAPS, DIGITS = range(4)
NEVER, ALWAYS, SOONER = range(3)
TRIES = 16
"""How often a node to go by way of is drawn before the packet goes straight."""
