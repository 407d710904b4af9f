"""What the data sheet of a GPU says about its links."""

from __future__ import annotations

from armillary.platform.schema_fields import Bandwidth, Count, Part


class DataSheet(Part):
    """Of a GPU and the node it is usually in.

    Attributes:
        link: To the other GPUs of the node, each way, in bytes per ns.
        memory: Bandwidth of its memory, in bytes per ns.
        processors: Streaming multiprocessors or compute units.
        reduces: Whether the switch of the node reduces and multicasts (NVLink SHARP).
        nic: Of the network, each way and per GPU, in bytes per ns.
        gpus: In a node.
        sibling: The fit from which that of this device is derived where there is none.
        source: Where the numbers stand.
    """

    link: Bandwidth
    memory: Bandwidth
    processors: Count
    reduces: bool
    nic: Bandwidth
    gpus: Count
    sibling: str
    source: str
