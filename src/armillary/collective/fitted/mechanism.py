"""Time of a collective by its mechanism: steps, hops and bytes of what NCCL runs, with few constants of a device.

What runs is NCCL's choice (`tuning`): ring, tree or the reducing switch, with protocol LL, LL128 or Simple. Each
protocol is a `Line` that all operations and numbers of members share. Within a node hops and bytes overlap, as each is
waited for while the other goes on::

    time = overhead + ((hop x hops)^2.5 + (bytes / bandwidth)^2.5)^(1/2.5)

Bytes are those on a link of the ring, and a share of a member's own part, which it copies. Large transfers approach the
bandwidth like 1 + sqrt(saturation / bytes). Between nodes hops and bytes add, and bytes pass the links and the NICs.
All-to-all and messages open with a low-latency protocol, too, and take whichever is shorter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from armillary.base import portable
from armillary.collective.fitted.sheet import DataSheet
from armillary.collective.fitted.tuning import (
    LL,
    NVLS,
    PROTOCOLS,
    SIMPLE,
    choose,
    ring_bytes,
    ring_steps,
    tree_depth,
)

Floats = NDArray[np.float64]
MESSAGE, MESSAGE_LL = "message", "message LL"
LINES = (*PROTOCOLS, NVLS, MESSAGE_LL, MESSAGE)
"""Names of lines within a node."""
SEND, CROWDED = "send", "send of many"
NETWORK_LINES = (*PROTOCOLS, MESSAGE, SEND, CROWDED)
"""Names of lines between nodes."""
GATHER = "gather"
SHARING = (*PROTOCOLS, MESSAGE, GATHER)
"""Kinds of lines that share links of the host or of a mesh in the same way; an all-gather by Simple may differ."""
SATURATES = (SIMPLE, NVLS, MESSAGE)
OVERLAP = 2.5
"""Exponent of the mean of hops and bytes, which overlap: best on H100 and B200, of 2 to 4."""
SHARP = 5
"""Exponent of the mean of two bandwidths in series: 8 H100 a node reach 324 GB/s by links of 362 and NICs of 392."""
_MANY = 64
"""Members from which a message between nodes takes the line of `CROWDED`: 26 GB/s among 40, 15 among 80 (xxrjun)."""
CHANNELS, CHANNEL_BYTES = 32, 16 * 2**20
"""Channels that messages share out, and bytes of a message for which it gets one more (sendrecv of xxrjun)."""


LL128_DATA = 120 / 128
"""Share of what LL128 sends that is data."""
RAMPED = 16 * 2**10
"""Bytes at which half of `ramp` is there: times of all measured devices rise between 8 and 64 KiB."""


class Line(NamedTuple):
    """A protocol within a node.

    Attributes:
        overhead: ns of a launch.
        hop: ns of each hop.
        bandwidth: Bytes per ns.
    """

    overhead: float
    hop: float
    bandwidth: float


class Outer(NamedTuple):
    """A protocol between nodes.

    Attributes:
        step: ns of a hop inside a node, on the way of data that leave it.
        hop: ns of a hop from node to node.
        bandwidth: Bytes per ns of the NIC of each member.
    """

    step: float
    hop: float
    bandwidth: float


@dataclass(frozen=True)
class Mechanism:
    """Constants of a device and of its network.

    Attributes:
        lines: By name, within a node; without a line NVLS the switch does not reduce.
        network: By name, between nodes.
        own: Operation -> share of a member's own part that takes time like a part that is sent.
        saturation: Bytes at which half of the time of a transfer is not yet spent at full bandwidth.
        ramp: ns that a launch of LL takes longer where all its channels are in use, than where one is.
        gather: ns by which a hop of an all-gather by LL takes longer beyond small sizes, as data are copied on the way.
        peer: ns that each further member adds to an all-to-all.
        channel: Bytes per ns of a channel of a message.
        sharing: One of `SHARING` -> members of a node -> by how much their links are slower than the bandwidth of
            the line, as they share those of the host, or as few members of a mesh use few links.
    """

    lines: Mapping[str, Line]
    network: Mapping[str, Outer]
    own: Mapping[str, float] = field(default_factory=dict)
    saturation: float = 0.0
    ramp: float = 0.0
    gather: float = 0.0
    peer: float = 0.0
    channel: float = math.inf
    sharing: Mapping[str, Mapping[int, float]] = field(default_factory=dict)

    def slower(self, line: str, operation: str, members: int) -> float:
        """Return the factor of `sharing` for any number of members, on a line between those known in logarithms."""
        kind = self.sharer(line, operation)
        known = self.sharing.get(kind)
        if not known:
            return 1.0
        below, above, part = around(known, members)
        if part is None:
            return known[below]
        return portable.power(known[below], 1 - part) * portable.power(known[above], part)

    def sharer(self, line: str, operation: str) -> str:
        """Return the kind of `sharing` of a line."""
        kind = MESSAGE if line in (MESSAGE, MESSAGE_LL) else SIMPLE if line == NVLS else line
        return GATHER if operation == "all-gather" and kind == SIMPLE and GATHER in self.sharing else kind


def around(known: Mapping[int, float], members: int) -> tuple[int, int, float | None]:
    """Return the known numbers below and above, and the share of the latter; None: it is that of the former."""
    below = max((n for n in known if n <= members), default=min(known))
    above = min((n for n in known if n >= members), default=below)
    if below >= above:
        return below, below, None
    return below, above, portable.log(members / below) / portable.log(above / below)


class Work(NamedTuple):
    """What one line does.

    Attributes:
        line: Its name.
        hops: Within nodes, one after another.
        across: From node to node, one after another.
        sent: Bytes on the link of a member.
        own: Bytes of a member's own part.
        nic: Bytes at the NIC of a member.
        peers: Members that one member sends to at a time.
        name: Of the regime, for people.
    """

    line: str
    hops: float
    across: float
    sent: float
    own: float
    nic: float
    peers: int
    name: str


def work(
    operation: str, per_node: int, nodes: int, size: float, sheet: DataSheet, nvls: bool
) -> tuple[Work, ...]:
    """Return what runs, or several things of which the shortest does."""
    members = per_node * nodes
    across = 0 if nodes == 1 else (2 * nodes if operation == "all-reduce" else nodes - 1)
    if operation in ("send", "all-to-all", "gather", "scatter"):
        peers = 1 if operation == "send" else members - 1
        part = size if operation == "send" else size / members
        nic = 0.0 if nodes == 1 else (size if operation == "send" else part * (members - per_node))
        own = 0.0 if operation == "send" else part
        opened = 0.0 if nodes == 1 else portable.log2(nodes)
        whole = Work(MESSAGE, 1.0, opened, part * peers, own, nic, peers, "messages, Simple")
        # All messages of LL leave at a time, each on a channel of its own.
        small = Work(MESSAGE_LL, 0.0, opened, part, 0.0, nic, peers, "messages, LL")
        return (whole, small) if nodes == 1 else (whole,)
    algorithm, protocol = choose(operation, per_node, nodes, size, sheet, nvls)
    name = f"{algorithm}, {protocol}"
    if algorithm == NVLS:
        # Each member reads its part once for all, and the switch copies the sum to all.
        return (Work(NVLS, 1.0, 0.0, size * (members + 1) / members, 0.0, 0.0, 1, "NVLS"),)
    if algorithm == "tree":
        up_and_down = 2 * (per_node - 1)
        nic = 0.0 if nodes == 1 else 2 * size / per_node
        return (Work(protocol, up_and_down, 2 * tree_depth(nodes), 2 * size, 0.0, nic, 1, name),)
    sent = size * ring_bytes(operation, members)
    nic = 0.0 if nodes == 1 else sent / per_node
    steps = ring_steps(operation, members)
    return (Work(protocol, steps - across, across, sent, size / members, nic, 1, name),)


def spent(mechanism: Mechanism, each: Work, operation: str, members: int, nodes: int) -> tuple[float, float]:
    """Return (latency, transfer) in ns of one line."""
    line = mechanism.lines[each.line]
    slower = mechanism.slower(each.line, operation, members // nodes)
    sent = each.sent + each.own * mechanism.own.get(operation, 0.0)
    inside = slower * sent / line.bandwidth
    if each.line == MESSAGE_LL:
        # A flag goes with each word, so that the link carries twice the bytes.
        at_link = slower * 2 * sent * each.peers / mechanism.lines[MESSAGE].bandwidth
        inside = max(sent / line.bandwidth, at_link)
    elif each.line in SATURATES and inside:
        inside *= 1 + math.sqrt(mechanism.saturation / sent)
    if each.line == MESSAGE:
        part = sent / each.peers
        # While a larger message gets more channels, it takes no longer.
        channels = max(CHANNELS // members, 1, part / CHANNEL_BYTES)
        inside = max(inside, part / (mechanism.channel * channels))
    overhead = line.overhead
    if each.line == LL:
        copied = mechanism.gather * each.hops if operation == "all-gather" else 0.0
        overhead += (mechanism.ramp + copied) * sent / (sent + RAMPED)
    if each.line in (MESSAGE, MESSAGE_LL):
        overhead += mechanism.peer * (each.peers - 1)
    if nodes == 1:
        # Latency is what is left when the links are not busy.
        waited = line.hop * each.hops
        return overhead + joined(waited, inside, OVERLAP) - inside, inside
    outer = mechanism.network[outer_of(each.line, operation, members)]
    at_nic = each.nic / outer.bandwidth
    transfer = max(inside, at_nic)
    transfer *= joined(1.0, min(inside, at_nic) / transfer, SHARP)
    return overhead + outer.step * each.hops + outer.hop * each.across, transfer


@overload
def joined(one: float, other: float, sharp: float) -> float: ...
@overload
def joined(one: Floats, other: Floats, sharp: float) -> Floats: ...
def joined(one: Any, other: Any, sharp: float) -> Any:
    """Return the mean of two times that overlap, or of each of two arrays."""
    return portable.power(portable.power(one, sharp) + portable.power(other, sharp), 1 / sharp)


def outer_of(line: str, operation: str, members: int) -> str:
    """Return the line between nodes that belongs to one within."""
    if operation != "send":
        return line
    return SEND if members < _MANY else CROWDED


def timed(
    mechanism: Mechanism, operation: str, per_node: int, nodes: int, size: float, sheet: DataSheet
) -> tuple[float, float, str]:
    """Return (latency, transfer, name of what runs), in ns."""
    members = per_node * nodes
    runs = work(operation, per_node, nodes, size, sheet, NVLS in mechanism.lines)
    found = [(*spent(mechanism, each, operation, members, nodes), each.name) for each in runs]
    return min(found, key=lambda times: times[0] + times[1])
