"""Time of a collective over several nodes: steps of trees and rings, and the NICs.

The library reduces and gathers along rings and trees that run through all GPUs of a node and then over its NICs, one
NIC for each GPU (rail). The latency of a tree grows with log2(nodes) (Thakur et al., IJHPCA 2005), that of a ring with
its steps, and a large one takes the time of the NICs, where each of p members in a node carries 1/p of what its node
sends. In an all-to-all every member sends over its NIC what leaves the node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from armillary.base import portable
from armillary.collective.fitted.regimes import share


def nic_share(operation: str, per_node: int, nodes: int) -> float:
    """Return the bytes that the NIC of a member sends for each byte of the size."""
    members = per_node * nodes
    if operation == "all-to-all":
        return (members - per_node) / members
    if operation == "send":
        return 1.0
    # The NICs of a node share what the node sends.
    return share(operation, members) / per_node


def steps(operation: str, members: int) -> int:
    """Return the steps of a ring."""
    if operation == "send":
        return 1
    return (2 if operation == "all-reduce" else 1) * (members - 1)


@dataclass(frozen=True)
class Stage:
    """A regime over several nodes: latency of `base` + `hop` × log2(nodes) + `step` × steps of a ring.

    Attributes:
        up_to: The last size, in bytes, for which it holds.
        base: In ns.
        hop: In ns.
        step: In ns.
        load: Time at the NICs as a multiple of that of large sizes: protocols send flags along with data.
    """

    up_to: float
    base: float
    hop: float
    step: float
    load: float


@dataclass(frozen=True)
class Spanning:
    """One operation over several nodes.

    Attributes:
        nic: Members in a node -> bytes per ns that each one's NIC carries of a large size.
        stages: In the order of sizes.
    """

    nic: Mapping[int, float]
    stages: tuple[Stage, ...]

    def rate(self, per_node: int) -> float:
        """Return what a NIC carries where `per_node` members of a node use theirs: as for the nearest number known."""
        # Nearest on a log scale; of two equally near ones the lower.
        return self.nic[min(self.nic, key=lambda known: (abs(portable.log(known / per_node)), known))]

    def time(self, operation: str, per_node: int, nodes: int, size: float) -> tuple[float, float]:
        """Return (latency, transfer) in ns."""
        stage = next(stage for stage in self.stages if size <= stage.up_to)
        latency = (
            stage.base + stage.hop * portable.log2(nodes) + stage.step * steps(operation, per_node * nodes)
        )
        sent = size * nic_share(operation, per_node, nodes)
        return latency, stage.load * sent / self.rate(per_node)
