"""The analytical network as ranks see it: hops and delays without contention, the unit of volumes, communicators."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from math import ceil
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError, nearest
from armillary.platform.model import Platform
from armillary.platform.network import TOPOLOGIES, Dimension
from armillary.trace import Graph
from armillary.trace.graph import LIMIT
from armillary.trace.trace import WORLD, define, definitions, recorded_world

Ranks = NDArray[np.int64]


def strides(dimensions: tuple[Dimension, ...]) -> list[int]:
    """Return the rank distance between neighbours of each dimension (dimension 0 is innermost)."""
    result = [1]
    for dimension in dimensions[:-1]:
        result.append(result[-1] * dimension.size)
    return result


def first_difference(dimensions: tuple[Dimension, ...], source: Ranks, destination: Ranks) -> Ranks:
    """Return the first dimension in which two ranks differ: a message is charged for that one only.

    ASTRA-sim's congestion-unaware backend does so (spec: 1(d)); 0 where the ranks are equal.
    """
    result = np.zeros(np.broadcast(source, destination).shape, np.int64)
    # Backwards, so that the lowest dimension in which they differ is written last and wins.
    for d, stride in reversed(list(enumerate(strides(dimensions)))):
        size = dimensions[d].size
        result = np.where((source // stride) % size != (destination // stride) % size, d, result)
    return result


def hops(dimension: Dimension, here: Ranks, there: Ranks) -> Ranks:
    """Return the links that a message crosses from position `here` of one dimension to position `there`."""
    return TOPOLOGIES[dimension.topology].hops(here, there, dimension.size)


def route(dimensions: tuple[Dimension, ...], source: Ranks, destination: Ranks) -> tuple[Ranks, Ranks]:
    """Return (dimension, hops) of the messages from `source` to `destination` (arrays of ranks)."""
    source, destination = np.asarray(source, np.int64), np.asarray(destination, np.int64)
    dimension = first_difference(dimensions, source, destination)
    count = np.zeros(dimension.shape, np.int64)
    for d, stride in enumerate(strides(dimensions)):
        here = dimension == d
        size = dimensions[d].size
        crossed = hops(dimensions[d], source // stride % size, destination // stride % size)
        # Only the first dimension that differs is charged.
        count = np.where(here, crossed, count)
    return dimension, count


def path(dimensions: tuple[Dimension, ...], source: Ranks, destination: Ranks) -> list[Ranks]:
    """Return for every dimension how many of its links lie between two ranks: all that a message crosses."""
    crossed = []
    for dimension, stride in zip(dimensions, strides(dimensions), strict=True):
        here, there = source // stride % dimension.size, destination // stride % dimension.size
        crossed.append(np.where(here == there, 0, hops(dimension, here, there)))
    return crossed


def path_between(dimensions: tuple[Dimension, ...], source: int, destination: int) -> tuple[int, ...]:
    """Return what `path` returns for two ranks."""
    return tuple(
        _hops_between(
            each.topology, each.size, source // stride % each.size, destination // stride % each.size
        )
        for each, stride in zip(dimensions, strides(dimensions), strict=True)
    )


@lru_cache(maxsize=1 << 14)
def _hops_between(topology: str, size: int, here: int, there: int) -> int:
    # Arrays of one number take longer than the question.
    return 0 if here == there else int(TOPOLOGIES[topology].hops(np.array(here), np.array(there), size))


def between(platform: Platform, dims: Iterable[int]) -> bool:
    """Tell whether what crosses these dimensions leaves a node.

    A node is what `collectives.node` says, else the first dimension.
    """
    inner = platform.collectives.fit.inner if platform.collectives.fit else 1
    return any(dim >= inner for dim in dims)


def node_size(platform: Platform) -> int:
    """Return the NPUs per node that the fit of a platform assumes."""
    assert platform.collectives.fit is not None
    return int(
        np.prod([dimension.size for dimension in platform.dimensions[: platform.collectives.fit.inner]])
    )


def delay(dimensions: tuple[Dimension, ...], dimension: Ranks, hop: Ranks, size: Ranks) -> Ranks:
    """Return ``trunc(hops * latency + bytes / bandwidth)`` in ns, one truncation per message."""
    latency = np.array([d.latency for d in dimensions])[dimension]
    bandwidth = np.array([d.bandwidth for d in dimensions])[dimension]
    # An overflow gives infinity, which `whole_ticks` refuses with a proper message.
    with np.errstate(over="ignore"):
        return whole_ticks(hop * latency + size / bandwidth, "a message")


def whole_ticks(ns: NDArray[np.floating[Any]], what: str) -> Ranks:
    """Cut times to whole ticks.

    Raises:
        InputError: one of them is too long to be counted.
    """
    # `not <` and not `>=`, so that NaN is refused, too.
    if ns.size and not ns.max() < LIMIT:
        raise InputError(f"{what} takes {ns.max():.3g} ns on this machine; expected less than {LIMIT:.3g} ns")
    return ns.astype(np.int64)


FRACTION_BITS = 20
MOST_BITS = 61
"""Volumes are counted in parts of a byte that keep them below 2 to this power."""


def bits(largest: int) -> int:
    """Return how many binary digits of a byte are counted if no volume is above `largest` bytes."""
    return max(0, min(FRACTION_BITS, MOST_BITS - largest.bit_length()))


@dataclass(frozen=True)
class Scale:
    """Units per byte: volumes are counted in parts of a byte, so that rates can be integers."""

    units: int

    def volume(self, size: int | Fraction) -> int:
        """Return bytes in units, rounded up."""
        return ceil(size * self.units)

    def rate(self, rate: float) -> int:
        """Return bytes per ns in units per tick, rounded down."""
        # Rates may be as good as infinite; clipped to what int64 holds.
        return int(min(rate * self.units, 1 << MOST_BITS))


@dataclass(frozen=True)
class CollectiveCall:
    """Everything that the members of a collective must agree on; equal calls share a plan."""

    comm: int
    operation: str
    size: int
    involved: tuple[bool, ...] | None
    custom: str = ""
    """Prefix of the traces that replace the algorithm."""
    root: int = 0
    """Rank a broadcast, reduce, gather or scatter has as root."""
    splits: tuple[tuple[int, ...], ...] = ()
    """Bytes from each member to each other one, of an all-to-all with sizes of its own."""
    pace: int = 0
    """Thousandths of the links' bandwidth that a kernel reaches which sends itself; 0: a library sends."""

    @cached_property
    def _hash(self) -> int:
        own = self.comm, self.operation, self.size, self.involved, self.custom, self.root
        return hash((*own, self.splits, self.pace))

    def __hash__(self) -> int:
        # `splits` may be thousands of numbers, and a call is looked up often.
        return self._hash

    @cached_property
    def anywhere(self) -> CollectiveCall:
        """The same call in the communicator of all ranks: what calls of groups that lie alike have in common."""
        return replace(self, comm=WORLD)

    def __getstate__(self) -> dict[str, object]:
        """Return the fields alone: hashes of texts differ between processes."""
        return {name: value for name, value in vars(self).items() if name not in ("_hash", "anywhere")}


