"""The machine as plain, immutable values. Time is ns, sizes are bytes, unless a name says otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from armillary.base.hints import show
from armillary.platform.algorithms import Algorithm, wrong_name
from armillary.platform.collectives import ALGORITHMS, CHUNK_ORDERS, PHYSICAL_COLLECTIVES
from armillary.platform.groups import checked_groups
from armillary.platform.kernels import Jitter, KernelModel, Kernels
from armillary.platform.limits import (
    COUNT,
    FLAG,
    MOST_COUNT,
    POSITIVE,
    TEXT,
    TIME,
    WHOLE_TIME,
    Choice,
    Kind,
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


_COLLECTIVES = Choice(get_args(CollectiveName))
_SCHEDULING, _CHUNK_ORDERS = Choice(get_args(SchedulingName)), Choice(CHUNK_ORDERS)
_WITHIN = Choice(get_args(WithinDimensionName))
_OPTIMIZATIONS = Choice(("baseline", "localBWAware"))
_PROTOCOLS = Choice(("lossless", "credit", "tcp"))


@dataclass(frozen=True)
class SharedBus:
    """LogGP parameters of the NPU-memory bus (``model-shared-bus``): L, o, g in ns, G in ns per byte."""

    L: int
    o: int
    g: int
    G: float

    def __post_init__(self) -> None:
        """Refuse what cannot be, see `armillary.platform.limits`."""
        check(self, L=WHOLE_TIME, o=WHOLE_TIME, g=WHOLE_TIME, G=TIME)


InterDimension = Literal["ascending", "roundRobin", "onlineGreedy", "offlineGreedy", "offlineGreedyFlex"]
"""In which order chunks visit the dimensions."""
IntraDimension = Literal["FIFO", "RG", "smallestFirst", "lessRemainingPhaseFirst"]
"""In which order the phases that wait for a dimension go."""


_INTER, _INTRA = Choice(get_args(InterDimension)), Choice(get_args(IntraDimension))


@dataclass(frozen=True)
class System:
    """What an ASTRA-sim system file says; bandwidth in bytes/s, performance in FLOP/s, delays in ns."""

    collective_optimization: Literal["baseline", "localBWAware"] = "baseline"
    endpoint_delay: int = 10
    local_reduction_delay: int = 1
    inter_dimension: InterDimension = "ascending"
    intra_dimension: IntraDimension = "FIFO"
    active_chunks: int = 1
    dataset_splits: int = 1
    local_mem_bandwidth: float = 0.0
    peak_performance: float = 0.0
    roofline: bool = False
    replay_only: bool = False
    shared_bus: SharedBus | None = None
    algorithms: dict[str, tuple[Algorithm, ...]] = field(default_factory=dict)
    """CollectiveName -> one algorithm per dimension (possibly fewer than dimensions)."""
    custom: dict[str, str] = field(default_factory=dict)
    """CollectiveName -> prefix of the per-rank execution traces that replace the algorithm."""
    custom_by_node: dict[int, str] = field(default_factory=dict)
    """Workload node id -> such a prefix; wins over `custom`."""

    def __post_init__(self) -> None:
        """Refuse what cannot be, see `armillary.platform.limits`."""
        check(
            self, collective_optimization=_OPTIMIZATIONS, endpoint_delay=WHOLE_TIME, local_reduction_delay=WHOLE_TIME,
            inter_dimension=_INTER, intra_dimension=_INTRA, active_chunks=COUNT, dataset_splits=COUNT,
            local_mem_bandwidth=Number(), peak_performance=Number(), roofline=FLAG, replay_only=FLAG,
            shared_bus=Kind(SharedBus, "a SharedBus or None", none=True),
        )  # fmt: skip
        check_table(self, "algorithms", _COLLECTIVES, Kind(tuple, "a tuple of Algorithm, one per dimension"))
        check_table(self, "custom", _COLLECTIVES, TEXT)
        check_table(self, "custom_by_node", Number(whole=True), TEXT)


KEY = "key"
"""Metadata of a field that only profile ``physical`` models: its key in a platform file, see `only`."""


def only(*key: str) -> dict[str, tuple[str, ...]]:
    """Return the metadata of such a field; profile ``astra-sim`` refuses it where it is not what it is by default."""
    return {KEY: key}


@dataclass(frozen=True)
class Physical:
    """What only profile ``physical`` models; peak FLOP/s and memory bandwidth are those of `System`."""

    scheduling: SchedulingName = field(default="fair", metadata=only("scheduling"))
    algorithm: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Collective -> one name per dimension, as `platform.collectives.ALGORITHMS` lists them (``direct`` may end in a
    window) or ``natural`` or ``auto``; a single ``one…`` name covers all dimensions. Not listed: natural."""
    chunks: int = 1
    speed: dict[int, float] = field(default_factory=dict, metadata=only("npu", "speed"))
    """Rank -> compute speed relative to the others; not listed: 1."""
    delay: dict[int, float] = field(default_factory=dict, metadata=only("stragglers"))
    """Rank -> ns that it starts late; not listed: 0."""
    jitter: Jitter | None = field(default=None, metadata=only("jitter"))
    endpoint_delay: float = 0.0
    """Delay of every message at its endpoint, ns."""
    kernels: Kernels = field(default_factory=Kernels)
    active_chunks: int = 0
    """Chunks of a collective that may be under way at a time on one line of NPUs, where messages are moved; 0: as
    many as hide latencies."""
    chunk_order: str = field(default="baseline", metadata=only("collectives", "chunk_order"))
    """Which dimensions each chunk visits first, see `armillary.collective.chunk_order`."""
    within_dimension: WithinDimensionName = field(
        default="earliest-phase", metadata=only("collectives", "within_dimension")
    )
    """Which chunk of a collective a dimension serves first."""
    memory: LocalMemory = field(default_factory=LocalMemory)
    fit: FitChoice | None = None
    """What times collectives and messages instead of schedules; None: nothing."""
    terms: Terms = field(default_factory=Terms)

    def __post_init__(self) -> None:
        """Refuse what cannot be, see `armillary.platform.limits`."""
        check(
            self, scheduling=_SCHEDULING, chunks=COUNT, active_chunks=Number(high=MOST_COUNT, whole=True),
            endpoint_delay=TIME, chunk_order=_CHUNK_ORDERS, within_dimension=_WITHIN,
            jitter=Kind(Jitter, "a Jitter or None", none=True), kernels=Kind(Kernels, "a Kernels"),
            memory=Kind(LocalMemory, "a LocalMemory"), fit=Kind(FitChoice, "a FitChoice or None", none=True),
            terms=Kind(Terms, "a Terms"),
        )  # fmt: skip
        rank = Kind(object, "a rank")  # how many there are the platform knows
        check_table(self, "speed", rank, POSITIVE)
        check_table(self, "delay", rank, TIME)
        check_table(self, "algorithm", TEXT, Kind(tuple, "a tuple of names, one per dimension"))


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
    """A whole machine; `groups` are communicators in the order their file lists the ranks."""

    dimensions: tuple[Dimension, ...]
    system: System = field(default_factory=System)
    physical: Physical = field(default_factory=Physical)
    memory: RemoteMemory = field(default_factory=RemoteMemory)
    groups: dict[int, tuple[int, ...]] = field(default_factory=dict)
    queues_per_dim: int = 1
    rendezvous: bool = False
    dialect: Literal["astra-sim", "native"] = "native"
    profile: ProfileName = "physical"
    """What the file says of the profile: that of a simulation which names none."""
    warnings: tuple[str, ...] = ()
    source: Path | None = None
    topology: Network | None = None
    """Its graph, where it was described as one; then `dimensions` are what collectives take it for."""
    packets: Packets = field(default_factory=Packets)
    kernel_model: KernelModel = field(default_factory=KernelModel)
    network_model: NetworkChoice = field(default_factory=NetworkChoice)
    """What the file says of the network model: that of a simulation which names none."""

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
    return Platform((network,), System(replay_only=True))


