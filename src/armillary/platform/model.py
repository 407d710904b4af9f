"""The machine as plain, immutable values: times in ns, sizes in bytes, rates in bytes per ns and FLOP/s."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from armillary.base.hints import show
from armillary.platform.algorithms import wrong_name
from armillary.platform.astra_sim_system import AstraSimSystem
from armillary.platform.collectives import (
    ALGORITHMS,
    ASTRA_SIM_ALGORITHMS,
    CHUNK_ORDERS,
    COLLECTIVES,
    PHYSICAL_COLLECTIVES,
)
from armillary.platform.groups import checked_groups
from armillary.platform.kernels import PRECISIONS, Compute, Jitter
from armillary.platform.limits import (
    COUNT,
    MOST_COUNT,
    POSITIVE,
    TEXT,
    TIME,
    Choice,
    Kind,
    Maybe,
    Number,
    check,
    check_table,
    refuse,
)
from armillary.platform.memory import LocalMemory, RemoteMemory
from armillary.platform.network import Dimension, Port, port
from armillary.platform.network_models import NetworkChoice
from armillary.platform.terms import FitChoice, Terms

if TYPE_CHECKING:
    from armillary.platform.topology.network import Network

SchedulingName = Literal["fair", "fifo", "lifo", "priority"]
WithinDimensionName = Literal["earliest-phase", "fifo", "smallest-first"]
ProfileName = Literal["physical", "astra-sim"]
CollectiveName = Literal[
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "reduce-scatter-block",
]


_SCHEDULING, _CHUNK_ORDERS = Choice(get_args(SchedulingName)), Choice(CHUNK_ORDERS)
_WITHIN = Choice(get_args(WithinDimensionName))
_PROTOCOLS = Choice(("lossless", "credit", "tcp"))
_RANK = Kind(object, "a rank")
"""How many there are the platform knows."""


PHYSICAL = {"profile": "physical"}
"""Metadata of a field that profile ``astra-sim`` refuses where its value is not the default."""


@dataclass(frozen=True)
class Npu:
    """One NPU, and the ranks whose NPU differs.

    Attributes:
        peak: FLOP/s of every precision, or those of each of `PRECISIONS`, of which ``bf16`` is a must; 0: not given.
        memory: Its local memory.
        endpoint_delay: ns of every message at its endpoint; None: 0, and 10 in profile ``astra-sim``.
        speed: Rank -> compute speed relative to the others; not listed: 1.
    """

    peak: float | dict[str, float] = 0.0
    memory: LocalMemory = field(default_factory=LocalMemory)
    endpoint_delay: float | None = None
    speed: dict[int, float] = field(default_factory=dict, metadata=PHYSICAL)

    def __post_init__(self) -> None:
        """Refuse what cannot be, see `armillary.platform.limits`."""
        if isinstance(self.peak, Mapping):
            check_table(self, "peak", Choice(PRECISIONS), POSITIVE)
            if "bf16" not in self.peak:
                raise refuse(self, ("peak",), "missing key 'bf16'")
        else:
            check(self, peak=Number())
        check(self, memory=Kind(LocalMemory, "a LocalMemory"), endpoint_delay=Maybe(TIME))
        check_table(self, "speed", _RANK, POSITIVE)

    @property
    def peak_flops(self) -> float:
        """FLOP/s of what names no precision; 0: not given."""
        return self.peak["bf16"] if isinstance(self.peak, Mapping) else self.peak

    @property
    def peaks(self) -> dict[str, float]:
        """Precision -> FLOP/s; empty where one peak holds for all."""
        return dict(self.peak) if isinstance(self.peak, Mapping) else {}

    @property
    def message_delay(self) -> float:
        """`endpoint_delay` in profile ``physical``, ns."""
        return float(self.endpoint_delay or 0)


@dataclass(frozen=True)
class Collectives:
    """How collectives run.

    Attributes:
        algorithms: Collective -> one name per dimension, as `platform.collectives.ALGORITHMS` lists them (``direct``
            may end in a window); a single ``one…`` name covers all dimensions. Not listed: natural. A machine of
            ASTRA-sim's files may list fewer names, and in that profile runs nothing that is not listed.
        chunks: Into which a collective is split.
        active_chunks: That may be in flight per dimension: in profile ``physical`` of a collective, on one line of
            NPUs, where messages are moved. 0: as many as hide latencies, and 1 in profile ``astra-sim``.
        chunk_order: Which dimensions each chunk visits first, see `armillary.collective.chunk_order`.
        within_dimension: Which chunk of a collective a dimension serves first.
        fit: What times collectives and messages instead of schedules; None: nothing.
    """

    algorithms: dict[str, tuple[str, ...]] = field(default_factory=dict)
    chunks: int = 1
    active_chunks: int = 0
    chunk_order: str = field(default="baseline", metadata=PHYSICAL)
    within_dimension: WithinDimensionName = field(default="earliest-phase", metadata=PHYSICAL)
    fit: FitChoice | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be, see `armillary.platform.limits`."""
        check(
            self, chunks=COUNT, active_chunks=Number(high=MOST_COUNT, whole=True), chunk_order=_CHUNK_ORDERS,
            within_dimension=_WITHIN, fit=Kind(FitChoice, "a FitChoice or None", none=True),
        )  # fmt: skip
        check_table(self, "algorithms", TEXT, Kind(tuple, "a tuple of names, one per dimension"))


