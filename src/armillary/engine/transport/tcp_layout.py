"""The layout of TCP: its options and tables, rows of connections, segments and intervals, and its events."""

from __future__ import annotations

from armillary.base.tables import Layout, extended, record
from armillary.engine.transport import layout as lk
from armillary.engine.transport import packet_layout as pk

OPTION = record("OPTION", "Options of TCP.")
OPTION.column("rule", "congestion control: NEWRENO, CUBIC, DCTCP")
OPTION.column("mss", "payload of a segment", "bytes")
OPTION.column("header", "its headers", "bytes")
OPTION.column("initial", "the first window", "bytes")
OPTION.column("growth", "segments by which one ACK may enlarge the window")
OPTION.column("min_rto", "shortest timeout", "ps")
OPTION.column("max_rto", "longest timeout", "ps")
OPTION.column("ack_delay", "delay of ACKs", "ps")
OPTION.column("ack_every", "segments that share an ACK")
OPTION.column("sack", "1: ACKs say what the receiver holds")
OPTION.column("window", "most that may be in flight", "bytes")
OPTION.column("mark", "what a queue holds from which on packets are marked", "bytes")
OPTION.column("retries", "timeouts in a row that end a connection")
OPTION.column("persistent", "1: windows outlast messages")
OPTION.column("handshake", "1: connections must be opened")
OPTION.column("jitter", "the most that an answer to an ACK takes", "ps")
NEWRENO, CUBIC, DCTCP = range(3)

TABLE = Layout("network of TCP", pk.TABLE)
PLACES = TABLE.rows("CONNECTION", "routes", "A route.")
PLACES.column("connection", "place of its connection in the state, -1: it leads to its own NPU")
BUFFERS = TABLE.rows("BUFFER", "links", "A link.")
BUFFERS.column("room", "what fits its queue", "bytes")
NET = Layout("state of TCP", pk.NET)
N_CONNECTIONS = NET.place("CONNECTIONS")
"""Rows of all connections."""
DRAWN = NET.rows("DRAWN", "1", "Random numbers.")
DRAWN.column("number", "the last")
DRAWS = (1 << 31) - 1
"""Numbers drawn are 1 to DRAWS - 1 (Park and Miller's generator, with the factor 48271)."""

CONNECTION = record("CONNECTION", "A connection, in the state: sender, receiver, congestion control.")
C_FIRST = CONNECTION.column("first", "place of its first link")
C_LAST = CONNECTION.column("last", "place of its last link")
CONNECTION.column("state", "OPEN, RECOVERY, LOSS")
CONNECTION.column("una", "acknowledged", "bytes")
CONNECTION.column("sent_to", "sent", "bytes")
CONNECTION.column("end", "given to be sent", "bytes")
C_CWND = CONNECTION.column("cwnd", "window, 0: given up", "bytes")
C_SSTHRESH = CONNECTION.column("ssthresh", "window up to which it starts slowly", "bytes")
CONNECTION.column("repeated", "ACKs repeated")
C_RECOVER = CONNECTION.column("recover", "end of what was sent when a loss was seen", "bytes")
CONNECTION.column("resent", "up to where it was sent again", "bytes")
CONNECTION.column("sacked", "what the receiver holds", "bytes")
CONNECTION.column("board", "intervals of that, a list; 0: none")
C_BASE = CONNECTION.column("base", "round trip of an empty network", "ps")
C_SRTT = CONNECTION.column("srtt", "mean of the round trip", "ps")
C_VAR = CONNECTION.column("var", "its deviation", "ps")
C_RTO = CONNECTION.column("rto", "timeout", "ps")
CONNECTION.column("deadline", "when the timer ends, 0: off", "ps")
CONNECTION.column("timer", "when its event comes, 0: none", "ps")
CONNECTION.column("tries", "timeouts in a row")
CONNECTION.column("delivered", "since a loss was seen: delivered", "bytes")
CONNECTION.column("sent", "since then: sent", "bytes")
CONNECTION.column("flight", "in flight at first", "bytes")
CONNECTION.column("more", "1: a CONTINUE is scheduled")
C_NEW = CONNECTION.column("new", "1: it has sent nothing yet")
CONNECTION.column("in_order", "of the receiver: got in order", "bytes")
CONNECTION.column("held", "intervals held beyond that, a list; 0: none")
CONNECTION.column("owed", "segments not yet acknowledged")
CONNECTION.column("stamp", "when the first of them was sent", "ps")
CONNECTION.column("pending", "when that ACK must be sent, 0: none", "ps")
CONNECTION.column("pending_event", "when its event comes, 0: none", "ps")
CONNECTION.column("marked", "1: the last segment was marked")
CONNECTION.column("message", "its messages, a list; 0: none")
CONNECTION.column("message_last", "the last of them")
CONNECTION.column("w_max", "CUBIC: window before the last loss", "bytes")
CONNECTION.column("epoch", "when it began to grow since, 0: not yet", "ps")
CONNECTION.column("k", "how long to that window", "ps")
CONNECTION.column("w_reno", "window that Reno would have", "bytes")
C_ALPHA = CONNECTION.column("alpha", "DCTCP: share of marked bytes, of ALL")
CONNECTION.column("acked", "acknowledged in this round", "bytes")
CONNECTION.column("echoed", "of that, marked", "bytes")
CONNECTION.column("round", "end of the round", "bytes")
CONNECTION.column("cut", "end of the last cut", "bytes")
C_COLUMNS = CONNECTION.width
OPEN, RECOVERY, LOSS = range(3)
ALL = 1 << 20

SEGMENT = extended(pk.PACKET, "SEGMENT", "A segment, in the pool; its message is its connection.")
SEGMENT.column("byte", "its first byte; of an ACK the byte expected next")
SEGMENT.column("payload", "its payload, 0: an ACK", "bytes")
SEGMENT.column("stamp", "when it was sent; of an ACK, what it answers", "ps")
SEGMENT.column("held", "of an ACK: begin of an interval that the receiver holds")
SEGMENT.column("held_end", "its end")
MESSAGE = record("MESSAGE", "A message, in the pool.")
MESSAGE.column("next", "the next one of its connection")
MESSAGE.column("cookie", "what its sender calls it")
MESSAGE.column("end", "its end on the connection", "bytes")
INTERVAL = record("INTERVAL", "Bytes of a connection, in the pool.")
INTERVAL.column("next", "the next interval")
S_FROM = INTERVAL.column("begin", "their begin", at=2)
S_TO = INTERVAL.column("end", "their end")
TIMEOUT, ACK_PENDING, CONTINUE, HERE = range(2, 6)
"""Events: of connections; of messages to their own NPU."""
MOST_AT_ONCE = 16
"""Segments that one event sends; the next event sends more, so that a window leaves as a whole."""
FIRST = -lk.FOREVER
"""Order of an event that comes before all others of its ps."""
