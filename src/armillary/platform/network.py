"""The dimensions of a network as values, and what an NPU can send and receive in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from armillary.base.extension import ExtensionPoint
from armillary.platform.dimension_topologies import TOPOLOGIES
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
    "armillary.transport", "network model", ("analytical", "congestion", "flow", "packet", "ns3")
)
"""Models of profile physical. All but the first move messages."""
ASTRA_SIM_MODELS = ("analytical", "congestion")
"""Models of profile astra-sim."""


@dataclass(frozen=True)
class NetworkChoice:
    """The network model that a machine names.

    Attributes:
        name: One of `NETWORK_MODELS`; empty: analytical, or flow where the network is a graph.
        options: Of a model of another package; built-in ones have none (`Platform.packets` has those of packet).
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
        if self.options and (not self.name or self.name in NETWORK_MODELS.built_in):
            raise refuse(self, ("options",), "expected only with a network model of another package")
