"""Keys and values on their way from the replicas that computed them to those that decode.

How long a transfer takes alone is simulated once for each pair of replicas, on the machine's own network. Transfers at
the same time share: each replica divides what its links carry equally among those that leave it, and among those that
come to it, and a transfer has the smaller share of both. Rates are rounded down and ends up, so none beats the links.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import lcm

import numpy as np

from armillary.engine import simulate
from armillary.platform.model import Platform
from armillary.serving.requests import Ints
from armillary.trace import GraphBuilder, Trace
from armillary.workload.layers.of_model import inference_layers
from armillary.workload.models.schema import Decoder
from armillary.workload.plan.schema import Plan

PART = 10**6
"""Parts of a byte that are counted: a rate of whole parts a ns is 1 kB/s close."""
PROBES = (2**20, 2**26)
"""Bytes to each device of the transfers that are simulated: a line through both tells latency and rate."""


@dataclass(frozen=True)
class Side:
    """Replicas at one end of transfers.

    Attributes:
        first: The first of their devices on the machine.
        replicas: How many there are, one behind the other.
        tp: Devices that share the keys and values of a request.
        ranks: Of a replica that have requests of their own.
    """

    first: int
    replicas: int
    tp: int
    ranks: int

    def devices(self, replica: int) -> range:
        """Return the devices of a replica that hold the keys and values of a request: of several ranks the first."""
        begin = self.first + replica * self.tp * self.ranks
        return range(begin, begin + self.tp)


@dataclass(frozen=True)
class Links:
    """What carries transfers between replicas.

    Attributes:
        rate: (from, to) Parts of a byte that a transfer alone moves in a ns, of all its devices.
        latency: (from, to) ns besides.
        most: Transfers that a replica sends, and takes, at that rate at a time.
    """

    rate: Ints
    latency: Ints
    most: tuple[int, int] = (1, 1)

    def alone(self, size: int, source: int = 0, sink: int = 0) -> int:
        """Return ns of a transfer of so many bytes if there is no other."""
        return -(-size * PART // int(self.rate[source, sink])) + int(self.latency[source, sink])


def links_of(platform: Platform, source: Side, sink: Side) -> Links:
    """Return what carries transfers from one side to the other, by simulating one for each pair of replicas."""
    shape = (source.replicas, sink.replicas)
    rate, latency = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    known: dict[tuple[object, ...], tuple[int, int]] = {}
    for at in np.ndindex(shape):
        ends = source.devices(at[0]), sink.devices(at[1])
        key = _crossed(platform, *ends)
        if key not in known:
            known[key] = _probed(platform, *ends)
        rate[at], latency[at] = known[key]
    # The side with fewer devices of a request has all its links in use, the other has some left.
    each = min(source.tp, sink.tp)
    return Links(rate, latency, (source.tp * source.ranks // each, sink.tp * sink.ranks // each))


def _crossed(platform: Platform, source: range, sink: range) -> tuple[object, ...]:
    """Return what is equal for transfers that take the same: the dimensions that they cross, if ports are all alike."""
    if (
        platform.topology
        or platform.port_speed
        or any(each.topology != "Switch" for each in platform.dimensions)
    ):
        return source, sink
    size, found = 1, []
    for each in platform.dimensions:
        size *= each.size
        found.append(tuple(one // size == other // size for one, other in _pairs(source, sink)))
    return tuple(found)


def _pairs(source: range, sink: range) -> list[tuple[int, int]]:
    """Return which device sends to which, equal parts: those that share a request on both sides in their order."""
    many = lcm(len(source), len(sink))
    return [(source[at * len(source) // many], sink[at * len(sink) // many]) for at in range(many)]


def _probed(platform: Platform, source: range, sink: range) -> tuple[int, int]:
    """Return parts of a byte per ns, and ns besides, of a transfer."""
    took, pairs = [], _pairs(source, sink)
    # Who starts late is no matter of the network.
    calm = replace(platform, stragglers={}, jitter=None)
    for size in PROBES:
        builders = [GraphBuilder(rank=rank) for rank in range(platform.npus)]
        for part, (one, other) in enumerate(pairs):
            builders[one].send(other, size * len(sink) // len(pairs), part)
            builders[other].recv(one, size * len(sink) // len(pairs), part)
        timeline = simulate(Trace.from_ranks([each.graph() for each in builders]), calm)
        took.append(int(timeline.node_end.max()) * timeline.info["tick_ns"])
    moved = (PROBES[1] - PROBES[0]) * len(sink) * PART
    rate = max(1, moved // max(1, took[1] - took[0]))
    return rate, max(0, took[0] - PROBES[0] * len(sink) * PART // rate)


def cache_bytes(model: Decoder, plan: Plan, tokens: Ints) -> Ints:
    """Return the bytes of keys and values of prompts of so many tokens, on all devices that share a request.

    Args:
        model: A decoder.
        plan: Of the replicas that get them: what each of its devices keeps, it gets.
        tokens: (requests) Of prompts.
    """
    longest = max(1, int(tokens.max()))
    points = [1 << at for at in range(longest.bit_length())] + [longest]
    kept = [
        sum(layer.cache for layer in inference_layers(model, plan, tokens=1, context=each, batch=1))
        for each in points
    ]
    # Linear, but for windows, which are powers of two.
    found: Ints = np.rint(np.interp(tokens, points, kept)).astype(np.int64) * plan.parallel.tp
    return found


def moved(starts: Ints, sizes: Ints, sources: Ints, sinks: Ints, links: Links) -> Ints:
    """Return ns at which each transfer has ended.

    Args:
        starts: (transfers) ns.
        sizes: (transfers) Bytes.
        sources: (transfers) Replica that sends.
        sinks: (transfers) Replica that gets it.
        links: What carries them.
    """
    ends = np.zeros(len(starts), np.int64)
    order = np.argsort(starts, kind="stable").tolist()
    left: dict[int, int] = {}
    rates: dict[int, int] = {}
    now, at = 0, 0
    while left or at < len(order):
        ahead = [now - (-left[each] // rates[each]) for each in left]
        if at < len(order):
            ahead.append(int(starts[order[at]]))
        soonest = min(ahead)
        for each in [*left]:
            left[each] -= rates[each] * (soonest - now)
            if left[each] <= 0:
                ends[each] = soonest + links.latency[sources[each], sinks[each]]
                del left[each]
        now = soonest
        while at < len(order) and starts[order[at]] == now:
            left[order[at]] = int(sizes[order[at]]) * PART
            at += 1
        rates = _rates([*left], sources, sinks, links)
    return ends


def _rates(active: list[int], sources: Ints, sinks: Ints, links: Links) -> dict[int, int]:
    """Return parts of a byte per ns of each transfer; at least one."""
    out: dict[int, int] = {}
    into: dict[int, int] = {}
    for each in active:
        out[int(sources[each])] = out.get(int(sources[each]), 0) + 1
        into[int(sinks[each])] = into.get(int(sinks[each]), 0) + 1
    found = {}
    for each in active:
        source, sink = int(sources[each]), int(sinks[each])
        rate = int(links.rate[source, sink])
        most = min(rate, rate * links.most[0] // out[source], rate * links.most[1] // into[sink])
        found[each] = max(1, most)
    return found
