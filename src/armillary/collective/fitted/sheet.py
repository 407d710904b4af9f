"""What the data sheet of a GPU says about its links."""

from __future__ import annotations

from typing import Annotated

from armillary.base import units
from armillary.platform.fields import Bandwidth, Count, Part, Quantity

_Frequency = Annotated[float, Quantity(units.parse_frequency, "frequency", "1.98 GHz")]


class DataSheet(Part):
    """Of a GPU and the node it is usually in.

    Attributes:
        link: To the other GPUs of the node, each way, in bytes per ns.
        memory: Bandwidth of its memory, in bytes per ns.
        processors: Streaming multiprocessors or compute units.
        clock: The fastest of its processors, in Hz.
        reduces: Whether the switch of the node reduces and multicasts (NVLink SHARP).
        nic: Of the network, each way and per GPU, in bytes per ns.
        gpus: In a node.
        mesh: Whether each other GPU has a link of its own, so that few members use few links.
        sibling: The fit from which that of this device is derived where there is none.
        source: Where the numbers stand.
    """

    link: Bandwidth
    memory: Bandwidth
    processors: Count
    clock: _Frequency
    reduces: bool
    nic: Bandwidth
    gpus: Count
    mesh: bool = False
    sibling: str
    source: str
