"""All-gather, reduce-scatter and all-reduce, found for one network."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from armillary.base.errors import InputError, nearest, one_of
from armillary.collective.synthesis.edges import Edges
from armillary.collective.synthesis.search import Request, best_spread, chunk_bytes
from armillary.collective.synthesis.spread import Spread
from armillary.platform.topology.graph import Topology
from armillary.platform.topology.network import Network
from armillary.platform.topology.routing import Routing, Shortest

OPERATIONS = ("all-reduce", "all-gather", "reduce-scatter")
TRIES = 4
LARGEST = 1 << 46
MOST_CHUNKS = 1 << 10
"""Of an NPU's share; all chunks that lack are looked at for each send."""


@dataclass(frozen=True, eq=False)
class SynthesizedSchedule:
    """A collective as sends: first `scatter` backwards in time, then `gather`; None where the operation has none.

    Attributes:
        operation: One of `OPERATIONS`.
        size: Bytes of the vector: of an all-reduce, of every input of a reduce-scatter, of all that is gathered.
        per_npu: Chunks of each NPU's share.
    """

    operation: str
    size: int
    per_npu: int
    scatter: Spread | None
    gather: Spread | None

    @property
    def parts(self) -> tuple[Spread, ...]:
        """What it is made of, in order."""
        return tuple(part for part in (self.scatter, self.gather) if part)

    @property
    def n(self) -> int:
        """Number of NPUs."""
        return self.parts[0].edges.n

    @property
    def edges(self) -> Edges:
        """The edges that its messages take."""
        return self.gather.edges if self.gather else self.parts[0].edges.reversed(0)

    @property
    def chunk(self) -> int:
        """Bytes of a message."""
        return chunk_bytes(self.size, self.n, self.per_npu)

    @property
    def predicted(self) -> float:
        """Time that the search found for it, ns: parts one after the other."""
        return sum(part.end for part in self.parts) / 1000

    @property
    def messages(self) -> int:
        """Number of messages."""
        return sum(len(part.edge) for part in self.parts)


def synthesize(
    network: Topology | Network | Routing,
    operation: str,
    size: int,
    *,
    chunks_per_npu: int | None = None,
    seed: int = 0,
    tries: int = TRIES,
    memory_bandwidth: float = 0.0,
    endpoint_delay: float = 0.0,
) -> SynthesizedSchedule:
    """Find a schedule for a collective on a network.

    The search is greedy on the network expanded in time, as TACOS's (Won et al., MICRO 2024); where all NPUs are alike,
    it looks for the tree of one.

    Args:
        network: A graph, one with its routing (as it is at the start), or a routing.
        operation: all-reduce, all-gather or reduce-scatter, among all NPUs.
        size: Bytes, see `SynthesizedSchedule.size`.
        chunks_per_npu: Chunks of each NPU's share; None: several numbers are tried.
        seed: Random seed; the same seed gives the same schedule.
        tries: How many seeds, from `seed` on, are tried.
        memory_bandwidth: At which an NPU adds what it gets, bytes/s; 0: in no time.
        endpoint_delay: Between the arrival of a message and its use, ns.

    Raises:
        InputError: an unknown operation, a bad number, or not all NPUs can reach each other.
    """
    if operation not in OPERATIONS:
        hint = nearest(operation, OPERATIONS)
        raise InputError(
            f"unknown operation '{operation}' to synthesize: expected {one_of(OPERATIONS)}{hint}"
        )
    routing = _routing(network)
    n = routing.topology.npus
    if n < 2:
        raise InputError(f"{routing.topology.called}: has {n} NPU; expected at least 2 for a collective")
    for what, value, most in (
        ("size", size, LARGEST), ("chunks per NPU", chunks_per_npu or 1, MOST_CHUNKS), ("tries", tries, 1000),
    ):  # fmt: skip
        if not 1 <= value <= most:
            raise InputError(f"{what}: got {value}, expected 1 to {most}")
    request = Request(size, chunks_per_npu, seed, tries, ceil(endpoint_delay) * 1000)
    if operation == "all-gather":
        gather = best_spread(routing, request)
        return SynthesizedSchedule(operation, size, gather.per_npu, None, gather)
    # Only sums take time to add; the all-gather that follows copies.
    scatter = best_spread(routing, replace(request, memory_bandwidth=memory_bandwidth), backwards=True)
    per_npu = scatter.per_npu
    if operation == "reduce-scatter":
        return SynthesizedSchedule(operation, size, per_npu, scatter, None)
    gather = _last_first(best_spread(routing, replace(request, per_npu=per_npu)))
    return SynthesizedSchedule(operation, size, per_npu, scatter, gather)


def _last_first(gather: Spread) -> Spread:
    """Return the same with each NPU's chunks in the other order: the sums that are ready first are gathered first."""
    per_npu = gather.per_npu
    return replace(gather, chunk=gather.chunk + np.int32(per_npu - 1) - gather.chunk % np.int32(per_npu) * 2)


def _routing(network: Topology | Network | Routing) -> Routing:
    topology = network if isinstance(network, Topology) else network.topology
    if topology.planes > 1:
        # A message of a schedule has one route, which would leave all planes but one idle.
        raise InputError(
            f"{topology.called}: {topology.planes} planes, expected 1 for a synthesized collective"
        )
    if isinstance(network, Routing):
        return network
    return network.at() if isinstance(network, Network) else Shortest(network)
