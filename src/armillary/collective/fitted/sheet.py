"""Data sheets of devices: what a fit takes from them."""

from __future__ import annotations

from typing import Annotated, Literal

from armillary.base import units
from armillary.platform.fields import Bandwidth, Count, Part, Quantity

Generation = Literal["volta", "ampere", "hopper", "blackwell"]
_Frequency = Annotated[float, Quantity(units.parse_frequency, "frequency", "1.98 GHz")]


class DataSheet(Part):
    """Data sheet of a GPU and of its usual node.

    Attributes:
        link: Bandwidth to the other GPUs of the node, each way, in bytes per ns.
        memory: Bandwidth of its memory, in bytes per ns.
        processors: Streaming multiprocessors or compute units.
        clock: The fastest of its processors, in Hz.
        reduces: Whether the switch of the node reduces and multicasts (NVLink SHARP).
        nic: Bandwidth of the network, each way and per GPU, in bytes per ns.
        gpus: GPUs in a node.
        mesh: Whether each other GPU has a link of its own, so that few members use few links.
        generation: Of NVIDIA's, as whose NCCL is taken to choose protocols (`tuning`).
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
    generation: Generation = "hopper"
    sibling: str
    source: str
