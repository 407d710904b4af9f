"""Tables that both engines share: the nodes of a program, and the events of the heap."""

from __future__ import annotations

from armillary.base.tables import Layout, record

FIXED, COLLECTIVE, SEND, RECV, MEMORY, SKIP, PART, PART_SEND, PART_RECV, TRANSFER, STORE = range(11)
"""Kinds of nodes."""
CPU, COMPUTE, COMM, NONE, INNER = range(5)
"""Slots of profile astra-sim; a node of slot NONE starts as soon as it may, one of slot INNER with its collective."""
OK, GROW, MISMATCH, TOO_LONG, CARRIED = range(5)
"""Status of a run: a kernel that needs more room returns GROW, and is called again."""

PROGRAM = Layout("program")
# Rows of a graph stand side by side and are shared by all ranks that run it; state is kept per rank
# elsewhere.
NODES = PROGRAM.rows("NODES", "nodes", "One node of a graph; several ranks may have one graph.")
N_KIND = NODES.column("kind", "what it is: FIXED, COLLECTIVE ...")
N_SLOT = NODES.column("slot", "what it occupies while it runs: a slot of its rank")
N_ITEM = NODES.column("item", "its row among the items of its rank, -1: none")
N_INDEGREE = NODES.column("indegree", "how many nodes it waits for")
N_CHILD = NODES.column("child", "the first node that waits for it, in CHILDREN")
N_CHILDREN = NODES.column("children", "how many wait for it")
N_COLUMNS = NODES.width
CHILDREN = PROGRAM.rows("CHILDREN", "children", "Nodes that wait for a node, side by side.")
CHILDREN.column("node", "number within its graph")
# Ranks mostly do the same, each at its own pace: rows are shared by all of them, durations by those of one pace.
PACES = PROGRAM.rows("PACES", "nodes of paces", "Durations of the nodes of a graph on ranks of one pace.")
PACES.column("ticks", "how long a node takes, if it is FIXED", "ticks")

# Seven words per event. A record, not a table: the heap is an array of its own, because it grows.
EVENT = record(
    "EVENT", "An event of the heap. The first four columns are the order, see `armillary.engine.astra_sim`."
)
EVENT.column("tick", "when it happens", "ticks")
EVENT.column("registered", "when it was put on the heap", "ticks")
EVENT.column("sent", "when its cause was sent", "ticks")
EVENT.column("sequence", "what number it was put there as")
EVENT.column("code", "what happens")
EVENT.column("a", "to which")
EVENT.column("b", "and to which")
HEAP_COLUMNS = EVENT.width

# Of profile physical, whose ties need no rule.
SHORT_EVENT = record("EVENT", "An event of the heap: by tick, then sequence.")
SHORT_EVENT.column("tick", "when it happens", "ticks")
SHORT_EVENT.column("sequence", "what number it was put there as")
SHORT_EVENT.column("what", "to which, shifted, and what happens")
SHORT_EVENT.column("b", "and to which")
SHORT = SHORT_EVENT.width
