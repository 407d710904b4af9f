"""Collective calls, the communicators that run them, and the quotient communicators of simulated classes of ranks."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError, nearest
from armillary.platform.model import Platform
from armillary.trace import Graph
from armillary.trace.process_groups import WORLD, define, definitions, recorded_world


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


@dataclass(frozen=True, eq=False)
class Communicator:
    """Ranks in the order of their group; `world`: it spans the machine and uses its topology."""

    number: int
    members: NDArray[np.int64]
    world: bool


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