@dataclass(frozen=True, eq=False)
class Communicator:
    """Ranks in the order of their group; `world`: it spans the machine and uses its topology."""

    number: int
    members: NDArray[np.int64]
    world: bool
    _positions: dict[tuple[int, ...], list[tuple[int, ...]]] = field(default_factory=dict, repr=False)
    _in_nodes: dict[int, tuple[int, int]] = field(default_factory=dict, repr=False)

    def positions(self, dimensions: tuple[Dimension, ...]) -> list[tuple[int, ...]]:
        """Return where in each dimension its members are, ascending."""
        # Every call of a communicator asks, and one may have as many members as the machine.
        key = tuple(dimension.size for dimension in dimensions)
        if key not in self._positions:
            self._positions[key] = []
            for stride, size in zip(strides(dimensions), key, strict=True):
                there = np.zeros(size, np.bool_)
                there[self.members // stride % size] = True
                self._positions[key].append(tuple(np.flatnonzero(there).tolist()))
        return self._positions[key]

    def in_nodes(self, size: int) -> tuple[int, int]:
        """Return how many members the fullest node of `size` NPUs has, and how many nodes have members."""
        if size not in self._in_nodes:
            counts = np.unique(self.members // size, return_counts=True)[1]
            self._in_nodes[size] = int(counts.max()), len(counts)
        return self._in_nodes[size]


class Communicators:
    """The communicators of a run, by group number; 0 is the world."""

    def __init__(self, platform: Platform) -> None:
        self.npus = platform.npus
        self.source = platform.source
        self.found: dict[int, Communicator] = {}
        self.groups = dict(platform.groups)

    @cached_property
    def _world(self) -> tuple[int, ...]:
        return tuple(range(self.npus))

    def get(self, number: int) -> Communicator:
        """Return communicator `number`, which must exist."""
        if number not in self.found:
            world = number == WORLD or len(self.groups[number]) == self.npus
            # The order of a group of all ranks matters to an all-to-all with sizes of its own.
            members = np.arange(self.npus) if number == WORLD else np.array(self.groups[number], np.int64)
            self.found[number] = Communicator(number, members, world)
        return self.found[number]

    def resolve(self, graph: Graph, position: int, name: str) -> int:
        """Return the group number that ``pg_name`` of a node means.

        Raises:
            InputError: no such group.
        """
        # Traces name the group of all ranks "0" or not at all.
        if name in ("", "0"):
            return WORLD
        try:
            number = int(name)
        except ValueError:
            number = -1
        if number not in self.groups:
            known = [str(n) for n in self.groups]
            hint = nearest(name, known) or (
                f" (groups: {', '.join(known[:8])})" if known else " (there are none)"
            )
            raise InputError(f"{graph.node(position)} has pg_name '{name}'; expected the id of a group{hint}")
        return number

    def read_metadata(self, graph: Graph) -> None:
        """Add the process groups that PyTorch's METADATA nodes define.

        Raises:
            InputError: the definition cannot be read, or contradicts another rank's.
        """
        recorded = recorded_world(graph)  # a replay of some ranks never asks who the others of a group are
        for position, text in definitions(graph):
            try:
                define(self.groups, text, self._world if self.npus >= recorded else tuple(range(recorded)))
            except ValueError as error:
                raise InputError(f"{graph.node(position)}: {error}") from error


Ints = NDArray[np.int64]


@dataclass(eq=False)
class QuotientComm:
    """A communicator of classes, made from a real one; `local` gives the index of each class in it."""

    number: int
    real: Communicator
    local: dict[int, int] = field(default_factory=dict)


class Slots(Protocol):
    """The part of a workload that `quotient_comms` uses."""

    @property
    def comms(self) -> Communicators:
        """The communicators by number."""

    def slots(self, rank: int) -> dict[int, int]:
        """See `Workload.slots`."""


def quotient_comms(
    workload: Slots, classes: Ints, representatives: Ints
) -> tuple[dict[tuple[int, int], QuotientComm], list[QuotientComm]]:
    """Return the communicators of the classes, by (class, slot) and in order.

    They are those of the representatives, merged where classes meet in them.
    """
    comm_at: dict[tuple[int, int], QuotientComm] = {}
    quotients: list[QuotientComm] = []
    for cls, rank in enumerate(representatives.tolist()):
        for number, slot in workload.slots(rank).items():
            # Met as a member of the communicator of a class before.
            if (cls, slot) in comm_at:
                continue
            comm = QuotientComm(len(quotients), workload.comms.get(number))
            quotients.append(comm)
            members = comm.real.members
            # Members of one class start at the same tick, so one of them is enough to tell when all have come.
            _, first = np.unique(classes[members], return_index=True)
            for member in members[np.sort(first)].tolist():
                # None: a member that never uses this group. It still counts, because the others wait for it.
                there = workload.slots(member).get(number)
                if there is not None:
                    comm_at[(int(classes[member]), there)] = comm
                comm.local[int(classes[member])] = len(comm.local)
    return comm_at, quotients


def quotient_lines(lines: Ints, classes: Ints) -> list[list[int]]:
    """Return the classes on lines of ranks, (lines, n), one line for each set of classes."""
    of_line = classes[lines]
    # A class may be known here by another rank than its representative: take its first on these lines.
    _, first = np.unique(of_line, return_index=True)
    found: list[list[int]] = []
    seen: set[int] = set()
    for at in np.sort(first).tolist():
        if int(of_line.flat[at]) not in seen:
            found.append(list(dict.fromkeys(of_line[at // lines.shape[1]].tolist())))
            seen.update(found[-1])
    return found
