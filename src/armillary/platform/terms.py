"""What slows a training step besides its kernels and links, as terms that can be switched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from armillary.base.units import format_time
from armillary.platform.limits import COUNT, LONGER, RATE, SHARE_OR_NONE, TEXT, TIME, Kind, Number, check


@dataclass(frozen=True)
class HostPath:
    """What the host of a node carries between NPUs and NICs that are not near them, for a library that cannot relay.

    A ring over several nodes enters and leaves a node by one NIC. If that is near two of its members the ring begins at
    one and ends at the other; else data of all members but one goes through the processors of the host, unless the
    library relays it through the NPU next to the NIC (NCCL from 2.12 on, PXN).

    Attributes:
        bandwidth: Bytes per ns, of all groups of a node together.
        near: NPUs, neighbours in rank, that a NIC is near to.
    """

    bandwidth: float
    near: int = 2

    def __post_init__(self) -> None:
        """Validate the fields, see `armillary.platform.limits`."""
        check(self, bandwidth=RATE, near=COUNT)


@dataclass(frozen=True)
class FitChoice:
    """The fit that times collectives and messages.

    Attributes:
        name: Of a fit that comes with the package, or the path of a file.
        inner: Innermost dimensions that make up a node.
        folder: What a path is relative to.
        source: File, line and key of the setting, or empty.
        host: What data cross within a node to NICs; None: the library relays them.
        preset: The preset that brought it, if the user did not ask for it: it gives way to a network model that moves
            messages, with a warning.
    """

    name: str
    inner: int = 1
    folder: Path = Path()
    source: str = ""
    host: HostPath | None = None
    preset: str = ""

    def __post_init__(self) -> None:
        """Validate the fields, see `armillary.platform.limits`."""
        check(self, name=TEXT, inner=COUNT, host=Kind(HostPath, "a HostPath or None", none=True), preset=TEXT)


@dataclass(frozen=True)
class Terms:
    """Terms of a step, each 0 where it is off; see ``docs/how-to/interference.md``.

    Attributes:
        overlap_compute: Share by which a kernel takes longer while a collective moves data on its rank.
        overlap_processors: Processors (SMs) that a collective occupies while it moves data; kernels bound by
            computation lack them.
        overlap_traffic: Bytes that a collective moves through the memory for each byte that it sends; kernels bound by
            memory lack that bandwidth.
        overlap_communication: Share by which a collective takes longer while one of its ranks computes.
        communication: Share by which collectives and messages always take longer than alone.
        communication_inside: The same of those within a node only, besides.
        communication_between: The same of those between nodes only, besides.
        launch: ns between two kernels that a CPU can issue.
        straggler: Standard deviation of the speeds of ranks, relative to the mean.
        step_time: ns of an iteration outside of kernels.
        step_share: The same as a share of the rest.
    """

    overlap_compute: float = 0.0
    overlap_processors: float = field(default=0.0, kw_only=True)
    overlap_traffic: float = field(default=0.0, kw_only=True)
    overlap_communication: float = 0.0
    communication: float = 0.0
    communication_inside: float = field(default=0.0, kw_only=True)
    communication_between: float = field(default=0.0, kw_only=True)
    launch: float = 0.0
    straggler: float = 0.0
    step_time: float = 0.0
    step_share: float = 0.0

    def __post_init__(self) -> None:
        """Validate the fields, see `armillary.platform.limits`."""
        # Shares may be 0 (off) up to 100 %; times, numbers and communication have their own limits.
        rules = dict.fromkeys(TIMES, TIME) | dict.fromkeys(COMMUNICATION, LONGER) | NUMBERS
        check(self, **{each.name: rules.get(each.name, SHARE_OR_NONE) for each in fields(self)})

    @property
    def overlap(self) -> bool:
        """Whether computation and communication slow each other."""
        kernels = self.overlap_compute or self.overlap_processors or self.overlap_traffic
        return bool(kernels or self.overlap_communication)

    def communication_share(self, between: bool) -> float:
        """Return the share by which what is inside a node, or between nodes, takes longer than alone."""
        return self.communication + (self.communication_between if between else self.communication_inside)

    @property
    def slows_communication(self) -> bool:
        """Whether some collectives or messages take longer than alone."""
        return bool(self.communication or self.communication_inside or self.communication_between)

    @property
    def step(self) -> bool:
        """Whether an iteration takes time outside of kernels."""
        return bool(self.step_time or self.step_share)

    def on(self) -> dict[str, float]:
        """Return those that are on, by name."""
        return {each.name: value for each in fields(self) if (value := getattr(self, each.name))}

    def facts(self) -> dict[str, float]:
        """Return those that are on, by name and unit: ``overlap_compute_ratio``, ``launch_ns``."""
        return {f"{name}_{unit(name)}": value for name, value in self.on().items()}


TIMES = ("launch", "step_time")
"""Terms that are times."""
COMMUNICATION = ("communication", "communication_inside", "communication_between")
"""Terms that may more than double a time."""
PROCESSORS, TRAFFIC = Number(high=10_000), Number(high=100)
NUMBERS = {"overlap_processors": PROCESSORS, "overlap_traffic": TRAFFIC}
"""Terms that are plain numbers, and their rules; the others are shares."""


def unit(name: str) -> str:
    """Return the unit of a term, as keys of reports end."""
    return "ns" if name in TIMES else "number" if name in NUMBERS else "ratio"


def words(facts: Mapping[str, float]) -> str:
    """Return terms as people read them: "overlap compute 15 %, launch 5 µs"."""
    texts = []
    # The unit is the last part of the key: launch_ns, overlap_compute_ratio.
    for key, value in facts.items():
        name, _, of = key.rpartition("_")
        amount = (
            format_time(value) if of == "ns" else f"{value:g}" if of == "number" else f"{100 * value:g} %"
        )
        texts.append(f"{name.replace('_', ' ')} {amount}")
    return ", ".join(texts)
