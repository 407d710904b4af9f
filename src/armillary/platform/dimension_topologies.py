"""The topologies of a network dimension: how its NPUs are joined, and which link a message takes next.

This registry is all that the package knows of them by name. Study files, errors and help read the names; costs of
collectives, routes, graphs, bounds and pictures follow from `links`, `neighbours` and `step`. What can be had faster
than by following messages link by link has a closed form where it is needed (`collective.load` for lines and rings).
NumPy is imported where it is used: a machine can be stated without it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]


class DimensionTopology(ABC):
    """How the NPUs of a dimension are joined. Positions are numbers from 0 to size - 1; arrays of them broadcast.

    Attributes:
        natural: Collective algorithm that suits it; "": halving-doubling or ring, as the number of members allows.
        astra_sim: What profile astra-sim takes it for; "": it has none.
        shaped: Whether several of it are written as one, with a shape.
        loop: Whether it is a ring.
        turns: Whether it looks the same from every NPU: adding 1 to all positions maps its links onto each other.
        apart: Links between two NPUs that are next to each other.
    """

    natural: ClassVar[str] = ""
    astra_sim: ClassVar[str] = ""
    shaped: ClassVar[bool] = False
    loop: ClassVar[bool] = False
    turns: ClassVar[bool] = False
    apart: ClassVar[int] = 1

    # Most topologies take any size.
    def refuses(self, size: int) -> str:
        """Return what is wrong with a size, "got 6, expected a power of two"; "" for nothing."""
        return ""

    @abstractmethod
    def links(self, size: int) -> int:
        """Return how many links an NPU has, at least 1."""

    @abstractmethod
    def neighbours(self, size: int) -> Ints:
        """Return (links, size) the position at the other end of each link of each NPU; -1: it lacks that link."""

    @abstractmethod
    def step(self, here: Ints, there: Ints, size: int) -> Ints:
        """Return the position to which messages at `here` go next on their way to `there`, another position."""

    def hops(self, here: Ints, there: Ints, size: int) -> Ints:
        """Return how many links messages cross to another position."""
        import numpy as np

        at, target = np.broadcast_arrays(np.asarray(here, np.int64), np.asarray(there, np.int64))
        # Generic witness for topologies without a closed form: follow `step` until every message has arrived.
        count = np.zeros(at.shape, np.int64)
        while (moving := at != target).any():
            # Messages that have arrived must not step on: `step` is defined for another position only.
            count += moving
            at = np.where(moving, self.step(at, target, size), at)
        return count


def upwards(source: Ints, ahead: Ints, size: int) -> Bools:
    """Return whether messages go up a ring of `size`, from positions `source` to those `ahead` places further on.

    Half-way round both ways are as long. One message takes one way, as a connection does; even positions go up and odd
    ones down, so that both directions carry the same (Dally & Towles, Principles and Practices of Interconnection
    Networks, 2004, section 8.4.2).
    """
    # (2 * ahead == size) occurs in even rings only; parity of the source then balances both directions.
    up: Bools = (2 * ahead < size) | ((2 * ahead == size) & (source % 2 == 0))
    return up


class Ring(DimensionTopology):
    """Each NPU is joined with the next and the previous one, by two links each way in a ring of 2."""

    natural = "ring"
    astra_sim = "Ring"
    loop = turns = True

    def links(self, size: int) -> int:
        """See `DimensionTopology`."""
        # Also in a ring of 2, where both lead to the same neighbour.
        return 2

    def neighbours(self, size: int) -> Ints:
        """See `DimensionTopology`."""
        import numpy as np

        at = np.arange(size)
        return np.stack([(at + 1) % size, (at - 1) % size])

    def step(self, here: Ints, there: Ints, size: int) -> Ints:
        """Take the shorter way round, see `upwards`."""
        import numpy as np

        up = upwards(here, (there - here) % size, size)
        to: Ints = (here + np.where(up, 1, -1)) % size
        return to

    def hops(self, here: Ints, there: Ints, size: int) -> Ints:
        """See `DimensionTopology`."""
        import numpy as np

        ahead = np.mod(there - here, size)
        shorter: Ints = np.minimum(ahead, size - ahead)
        return shorter


class Torus(Ring):
    """A ring in each axis of its shape."""

    shaped = True


class Mesh(DimensionTopology):
    """A line, in each axis of its shape."""

    natural = "ring"
    shaped = True

    def links(self, size: int) -> int:
        """Return 2, though the ends have one: a port is what an NPU in the middle has."""
        return 2

    def neighbours(self, size: int) -> Ints:
        """See `DimensionTopology`."""
        import numpy as np

        # Position 0 has no predecessor: at - 1 is already -1 there, the mark of a missing link.
        at = np.arange(size)
        return np.stack([np.where(at + 1 < size, at + 1, -1), at - 1])

    def step(self, here: Ints, there: Ints, size: int) -> Ints:
        """See `DimensionTopology`."""
        import numpy as np

        to: Ints = here + np.sign(there - here)
        return to

    def hops(self, here: Ints, there: Ints, size: int) -> Ints:
        """See `DimensionTopology`."""
        import numpy as np

        line: Ints = np.abs(there - here)
        return line


class FullyConnected(DimensionTopology):
    """A link from each NPU to each other."""

    natural = "direct"
    astra_sim = "FullyConnected"
    turns = True

    def links(self, size: int) -> int:
        """See `DimensionTopology`."""
        return max(size - 1, 1)

    def neighbours(self, size: int) -> Ints:
        """See `DimensionTopology`."""
        # Row i is the peer i + 1 places further on, so that every row is a permutation and `turns` holds.
        import numpy as np

        return (np.arange(size) + np.arange(1, size)[:, None]) % size

    def step(self, here: Ints, there: Ints, size: int) -> Ints:
        """See `DimensionTopology`."""
        return there

    def hops(self, here: Ints, there: Ints, size: int) -> Ints:
        """See `DimensionTopology`."""
        import numpy as np

        return np.full(np.broadcast(here, there).shape, self.apart, np.int64)


class Switch(FullyConnected):
    """A link from each NPU to a switch, which is no position: a step crosses two links."""

    natural = ""
    astra_sim = "Switch"
    apart = 2

    def links(self, size: int) -> int:
        """See `DimensionTopology`."""
        return 1


TOPOLOGIES: dict[str, DimensionTopology] = {
    "Ring": Ring(),
    "FullyConnected": FullyConnected(),
    "Switch": Switch(),
    "Mesh": Mesh(),
    "Torus": Torus(),
}
"""Name -> topology, in the order of lists."""
