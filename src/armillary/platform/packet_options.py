"""What a study file says of packets: ``packets: {protocol: tcp, algorithm: cubic, …}``, for network model `packet`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import Field

from armillary.base.hints import KeyPath
from armillary.platform.fields import Count, Efficiency, Part, Quantity, Ruled, Size, Time, choice_schema
from armillary.platform.limits import BYTES, FLAG, TEXT, Choice, Number, Rule, wrong_option

# Fields that are None leave the default to the engine, so that it stands in one place only.
Whole = Annotated[int, Ruled(BYTES)]


class _Ways(Part):
    """What chooses among the links that the topology's routing allows."""

    spread: Literal["message", "packet", "flowlet", "permuted"] | None = Field(
        default=None,
        description="What takes one way (permuted: all in turn); if absent packet with routing adaptive, minimal, "
        "valiant, ugal, else message.",
    )
    qps: Count | None = Field(default=None, description="Queue pairs of a connection; if absent 1.")
    flowlet_gap: Time | None = Field(default=None, description="That ends a flowlet; if absent 10 us.")
    ugal_bias: Size | None = Field(
        default=None, description="That waits more before ugal takes a detour; if absent 0."
    )


class Lossless(_Ways):
    """Ethernet or InfiniBand that pauses (PFC) before it drops; marks (ECN) and rate control (DCQCN) on request."""

    protocol: Literal["lossless"]
    mtu: Size | None = Field(
        default=None, description="Most bytes of a message in a packet; if absent 4 KiB."
    )
    header: Whole | None = Field(
        default=None, description="Bytes of a packet besides; if absent 62 (RoCEv2)."
    )
    buffer: Size | None = Field(
        default=None, description="At the end of every link; if absent the topology's."
    )
    xoff: Size | None = Field(
        default=None, description="Above which a link is paused; if absent as late as is safe."
    )
    xon: Size | None = Field(
        default=None, description="Down to which it stays paused; if absent 2 packets less."
    )
    kmin: Size | None = Field(default=None, description="Waiting bytes above which packets may be marked.")
    kmax: Size | None = Field(default=None, description="Above which all are; if absent kmin.")
    pmax: Efficiency | None = Field(default=None, description="Chance just below kmax; if absent 1 %.")
    dcqcn: bool = Field(default=False, description="Whether senders slow down by marks; needs kmin.")
    seed: Whole = Field(default=0, description="Of the choice of marked packets.")


class RdmaPackets(Part):
    """Connections with ACKs and congestion control, as of RoCE and Ultra Ethernet."""

    protocol: Literal["rdma"]
    control: (
        Literal["line-rate", "dcqcn", "timely", "swift", "hpcc", "ndp", "nscc", "rccc", "nscc+rccc"] | None
    ) = Field(default=None, description="Congestion control; if absent line-rate.")
    full: Literal["pause", "drop", "trim"] | None = Field(
        default=None,
        description="What a full queue does; if absent trim for ndp, nscc, rccc and both, drop for swift, else pause.",
    )
    recovery: Literal["selective", "go-back-n", "timeout"] | None = Field(
        default=None, description="What is sent again after a loss; if absent selective."
    )
    spread: Literal["message", "packet", "flowlet", "bitmap", "reps", "permuted"] | None = Field(
        default=None,
        description="How paths are chosen; if absent permuted for ndp, reps for nscc, rccc and both, else message.",
    )
    paths: Count | None = Field(default=None, description="Paths to choose among; if absent 64.")
    qps: Count | None = Field(default=None, description="Queue pairs of a connection; if absent 1.")
    flowlet_gap: Time | None = Field(default=None, description="That ends a flowlet; if absent 10 us.")
    ugal_bias: Size | None = Field(
        default=None, description="That waits more before ugal takes a detour; if absent 0."
    )
    mtu: Size | None = Field(
        default=None, description="Most bytes of a message in a packet; if absent 4 KiB."
    )
    header: Size | None = Field(default=None, description="Bytes of a packet besides; if absent 62 B.")
    ack: Size | None = Field(default=None, description="Of an ACK, or a trimmed packet; if absent 64 B.")
    buffer: Size | None = Field(default=None, description="Of a queue; if absent by control.")
    window: Size | None = Field(default=None, description="Largest window; if absent by control.")
    kmin: Size | None = Field(default=None, description="Waiting bytes above which packets may be marked.")
    kmax: Size | None = Field(default=None, description="Above which all are; if absent kmin.")
    pmax: Efficiency | None = Field(default=None, description="Chance just below kmax; if absent by control.")
    rto: Time | None = Field(default=None, description="Timeout; if absent by queues and latencies.")
    retries: Count | None = Field(
        default=None, description="Timeouts in a row after which a connection is given up; if absent 15."
    )
    target: Time | None = Field(
        default=None, description="Delay that the control allows; if absent by control."
    )
    seed: Whole | None = Field(default=None, description="Of marks and of what is trimmed.")


