"""What ASTRA-sim's system file and command line say that a machine of profile ``physical`` has no counterpart for.

What both profiles know stands once, in `armillary.platform.model.Platform`: peaks and memory in `Npu`, algorithms and
chunks in `Collectives`. `armillary.platform.profiles` derives what one profile makes of the words of the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from armillary.platform.collectives import COLLECTIVES
from armillary.platform.limits import (
    COUNT,
    FLAG,
    TEXT,
    TIME,
    WHOLE_TIME,
    Choice,
    Kind,
    Number,
    check,
    check_table,
)

InterDimension = Literal["ascending", "roundRobin", "onlineGreedy", "offlineGreedy", "offlineGreedyFlex"]
"""Order in which chunks visit the dimensions."""
IntraDimension = Literal["FIFO", "RG", "smallestFirst", "lessRemainingPhaseFirst"]
"""Order in which phases that wait for a dimension are served."""
_INTER, _INTRA = Choice(get_args(InterDimension)), Choice(get_args(IntraDimension))
_OPTIMIZATIONS, _COLLECTIVES = Choice(("baseline", "localBWAware")), Choice(COLLECTIVES)


@dataclass(frozen=True)
class SharedBus:
    """LogGP parameters of the NPU-memory bus (``model-shared-bus``): L, o, g in ns, G in ns per byte."""

    L: int
    o: int
    g: int
    G: float

    def __post_init__(self) -> None:
        """Validate the fields, see `armillary.platform.limits`."""
        check(self, L=WHOLE_TIME, o=WHOLE_TIME, g=WHOLE_TIME, G=TIME)


@dataclass(frozen=True)
class AstraSimSystem:
    """What only profile ``astra-sim`` uses.

    Attributes:
        collective_optimization: ``localBWAware``: an all-reduce is a reduce-scatter in every dimension, then an
            all-gather back.
        local_reduction_delay: ns of a reduction on the shared bus.
        inter_dimension: The scheduler across dimensions.
        intra_dimension: The scheduler within a dimension.
        queues_per_dim: Queues of a dimension, among which its active chunks are divided.
        rendezvous: Whether receivers announce themselves before data is sent.
        shared_bus: None: the bus between NPU and memory is not modelled.
        custom: Collective -> prefix of the traces, one per rank, that replace its algorithm.
        custom_by_node: Workload node id -> such a prefix; wins over `custom`.
    """

    collective_optimization: Literal["baseline", "localBWAware"] = "baseline"
    local_reduction_delay: int = 1
    inter_dimension: InterDimension = "ascending"
    intra_dimension: IntraDimension = "FIFO"
    queues_per_dim: int = 1
    rendezvous: bool = False
    shared_bus: SharedBus | None = None
    custom: dict[str, str] = field(default_factory=dict)
    custom_by_node: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Validate the fields, see `armillary.platform.limits`."""
        check(
            self, collective_optimization=_OPTIMIZATIONS, local_reduction_delay=WHOLE_TIME, inter_dimension=_INTER,
            intra_dimension=_INTRA, queues_per_dim=COUNT, rendezvous=FLAG,
            shared_bus=Kind(SharedBus, "a SharedBus or None", none=True),
        )  # fmt: skip
        check_table(self, "custom", _COLLECTIVES, TEXT)
        check_table(self, "custom_by_node", Number(whole=True), TEXT)