@dataclass(frozen=True)
class Packets:
    """What network model ``packet`` moves: a protocol, and what is set of it, by the names of its fields."""

    protocol: Literal["lossless", "credit", "tcp"] = "lossless"
    options: dict[str, Any] = field(default_factory=dict)
    source: str = field(default="", compare=False)
    """The file, line and key that say so, or empty."""

    def __post_init__(self) -> None:
        """Refuse what cannot be, see `armillary.platform.limits`."""
        check(self, protocol=_PROTOCOLS, options=Kind(Mapping, "a mapping"))
        if not self.options:
            return  # most machines have none, and the rules need pydantic
        from armillary.platform.packet_options import wrong_packet_option

        place, problem = wrong_packet_option(self.protocol, self.options)
        if problem:
            raise refuse(self, ("options", *place), problem)

    @property
    def given(self) -> bool:
        """Whether anything was said of packets."""
        return bool(self.source) or self != Packets()


@dataclass(frozen=True)
class Platform:
    """A whole machine, in the parts and by the names of a study file: bytes per ns, ns and FLOP/s.

    Attributes:
        dimensions: Of the network, innermost first.
        npu: What an NPU is.
        compute: How compute nodes are timed.
        collectives: How collectives run.
        remote_memory: Outside of the NPUs.
        groups: Communicator id -> its ranks, in the order their file lists them.
        scheduling: Who uses a port first.
        stragglers: Rank -> ns that it starts late; not listed: 0.
        jitter: Random spread of compute durations; None: none.
        terms: What slows a step besides.
        packets: What network model ``packet`` moves.
        network_model: That of a simulation which names none.
        topology: Its graph, where it was described as one; then `dimensions` are what collectives take it for.
        astra_sim: What only profile ``astra-sim`` uses.
        dialect: Of the files that it was read from: of those of ASTRA-sim each profile makes what that program would.
        profile: What the file says of the profile: that of a simulation which names none.
        warnings: Of the reader.
        source: The file.
    """

    dimensions: tuple[Dimension, ...]
    npu: Npu = field(default_factory=Npu)
    compute: Compute = field(default_factory=Compute)
    collectives: Collectives = field(default_factory=Collectives)
    remote_memory: RemoteMemory = field(default_factory=RemoteMemory)
    groups: dict[int, tuple[int, ...]] = field(default_factory=dict)
    scheduling: SchedulingName = field(default="fair", metadata=PHYSICAL)
    stragglers: dict[int, float] = field(default_factory=dict, metadata=PHYSICAL)
    jitter: Jitter | None = field(default=None, metadata=PHYSICAL)
    terms: Terms = field(default_factory=Terms)
    packets: Packets = field(default_factory=Packets)
    network_model: NetworkChoice = field(default_factory=NetworkChoice)
    topology: Network | None = None
    astra_sim: AstraSimSystem = field(default_factory=AstraSimSystem)
    dialect: Literal["astra-sim", "native"] = "native"
    profile: ProfileName = "physical"
    warnings: tuple[str, ...] = ()
    source: Path | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be, see `armillary.platform.limits`."""
        _check_platform(self)

    @property
    def npus(self) -> int:
        """Number of NPUs: the product of the dimension sizes."""
        total = 1
        for dimension in self.dimensions:
            total *= dimension.size
        return total


def recorded_machine(npus: int) -> Platform:
    """Return a machine of `npus` NPUs on which compute, communication and memory take their recorded durations."""
    # The network carries nothing; a machine must have one.
    network = Dimension("recorded", "Switch", npus, bandwidth=1.0, latency=0.0)
    return Platform((network,), compute=Compute(replay=True))


def ports(platform: Platform) -> tuple[Port, ...]:
    """Return `port` of every dimension, in bytes per ns: the bandwidths that profile ``physical`` uses."""
    return tuple(map(port, platform.dimensions))


def _check_platform(platform: Platform) -> None:
    """Refuse a machine whose parts are of the wrong kind or do not fit each other.

    Raises:
        FieldError: names the field.
    """
    parts = {"npu": Npu, "compute": Compute, "collectives": Collectives, "remote_memory": RemoteMemory}
    parts |= {"terms": Terms, "packets": Packets, "astra_sim": AstraSimSystem, "network_model": NetworkChoice}
    check(
        platform, dimensions=Kind(tuple, "a tuple of Dimension"), scheduling=_SCHEDULING,
        jitter=Kind(Jitter, "a Jitter or None", none=True), dialect=Choice(("native", "astra-sim")),
        profile=Choice(get_args(ProfileName)), groups=Kind(dict, "a mapping of group id to ranks"),
        **{name: Kind(part, f"a {part.__name__}") for name, part in parts.items()},
    )  # fmt: skip
    check_table(platform, "stragglers", _RANK, TIME)
    for at, dimension in enumerate(platform.dimensions):
        if not isinstance(dimension, Dimension):
            raise refuse(platform, ("dimensions", at), f"got {show(dimension)}, expected a Dimension")
    npus = platform.npus
    if npus > MOST_COUNT:
        raise refuse(platform, ("dimensions",), f"has {npus} NPUs in all, expected at most {MOST_COUNT}")
    for place, table in ((("npu", "speed"), platform.npu.speed), (("stragglers",), platform.stragglers)):
        for rank in table:
            if isinstance(rank, bool) or not isinstance(rank, Integral) or not 0 <= int(rank) < npus:
                raise refuse(
                    platform, (*place, rank), f"got {show(rank)}, expected a rank from 0 to {npus - 1}"
                )
    for where, problem in checked_groups(platform.groups, npus):
        raise refuse(platform, ("groups", *where), problem)
    _check_algorithms(platform)
    fit, count = platform.collectives.fit, len(platform.dimensions)
    if fit and fit.inner > count:
        problem = f"got {fit.inner}, expected {count} or less, the dimensions"
        raise refuse(platform, ("collectives", "fit", "inner"), problem)


def _check_algorithms(platform: Platform) -> None:
    """Refuse names of algorithms that are none, and too many of them."""
    count, native = len(platform.dimensions), platform.dialect == "native"
    known = Choice(PHYSICAL_COLLECTIVES if native else COLLECTIVES)
    for kind, names in platform.collectives.algorithms.items():
        if problem := known(kind):
            raise refuse(platform, ("collectives", "algorithms"), problem)
        for at, name in enumerate(names):
            if problem := wrong_name(name, ALGORITHMS if native else ASTRA_SIM_ALGORITHMS):
                raise refuse(platform, ("collectives", "algorithms", kind, at), problem)
        short = native and len(names) != count
        if len(names) > count or (short and not (len(names) == 1 and names[0].startswith("one"))):
            problem = f"lists {len(names)} algorithms, expected {count}, one per network dimension"
            raise refuse(platform, ("collectives", "algorithms", kind), problem)
