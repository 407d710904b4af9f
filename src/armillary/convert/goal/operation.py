"""One operation of a GOAL schedule."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["send", "recv", "calc"]
ANY = -1
"""Source or tag of a receive that takes every one."""
MOST_RANKS = 1 << 20
MOST_CPUS = 256
"""CPUs of a rank, and NICs: a binary schedule has a byte for either."""
CPU, NIC = "goal_cpu", "goal_nic"
"""Attributes of nodes of a trace that was a schedule: a schedule made of it has them again."""


@dataclass
class Operation:
    """One operation of a rank.

    Attributes:
        kind: What it is.
        amount: Bytes of a message, ns of a computation.
        peer: Rank on the other side; `ANY` of a receive from anyone.
        tag: Of the message; `ANY` of a receive of any.
        cpu: Which of the rank's CPUs runs it.
        nic: Through which of its NICs the message goes.
        ended: Operations of the rank that end before it starts, by number.
        started: Those that start before it does.
    """

    kind: Kind
    amount: int
    peer: int = ANY
    tag: int = 0
    cpu: int = 0
    nic: int = 0
    ended: list[int] = field(default_factory=list)
    started: list[int] = field(default_factory=list)
