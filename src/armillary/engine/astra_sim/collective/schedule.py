"""A collective algorithm, written once: what each member sends, receives and reduces, and in what order.

Timing is that of a *chunk step pipeline* (the endpoint behaviour ASTRA-sim gives every native
collective). A member owns a counter of completed chunk steps and of received messages:

* at the start it inserts `Role.initial` chunk steps, and posts the transfers whose `after_done` is 0;
* every received message inserts one more chunk step;
* the k-th inserted chunk step takes the endpoint delay, plus the reduction delay of ``charges[k]``;
* when a chunk step completes, the pending transfers whose `after_done` and `after_received` are both
  reached are posted, in order, sends before the receive of the same index;
* the member is finished when all ``len(charges)`` chunk steps have completed.

Chunk steps complete in the order of their times, not of their insertion, and it is the count that matters.
Which data a transfer carries does not bear on time: see `armillary.engine.astra_sim.collective.dataflow`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

Relative = Literal["rotate", "pair", "absolute"]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Transfer:
    """A send or a posted receive of ``phase_bytes // divide * multiply`` bytes.

    `peer` is relative to the member (see `Schedule.relative`).
    """

    peer: int
    divide: int = 1
    multiply: int = 1
    after_done: int = 0
    after_received: int = 0


@dataclass(frozen=True)
class Charge:
    """The cost of one chunk step: a reduction of ``phase_bytes // divide * multiply`` bytes, or none."""

    reduce: bool = False
    divide: int = 1
    multiply: int = 1
    loads: int = 0


@dataclass(frozen=True, eq=False)
class Role:
    """What one member does, as columns: one row per send, per receive and per chunk step (charge).

    All arrays are int64 and shared between roles and calls: do not write to them.
    ``len(charge_reduce) == initial + len(recv_peer)``. `sends`, `receives` and `charges` give the
    same as tuples of `Transfer` and `Charge`, made on first use.
    """

    initial: int
    send_peer: IntArray
    send_div: IntArray
    send_mul: IntArray
    send_after_done: IntArray
    send_after_received: IntArray
    recv_peer: IntArray
    recv_div: IntArray
    recv_mul: IntArray
    recv_after_done: IntArray
    recv_after_received: IntArray
    charge_reduce: IntArray
    charge_div: IntArray
    charge_mul: IntArray
    charge_loads: IntArray
    """0: the chunk step leaves the NPU; 1: it comes from memory (received data); 2: it also goes back."""

    @classmethod
    def of(
        cls,
        initial: int,
        sends: Sequence[Transfer],
        receives: Sequence[Transfer],
        charges: Sequence[Charge],
    ) -> Role:
        """Build a role from transfers and charges."""
        moves = [
            np.array([getattr(t, name) for t in transfers], dtype=np.int64)
            for transfers in (sends, receives)
            for name in ("peer", "divide", "multiply", "after_done", "after_received")
        ]
        costs = [
            np.array([getattr(c, name) for c in charges], dtype=np.int64)
            for name in ("reduce", "divide", "multiply", "loads")
        ]
        return cls(initial, *moves, *costs)

    @cached_property
    def sends(self) -> tuple[Transfer, ...]:
        """The messages this member sends, in order."""
        return _transfers(
            self.send_peer, self.send_div, self.send_mul, self.send_after_done, self.send_after_received
        )

    @cached_property
    def receives(self) -> tuple[Transfer, ...]:
        """The receives this member posts, in order."""
        return _transfers(
            self.recv_peer, self.recv_div, self.recv_mul, self.recv_after_done, self.recv_after_received
        )

    @cached_property
    def charges(self) -> tuple[Charge, ...]:
        """The cost of each chunk step, in order of insertion."""
        columns = (
            self.charge_reduce.astype(bool), self.charge_div, self.charge_mul, self.charge_loads
        )  # fmt: skip
        return tuple(map(Charge, *(column.tolist() for column in columns)))


@dataclass(frozen=True, eq=False)
class Schedule:
    """An algorithm for `n` members and one operation.

    `relative`: "rotate" - the peer of member i is ``(i + peer) % n``; "pair" - members pair up at distance
    `peer`, in blocks of twice that (``i ^ peer`` for powers of two); "absolute" - `peer` itself. With
    the first two there is one role for all; with "absolute" ``roles[i]`` belongs to member i.
    """

    algorithm: str
    operation: str
    n: int
    relative: Relative
    roles: tuple[Role, ...]
    reverse: bool = False

    def role(self, member: int) -> Role:
        """Return the role of `member`."""
        return self.roles[member if self.relative == "absolute" else 0]

    def peer(self, member: int, transfer: Transfer) -> int:
        """Return the member on the other side of `transfer`."""
        return int(self.peers(np.array(member), np.array(transfer.peer)))

    def peers(self, member: IntArray, peer: IntArray) -> IntArray:
        """Return the members at relative `peer` of `member`, element by element."""
        if self.relative == "absolute":
            return np.broadcast_arrays(member, peer)[1]
        if self.relative == "pair":
            # Members of the lower half of each block of 2 * peer look up, those of the upper half down. A
            # peer of 0 would divide by zero.
            peer = np.where(member // np.maximum(peer, 1) % 2 == 0, peer, -peer)
        return (member + peer) % self.n

    def bytes_sent(self, member: int, phase_bytes: int) -> int:
        """Return the bytes that `member` sends in a phase of `phase_bytes`."""
        role = self.role(member)
        return int((phase_bytes // role.send_div * role.send_mul).sum())


def _transfers(*columns: IntArray) -> tuple[Transfer, ...]:
    return tuple(map(Transfer, *(column.tolist() for column in columns)))
