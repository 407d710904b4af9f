"""A graph with its routing, its failures, and switches that compute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from armillary.base.errors import InputError
from armillary.platform.network import InNetwork
from armillary.platform.topology.detours import Minimal, Ugal, Valiant
from armillary.platform.topology.dimension_order import DimensionOrder
from armillary.platform.topology.failures import Failure, degraded
from armillary.platform.topology.graph import Topology
from armillary.platform.topology.routing import Adaptive, Ecmp, Rail, Routing, Shortest, Static
from armillary.platform.topology.widest import Widest

RoutingName = Literal[
    "dimension-order",
    "shortest",
    "ecmp",
    "adaptive",
    "rail",
    "static",
    "widest",
    "minimal",
    "valiant",
    "ugal",
]


@dataclass(frozen=True)
class Network:
    """A described topology: the graph as built, the routing's name, what fails when, and what switches can do."""

    topology: Topology
    routing: RoutingName
    seed: int = 0
    failures: tuple[Failure, ...] = ()
    table: Path | None = None
    in_network: InNetwork | None = None
    """What `switches` can do; None: what the dimensions state from which the graph was built."""
    switches: tuple[int, ...] = ()
    assumed: tuple[str, ...] = ()
    """What its description leaves out and was assumed, a sentence each: stands above every result."""
    warnings: tuple[str, ...] = ()

    def at(self, time: float = 0.0) -> Routing:
        """Return the routing over the topology as it is at a time (ns)."""
        # Degraded afresh: failures change routes, and routings cache tables per topology.
        return routing_of(self.routing, degraded(self.topology, self.failures, time), self.seed, self.table)


def routing_of(name: RoutingName, topology: Topology, seed: int = 0, table: Path | None = None) -> Routing:
    """Return a routing by its name.

    Raises:
        InputError: The topology does not allow it, or a table is missing.
    """
    if name == "dimension-order":
        return DimensionOrder(topology)
    if name == "static":
        if table is None:
            raise InputError(
                f"{topology.name}: routing 'static' needs a table, expected a CSV file node,destination,next"
            )
        return Static.read(topology, table)
    if name == "shortest":
        return Shortest(topology)
    # Those that take a seed; RoutingName lets nothing else through.
    seeded: dict[str, Callable[[Topology, int], Routing]] = {
        "ecmp": Ecmp, "adaptive": Adaptive, "rail": Rail, "widest": Widest, "minimal": Minimal, "valiant": Valiant,
        "ugal": Ugal,
    }  # fmt: skip
    return seeded[name](topology, seed)
