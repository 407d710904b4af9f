"""Profile `physical` over a network that moves every message: collectives as rounds of sends and receives.

The network models `loggops`, `congestion`, `flow`, `packet` and `ns3` share one event loop and differ in a transport
(`engine.transport`). What happens on a rank is that of `engine.physical`: the same nodes, chunk flows and
chunks. Where that engine gives a chunk flow a volume, this one sends the messages of the algorithm's rounds.

- The loop knows ranks and collectives but no links; a transport knows links and routes but no ranks. So a
  transport is tested without workloads, all are held to the same properties, and ns-3 is one more: its
  simulator stands behind the same three functions. The loop is compiled once per transport, which costs
  seconds once per machine, and calls it directly.
- Rounds rendezvous. A message leaves when both its members have entered its round. A member's round is over
  when everything it sends has arrived and everything it receives is reduced. A fast member cannot send to a
  receiver that has no buffer for it, and memory is bounded by one round per member and chunk. There is no
  barrier: only pairs meet.
- Messages between the same two NPUs leave one after the other, as on a connection, the most urgent first.
  Otherwise sixteen chunks on a fair link would each have a sixteenth of it and all end together, and the next
  level would have nothing to do until then.
- A window of chunks is in flight on a line: as many as hide the latencies of their rounds, 4 × (1 + latency ÷
  transfer time) and at most 256 (`window_of`). With one chunk the links are idle for a latency in each round.
  With all of them, late chunks of one level are in the way of early chunks that others wait for.
- A failure is a stage. Each change of the graph is a stage with link rows and routes of its own, found when
  the program is lowered. A message takes the route of the stage in which it leaves, and keeps it.
- Within a tick, first the deliveries of the network are processed, in its order, then the events of ranks,
  then whatever starts. The same input gives the same ticks, compiled and interpreted.
- A storage (`platform.topology.attached`) is a node of the graph that is no rank. An operation waits its turn
  there, takes its latency, and then is one message, to it or from it, that shares links with all others.
- Nothing folds, because two ranks with equal work may meet different traffic. Time and memory grow with all
  ranks, and with messages × links, or with packets.

The loop is compared with a plain reference that has FIFO links of its own (`tests/engine/messages`).

What it does not do: routes are found when the program is lowered, so `adaptive` chooses as in an empty
network, which is `ecmp`, unless packets choose (`transport.hop_kernel`); receivers consume messages at
once; a rate of DCQCN belongs to a message and not to a pair; there is no wormhole switching; levels of
collectives are given or follow from the graph, and there is no search for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from armillary.engine.messages.program import MessageProgram, MessageRun
    from armillary.platform.model import Platform
    from armillary.trace import Trace


def run_messages(
    trace: Trace, platform: Platform, network_model: str
) -> tuple[MessageProgram, MessageRun, dict[str, Any]]:
    """Lower a trace and run it; returns the program, its final state and facts about the machine for the timeline.

    Raises:
        InputError: the trace does not fit the platform, or something in it cannot be simulated.
    """
    from armillary.base.errors import InputError
    from armillary.engine.messages.lower import lower_messages
    from armillary.engine.messages.run import events, execute
    from armillary.engine.messages.stages import stages_of
    from armillary.engine.physical import machine_info
    from armillary.engine.transport.models import transport_of
    from armillary.platform import physical_view
    from armillary.trace.expand import expand_for

    platform = physical_view(platform)
    rdma = network_model == "packet" and platform.packets.protocol == "rdma"
    if platform.storage and platform.storage.at and (rdma or network_model == "ns3"):
        what = "protocol rdma" if rdma else "ns-3"
        raise InputError(
            f"{platform.source or 'platform'}: storage.at: {what} moves messages between NPUs only; expected network "
            "model flow or congestion, or packet with protocol lossless, credit or tcp"
        )
    transport = transport_of(network_model, platform)
    program = lower_messages(
        expand_for(trace, f"network model {network_model}"), platform, stages_of(platform)
    )
    run = execute(program, transport)
    return program, run, machine_info(program, platform) | {"events": events(run)}
