"""The layout of network model `credit`, beside the one that all transports share.

A slot is the buffer of one virtual channel (VC) at the end of a link; those at a node stand side by side, so that
an output finds all that may want it.
"""

from __future__ import annotations

from armillary.base.tables import Layout, record
from armillary.engine.transport import layout as lk

OPTION = record("OPTION", "Options of `credit`.")
OPTION.column("packet", "payload of a packet", "bytes")
OPTION.column("flit", "a flit", "bytes")
O_VCS = OPTION.column("vcs", "VCs of a link")
OPTION.column("delay", "how long a router takes", "ps")
OPTION.column("whole", "1: packets move on when they are whole")
TABLE = Layout("network with credits", lk.TABLE)
CHANNEL = TABLE.rows("CHANNEL", "links", "A link.")
C_RING = CHANNEL.column("ring", "number of its ring (dimension and direction), 0: none")
C_DATELINE = CHANNEL.column("dateline", "1: it is a dateline")
C_END = CHANNEL.column("end", "the first slot at its end")
C_FIRST = CHANNEL.column("first", "the first slot at the node that it leaves")
C_SLOTS = CHANNEL.column("slots", "slots at that node")
C_COLUMNS = CHANNEL.width

NET = Layout("state of credits", lk.NET)
SENDER = NET.rows("SENDER", "links", "A link.", width=8)
SENDER.column("free", "when its last byte has gone", "ps")
S_WANTED = SENDER.column("wanted", "slots that want it")
S_WAKE = SENDER.column("wake", "when it is next arbitrated, FOREVER: never", "ps")
S_TURN = SENDER.column("turn", "which slot it served last, as a place at its node; `CHANNEL.slots`: the NIC")
SENDER.column("vc", "which VC it tries first")
S_NIC = SENDER.column("nic", "first group of messages in its NIC, 0: none")
SENDER.column("stalled", "1 + since when something waits for credits only, 0: nothing does", "ps")
S_COLUMNS = SENDER.width
WANT = NET.rows("WANT", "slots", "What a slot wants.")
WANT.column("link", "1 + the link that its first packet wants, 0: none")
WANT.column("since", "when that may leave", "ps")
W_COLUMNS = WANT.width
SLOT = NET.rows("SLOT", "slots", "A slot.", width=8)
V_FIRST = SLOT.column("first", "its first packet, 0: none")
SLOT.column("last", "its last packet")
V_CREDITS = SLOT.column("credits", "flits that still fit as far as the upstream knows")
V_BACK = SLOT.column("back", "credits in flight to the upstream, a list; 0: none")
SLOT.column("back_last", "the last of them")
SLOT.column("free", "when the last byte of the packet that left it last is gone", "ps")
V_COLUMNS = SLOT.width

MESSAGE = record("MESSAGE", "A message, in the pool.")
MESSAGE.column("next", "the next one of its group")
MESSAGE.column("cookie", "what its sender calls it")
MESSAGE.column("at", "where its route is")
MESSAGE.column("end", "where that ends")
MESSAGE.column("left", "not sent", "bytes")
MESSAGE.column("open", "packets that have not arrived")
MESSAGE.column("last", "when the last of them arrives", "ps")
MESSAGE.column("route", "its route")
M_KEY = MESSAGE.column("key", "lowest leaves first")
GROUP = record("GROUP", "Messages of one key in a NIC, in the pool.")
GROUP.column("next", "those of the next higher key")
GROUP.column("key", "their key")
GROUP.column("last", "the last of them, whose next is the first: a circular list")
PACKET = record("PACKET", "A packet, in the pool.")
PACKET.column("next", "the next one of its slot")
PACKET.column("message", "its message")
PACKET.column("at", "place in its route of the link that it takes next")
PACKET.column("end", "where that ends")
PACKET.column("size", "its bytes", "bytes")
K_FLITS = PACKET.column("flits", "its flits")
PACKET.column("head", "when its head is through the router", "ps")
PACKET.column("tail", "when its tail is", "ps")
K_RING = PACKET.column("ring", "the ring that it came by")
K_CROSSED = PACKET.column("crossed", "1: it crossed the dateline of that ring")
PACKET.column("link", "the link that it came by")
CREDIT = record("CREDIT", "Credits in flight upstream, in the pool.")
CREDIT.column("next", "the next ones of their slot")
CREDIT.column("time", "when they arrive", "ps")
B_FLITS = CREDIT.column("flits", "how many")
ARBITRATE, ARRIVED, EMPTY, REVIEW = range(4)
"""Events: of a link, of a message, of a slot with more that has come to its end, of the links from one on."""
STEP = 16
"""Most packets that leave a slot, or links that are reviewed, in one event: the room is checked between events."""
