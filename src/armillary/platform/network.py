"""Dimensions of a network: their topologies, what an NPU can send and receive, and the choice of a network model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from armillary.base.extension import ExtensionPoint
from armillary.platform.limits import (
    COUNT,
    MOST_COUNT,
    RATE,
    TEXT,
    TIME,
    Choice,
    Kind,
    Maybe,
    Number,
    check,
    refuse,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]


_PAIRS = 1 << 22
"""Pairs of places that are looked at together: 32 MB for each array of them."""


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

    def farthest(self, places: Ints, size: int) -> Ints:
        """Return how many links messages cross from each of `places`, in order, to the farthest of them."""
        import numpy as np

        # A block of rows at a time: all pairs of 20,000 places take 3 GB.
        block = max(1, _PAIRS // len(places))
        found = np.empty(len(places), np.int64)
        for start in range(0, len(places), block):
            here = places[start : start + block, None]
            far = np.where(here == places, 0, self.hops(here, places[None, :], size))
            found[start : start + block] = far.max(axis=1)
        return found


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

    def farthest(self, places: Ints, size: int) -> Ints:
        """See `DimensionTopology`."""
        import numpy as np

        # The farthest is one of the two places around the opposite one.
        after = np.searchsorted(places, (places + size // 2) % size)
        both = [self.hops(places, places[(after - back) % len(places)], size) for back in (0, 1)]
        far: Ints = np.maximum(*both)
        return far


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

    def farthest(self, places: Ints, size: int) -> Ints:
        """See `DimensionTopology`."""
        import numpy as np

        far: Ints = np.maximum(places - places[0], places[-1] - places)
        return far


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

    def farthest(self, places: Ints, size: int) -> Ints:
        """See `DimensionTopology`."""
        import numpy as np

        return np.full(len(places), self.apart if len(places) > 1 else 0, np.int64)


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


TopologyName = str
"""One of `dimension_topologies.TOPOLOGIES`."""
_TOPOLOGIES = Choice(TOPOLOGIES)


@dataclass(frozen=True)
class Port:
    """What one NPU can send and receive at the same time in one dimension: `out` and `into`, bytes per ns."""

    out: float
    into: float

    def __post_init__(self) -> None:
        """Validate the fields, see `armillary.platform.limits`."""
        check(self, out=RATE, into=RATE)

    @property
    def slower(self) -> float:
        """The lesser of both."""
        return min(self.out, self.into)


@dataclass(frozen=True)
class InNetwork:
    """In-network computing of a switch: it adds up what comes in, and multicasts.

    `rate` is what it adds of each port's data, bytes per ns, all ports at a time (0: as fast as data comes);
    `latency` is ns that every message of a collective spends in it besides. `operations` is the chunks
    of collectives that it works on at a time, further ones wait (0: no limit).
    """

    rate: float = 0.0
    latency: float = 0.0
    operations: int = 0

    def __post_init__(self) -> None:
        """Validate the fields, see `armillary.platform.limits`."""
        check(self, rate=Maybe(RATE, 0), latency=TIME, operations=Number(high=MOST_COUNT, whole=True))


@dataclass(frozen=True)
class Dimension:
    """One network dimension, innermost first: a Mesh is a line, a Torus the same as a Ring.

    `bandwidth` is bytes per ns of one link, which profile ``astra-sim`` uses; `port` what an NPU has in all,
    which ``physical`` uses (None: follows from the links, see `armillary.platform.model.ports`).
    `latency` is ns per link hop.
    """

    name: str
    topology: TopologyName
    size: int
    bandwidth: float
    latency: float
    port: Port | None = None
    in_network: InNetwork | None = None
    """In-network computing of a Switch; None: it only forwards."""

    def __post_init__(self) -> None:
        """Validate the fields, see `armillary.platform.limits`."""
        check(
            self, name=TEXT, topology=_TOPOLOGIES, size=COUNT, bandwidth=RATE, latency=TIME,
            port=Kind(Port, "a Port or None", none=True), in_network=Kind(InNetwork, "an InNetwork or None", none=True),
        )  # fmt: skip
        # After the name and size are known to be valid: TOPOLOGIES is indexed by the one, and asked about the
        # other.
        if problem := TOPOLOGIES[self.topology].refuses(self.size):
            raise refuse(self, ("size",), problem)
        if self.in_network is not None and self.topology != "Switch":
            raise refuse(
                self, (), f"got in_network for topology '{self.topology}', expected it for Switch only"
            )


def links_per_npu(topology: TopologyName, size: int) -> int:
    """Return how many links an NPU has in a dimension."""
    return TOPOLOGIES[topology].links(size)


def port(dimension: Dimension) -> Port:
    """Return what an NPU can send and receive in a dimension: as stated, or all of its links together."""
    if dimension.port is not None:
        return dimension.port
    # The links of an NPU can all be used at a time; a line's ends count as if they had two (see
    # `Mesh.links`).
    rate = dimension.bandwidth * links_per_npu(dimension.topology, dimension.size)
    return Port(rate, rate)


NETWORK_MODELS = ExtensionPoint(
    "armillary.transport", "network model", ("analytical", "loggops", "congestion", "flow", "packet", "ns3")
)
"""Models of profile physical. All but the first move messages."""
ASTRA_SIM_MODELS = ("analytical", "congestion")
"""Models of profile astra-sim."""


@dataclass(frozen=True)
class NetworkChoice:
    """The network model that a machine names.

    Attributes:
        name: One of `NETWORK_MODELS`; empty: analytical, or flow where the network is a graph.
        options: Of loggops or a model of another package (`Platform.packets` has those of packet).
        source: File, line and key of the setting, or empty.
        folder: What paths in the options are relative to.
    """

    name: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    source: str = field(default="", compare=False)
    folder: Path = field(default=Path(), compare=False)

    def __post_init__(self) -> None:
        """Validate the fields, see `armillary.platform.limits`."""
        # Empty is no name and means that the simulation or the profile chooses.
        if self.name != "":
            check(self, name=Choice(NETWORK_MODELS))
        check(self, options=Kind(Mapping, "a mapping"))
        # A built-in model would silently ignore options: those of packet are in `Platform.packets`.
        if (
            self.options
            and self.name != "loggops"
            and (not self.name or self.name in NETWORK_MODELS.built_in)
        ):
            raise refuse(
                self, ("options",), "expected only with loggops, or a network model of another package"
            )
