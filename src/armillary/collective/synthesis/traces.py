"""A synthesised schedule as Chakra traces: what every NPU sends, receives and adds.

They run as a workload, or in place of an algorithm (ASTRA-sim's ``all-reduce-implementation-custom``).
"""

from __future__ import annotations

from collections import defaultdict
from math import ceil
from typing import TYPE_CHECKING

from armillary.collective.synthesis.edges import Edges
from armillary.collective.synthesis.messages import Messages, messages_of
from armillary.collective.synthesis.synthesize import SynthesizedSchedule

if TYPE_CHECKING:
    from armillary.trace import Trace


def to_trace(schedule: SynthesizedSchedule, memory_bandwidth: float = 0.0) -> Trace:
    """Return one graph per NPU.

    A send waits for its data, for the data of the sends before it on its port, and for the send some places before it:
    enough are in flight to hide the latency, and messages leave in the order found. None overtakes one whose data is
    still to come, which would then leave a message later than was planned.

    Args:
        schedule: What to write.
        memory_bandwidth: At which an NPU adds what it gets, bytes/s; 0: in no time, there are no nodes for it.

    Raises:
        InputError: it has too many messages.
    """
    from armillary.trace import GraphBuilder, Trace

    messages = messages_of(schedule)
    needs = messages.needs(schedule.per_npu)
    window = _windows(schedule.edges)
    adds = ceil(schedule.chunk / memory_bandwidth * 1e9) if memory_bandwidth else 0
    builders = [GraphBuilder(rank=rank) for rank in range(schedule.n)]
    ready: list[int] = []
    sent: defaultdict[int, list[int]] = defaultdict(list)
    waits: defaultdict[int, list[list[int]]] = defaultdict(list)
    for index, (source, target, port) in enumerate(_rows(messages, schedule.edges)):
        before, chunk = sent[port], int(messages.chunk[index])
        waits[port].append([ready[need] for need in needs[index]])
        # The data of the sends before it on this port, so that none overtakes a late one.
        after = list(dict.fromkeys(node for own in waits[port][-window[port] :] for node in own))
        if len(before) >= window[port]:
            after.append(before[-window[port]])
        before.append(
            builders[source].send(target, schedule.chunk, name=f"send chunk {chunk} to {target}", after=after)
        )
        node = builders[target].recv(source, schedule.chunk, name=f"receive chunk {chunk} from {source}")
        if messages.adds[index] and adds:
            node = builders[target].compute(f"add chunk {chunk}", duration_micros=adds // 1000, after=[node])
            builders[target].nodes[-1].attrs.append(("duration_ns", "int64", adds))
        ready.append(node)
    return Trace.from_ranks([builder.graph(f"rank {rank}") for rank, builder in enumerate(builders)])


def _rows(messages: Messages, edges: Edges) -> list[tuple[int, int, int]]:
    port = edges.port[messages.edge]
    return list(zip(messages.source.tolist(), messages.target.tolist(), port.tolist(), strict=True))


def _windows(edges: Edges) -> dict[int, int]:
    """Return for each port the number of messages that keep it busy until the first has arrived."""
    moving = edges.duration[edges.port]
    found: dict[int, int] = {}
    for port, count in zip(edges.port.tolist(), (1 - (-edges.cost // moving)).tolist(), strict=True):
        found[port] = max(found.get(port, 0), count)
    return found