class Credits(Part):
    """Credits and virtual channels, as on chips, InfiniBand and NVLink."""

    protocol: Literal["credit"]
    packet: Size | None = Field(default=None, description="If absent 4 KiB.")
    flit: Size | None = Field(default=None, description="If absent 64 B.")
    vcs: Count | None = Field(default=None, description="Virtual channels of a link; if absent 2.")
    depth: Count | None = Field(
        default=None, description="Flits of a channel; if absent enough for full rate."
    )
    router_delay: Time | None = Field(default=None, description="If absent none.")
    switching: Literal["virtual-cut-through", "store-and-forward"] | None = None


class TcpPackets(Part):
    """TCP over queues that drop at their tail."""

    protocol: Literal["tcp"]
    algorithm: Literal["newreno", "cubic", "dctcp"] | None = Field(
        default=None, description="If absent cubic."
    )
    mss: Size | None = Field(default=None, description="Most bytes in a segment; if absent 1448 B.")
    header: Size | None = Field(default=None, description="Of a segment besides its payload; if absent 90 B.")
    buffer: Size | None = Field(default=None, description="Of the queue of a link; if absent 256 KiB.")
    initial_window: Count | None = Field(default=None, description="Segments; if absent 10.")
    growth: Count | None = Field(
        default=None, description="Segments by which an ACK may enlarge the window; if absent 1, RFC 5681."
    )
    min_rto: Time | None = Field(default=None, description="Shortest timeout; if absent 200 ms.")
    max_rto: Time | None = Field(default=None, description="Longest timeout; if absent 60 s.")
    retries: Count | None = Field(
        default=None, description="Timeouts in a row after which a connection is given up; if absent 15."
    )
    ack_every: Count | None = Field(default=None, description="Segments that share an ACK; if absent 2.")
    ack_delay: Time | None = Field(default=None, description="Longest wait of an ACK; if absent 40 ms.")
    quick_acks: Whole | None = Field(
        default=None,
        description="First segments of a connection that are each acknowledged at once; if absent 0.",
    )
    sack: bool | None = Field(default=None, description="Selective ACKs; if absent true.")
    window: Size | None = Field(default=None, description="Most bytes in flight; if absent no limit.")
    mark: Size | None = Field(default=None, description="Queue from which dctcp marks; if absent 65 packets.")
    handshake: bool | None = None
    persistent: bool | None = Field(
        default=None,
        description="Whether a connection keeps what it has learnt between messages; if absent true.",
    )
    jitter: Time | None = Field(default=None, description="Longest random wait of a sender; if absent 1 us.")
    seed: Whole | None = None


# The names are those of `Packets.protocol` in platform.model, which must not import pydantic.
PROTOCOLS: dict[str, type[Part]] = {
    "lossless": Lossless,
    "rdma": RdmaPackets,
    "credit": Credits,
    "tcp": TcpPackets,
}


def packets_schema() -> dict[str, Any]:
    """Return the JSON Schemas of all protocols, by name, and of their choice as ``Packets``."""
    return choice_schema("Packets", PROTOCOLS.values(), "What network model packet moves.")


def wrong_packet_option(protocol: str, options: Mapping[str, Any]) -> tuple[KeyPath, str]:
    """Return which option of a packet protocol is wrong and what; () and "" for none. Times of TCP are in ms."""
    fields = PROTOCOLS[protocol].model_fields
    rules = {
        name: _rule(each.annotation, each.metadata) for name, each in fields.items() if name != "protocol"
    }
    return wrong_option(rules, options)


# Study files write "4 KiB" where Python passes 4096: the limits are shared, the parsing is not.
def _rule(annotation: Any, metadata: Any = ()) -> Rule:
    """Return the rule of a field of a layout, for values without units."""
    for each in metadata:
        if isinstance(each, Quantity):
            limits = each.limits
            return Number(limits.low, limits.high, limits.above, bool(each.whole))
        # `Ruled` has no unit, so that its rule serves both as it is.
        if isinstance(each, Ruled):
            return each.rule
    parts = get_args(annotation)
    # Unions hold annotated members: Size | None is Union[Annotated[int, …], None], so metadata is one level
    # down.
    if get_origin(annotation) is Annotated:
        return _rule(parts[0], parts[1:])
    if get_origin(annotation) is Literal:
        return Choice(parts)
    if get_origin(annotation) is Union or type(None) in parts:  # what is left to the model is not given
        (part,) = (each for each in parts if each is not type(None))
        return _rule(part)
    return FLAG if annotation is bool else TEXT
