"""A collective algorithm, written once: what each member sends, receives and reduces, and in what order.

Timing is that of a *bundle pipeline* (the endpoint behaviour ASTRA-sim gives every native
collective). A member owns a counter of completed bundles and of received messages:

* at the start it inserts `Role.initial` bundles, and posts the transfers whose `after_done` is 0;
* every received message inserts one more bundle;
* the k-th inserted bundle takes the endpoint delay, plus the reduction delay of ``charges[k]``;
* when a bundle completes, the pending transfers whose `after_done` and `after_received` are both
  reached are posted, in order, sends before the receive of the same index;
* the member is finished when all ``len(charges)`` bundles have completed.

Bundles complete in the order of their times, not of their insertion, and it is the count that matters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Relative = Literal["rotate", "xor", "absolute"]


@dataclass(frozen=True)
class Transfer:
    """A send or a posted receive. Bytes are ``phase_bytes // divide * multiply``.

    `peer` is relative to the member (see `Schedule.relative`). `items` are the data blocks that
    move, and `reduce` says that the receiver adds them to its own: both serve correctness, not time.
    """

    peer: int
    divide: int = 1
    multiply: int = 1
    after_done: int = 0
    after_received: int = 0
    items: tuple[int, ...] = ()
    reduce: bool = False


@dataclass(frozen=True)
class Charge:
    """The cost of one bundle: a reduction of ``phase_bytes // divide * multiply`` bytes, or none."""

    reduce: bool = False
    divide: int = 1
    multiply: int = 1


@dataclass(frozen=True)
class Role:
    """What one member does; ``len(charges) == initial + len(receives)``."""

    initial: int
    sends: tuple[Transfer, ...]
    receives: tuple[Transfer, ...]
    charges: tuple[Charge, ...]


@dataclass(frozen=True)
class Schedule:
    """An algorithm for `n` members and one operation.

    `relative`: "rotate" - the peer of member i is ``(i + peer) % n``; "xor" - ``i ^ peer``;
    "absolute" - `peer` itself. With the first two there is one role for all; with "absolute"
    ``roles[i]`` belongs to member i.
    """

    algorithm: str
    operation: str
    n: int
    relative: Relative
    roles: tuple[Role, ...]

    def role(self, member: int) -> Role:
        """Return the role of `member`."""
        return self.roles[member if self.relative == "absolute" else 0]

    def peer(self, member: int, transfer: Transfer) -> int:
        """Return the member on the other side of `transfer`."""
        if self.relative == "rotate":
            return (member + transfer.peer) % self.n
        return member ^ transfer.peer if self.relative == "xor" else transfer.peer
