"""Places of what `armillary.capture.waiting_kernel` reads and writes."""

# Columns of rows. Own: the stream that a communication runs on; what does not exist is -1.
KIND, WHAT, STREAM, OWN, CALLS, MESSAGE, COLUMNS = 0, 1, 2, 3, 4, 5, 6
# Kinds of rows, as in `armillary.capture.log`; the last one adds its calls only.
OPERATOR, COMMUNICATION, RECORD, WAIT, JOIN, HOST, NOTHING = 0, 1, 2, 3, 4, 5, 6
# Of `main`: the next row; nodes, edges, and places of the pool so far; how often the host has waited; marks so far; the
# last node of the host, calls that it has to make, and the list and number of nodes that it has waited for.
AT, NODES, EDGES, POOL, EPOCH, MARK, ISSUED, PENDING, WAITED, WAITED_COUNT = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9
# Whether calls, reads and messages take the host time; room that was missing.
CALL_TAKES, READ_TAKES, MESSAGE_TAKES, ROOM, MAIN = 10, 11, 12, 13, 14
# Of a stream: last node, epoch of the host that it knows, list of what it waits for, its length, whether there is one.
LAST, KNOWS, WAITS, WAITS_COUNT, PRESENT, STREAM_FIELDS = 0, 1, 2, 3, 4, 5
# Of an event: list of what is before it, and its length.
# Of nodes: the row that one is of, or these; and calls of the host.
CALLED, SYNCHRONISED, SHOOK = -1, -2, -3
GROW = 1