def ports(platform: Platform) -> tuple[Port, ...]:
    """Return `port` of every dimension, in bytes per ns: the bandwidths that profile ``physical`` uses."""
    return tuple(map(port, platform.dimensions))


def _check_platform(platform: Platform) -> None:
    """Refuse a machine whose parts are of the wrong kind or do not fit each other.

    Raises:
        FieldError: names the field.
    """
    parts = {"system": System, "physical": Physical, "memory": RemoteMemory}
    parts |= {"packets": Packets, "kernel_model": KernelModel, "network_model": NetworkChoice}
    check(
        platform, dimensions=Kind(tuple, "a tuple of Dimension"), queues_per_dim=COUNT, rendezvous=FLAG,
        dialect=Choice(("native", "astra-sim")), profile=Choice(get_args(ProfileName)),
        groups=Kind(dict, "a mapping of group id to ranks"),
        **{name: Kind(part, f"a {part.__name__}") for name, part in parts.items()},
    )  # fmt: skip
    for at, dimension in enumerate(platform.dimensions):
        if not isinstance(dimension, Dimension):
            raise refuse(platform, ("dimensions", at), f"got {show(dimension)}, expected a Dimension")
    npus = platform.npus
    if npus > MOST_COUNT:
        raise refuse(platform, ("dimensions",), f"has {npus} NPUs in all, expected at most {MOST_COUNT}")
    for name in ("speed", "delay"):
        for rank in getattr(platform.physical, name):
            if isinstance(rank, bool) or not isinstance(rank, Integral) or not 0 <= int(rank) < npus:
                problem = f"got {show(rank)}, expected a rank from 0 to {npus - 1}"
                raise refuse(platform, ("physical", name, rank), problem)
    for place, problem in checked_groups(platform.groups, npus):
        raise refuse(platform, ("groups", *place), problem)
    _check_algorithms(platform)
    fit, count = platform.physical.fit, len(platform.dimensions)
    if fit and fit.inner > count:
        problem = f"got {fit.inner}, expected {count} or less, the dimensions"
        raise refuse(platform, ("physical", "fit", "inner"), problem)


def _check_algorithms(platform: Platform) -> None:
    """Refuse names of algorithms that are none, and too many of them."""
    count = len(platform.dimensions)
    known = Choice(PHYSICAL_COLLECTIVES)
    for kind, names in platform.physical.algorithm.items():
        if problem := known(kind):
            raise refuse(platform, ("physical", "algorithm"), problem)
        for at, name in enumerate(names):
            if problem := wrong_name(name, ALGORITHMS):
                raise refuse(platform, ("physical", "algorithm", kind, at), problem)
        short = platform.dialect == "native" and len(names) != count
        if len(names) > count or (short and not (len(names) == 1 and names[0].startswith("one"))):
            problem = f"lists {len(names)} algorithms, expected {count}, one per network dimension"
            raise refuse(platform, ("physical", "algorithm", kind), problem)
    for kind, algorithms in platform.system.algorithms.items():
        if len(algorithms) > count:
            problem = (
                f"lists {len(algorithms)} algorithms, expected at most {count}, one per network dimension"
            )
            raise refuse(platform, ("system", "algorithms", kind), problem)


def local_speed(platform: Platform, store: bool) -> float:
    """Return the bytes per ns of accesses of local memory, 0 if nothing says so."""
    own = platform.physical.memory
    return (own.write if store else own.read) or platform.system.local_mem_bandwidth / 1e9
