"""Communicators of the simulated classes: the quotient of the real ones by the fold."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from armillary.engine.common.communicators import Communicator, Communicators

Ints = NDArray[np.int64]


@dataclass(eq=False)
class QuotientComm:
    """A communicator of classes, made from a real one; `local` gives the index of each class in it."""

    number: int
    real: Communicator
    local: dict[int, int] = field(default_factory=dict)


class Slots(Protocol):
    """What `quotient_comms` asks a workload."""

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
            if (cls, slot) in comm_at:
                continue
            comm = QuotientComm(len(quotients), workload.comms.get(number))
            quotients.append(comm)
            members = comm.real.members
            # Members of one class start at the same tick, so one of them is enough to tell when all have come.
            _, first = np.unique(classes[members], return_index=True)
            for member in members[np.sort(first)].tolist():
                there = workload.slots(member).get(number)
                if there is not None:
                    comm_at[(int(classes[member]), there)] = comm
                comm.local[int(classes[member])] = len(comm.local)
    return comm_at, quotients
