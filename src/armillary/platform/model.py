"""The machine as plain, immutable values. Time is ns, sizes are bytes, unless a name says otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from armillary.base.extension import ExtensionPoint
from armillary.platform.collectives import ASTRA_SIM_ALGORITHMS, CHUNK_ORDERS
from armillary.platform.document import show
from armillary.platform.limits import (
    BYTES,
    COUNT,
    FLAG,
    MOST_COUNT,
    POSITIVE,
    RATE,
    SEED,
    SHARE,
    TEXT,
    TIME,
    WHOLE_TIME,
    Choice,
    Kind,
    Maybe,
    Number,
    check,
    check_table,
    refuse,
)
from armillary.platform.terms import FitChoice, Terms

if TYPE_CHECKING:
    from armillary.platform.topology.description import Network

TopologyName = Literal["Ring", "FullyConnected", "Switch", "Mesh", "Torus"]
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

PRECISIONS = ("fp32", "bf16", "fp8", "fp4")
"""Of matrix products: values of the attribute ``precision`` of a compute node, ``bf16`` where it has none."""


_TOPOLOGIES = Choice(get_args(TopologyName))
_ALGORITHMS = Choice(ASTRA_SIM_ALGORITHMS)
_COLLECTIVES = Choice(get_args(CollectiveName))
_SCHEDULING, _CHUNK_ORDERS = Choice(get_args(SchedulingName)), Choice(CHUNK_ORDERS)
_WITHIN = Choice(get_args(WithinDimensionName))
_OPTIMIZATIONS = Choice(("baseline", "localBWAware"))
_STAGES = Choice(("npu", "node", "machine"))
_MEMORIES = Choice(("none", "per-npu", "per-node", "pool", "hierarchical"))
_PROTOCOLS = Choice(("lossless", "credit", "tcp"))


@dataclass(frozen=True)
class Port:
    """What one NPU can send and receive at the same time in one dimension: `out` and `into`, bytes per ns."""

    out: float
    into: float

    def __post_init__(self) -> None:
        """Refuse what cannot be, see `armillary.platform.limits`."""
        check(self, out=RATE, into=RATE)

    @property
    def slower(self) -> float:
        """The lesser of both."""
        return min(self.out, self.into)


@dataclass(frozen=True)
class InNetwork:
    """What a switch does with data that passes: it adds up what comes in, and multicasts.

    `rate` is what it adds of each port's data, bytes per ns, all ports at a time (0: as fast as data comes);
    `latency` is ns that every message of a collective spends in it besides. `operations` is the chunks
    of collectives that it works on at a time, further ones wait (0: no limit).
    """

    rate: float = 0.0
    latency: float = 0.0
    operations: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be, see `armillary.platform.limits`."""
        check(self, rate=Maybe(RATE, 0), latency=TIME, operations=Number(high=MOST_COUNT, whole=True))


@dataclass(frozen=True)
class Dimension:
    """One network dimension, innermost first: a Mesh is a line, a Torus the same as a Ring.

    `bandwidth` is bytes per ns of one link, which profile ``astra-sim`` uses; `port` what an NPU has in all,
    which ``physical`` uses (None: follows from the links, see `armillary.platform.bandwidth.ports`).
    `latency` is ns per link hop.
    """

    name: str
    topology: TopologyName
    size: int
    bandwidth: float
    latency: float
    port: Port | None = None
    in_network: InNetwork | None = None
    """What the switches of a Switch do besides; None: they only pass on."""

    def __post_init__(self) -> None:
        """Refuse what cannot be, see `armillary.platform.limits`."""
        check(
            self, name=TEXT, topology=_TOPOLOGIES, size=COUNT, bandwidth=RATE, latency=TIME,
            port=Kind(Port, "a Port or None", none=True), in_network=Kind(InNetwork, "an InNetwork or None", none=True),
        )  # fmt: skip
        if self.in_network is not None and self.topology != "Switch":
            raise refuse(
                self, (), f"got in_network for topology '{self.topology}', expected it for Switch only"
            )


@dataclass(frozen=True)
class Algorithm:
    """A collective algorithm of one dimension, e.g. ``ring``, ``direct`` with a window, ``oneRing``.

    `name` is one of `platform.collectives.ASTRA_SIM_ALGORITHMS`; `window`
    limits the messages in flight of the direct ones (None: no limit).
    """

    name: str
    window: int | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be, see `armillary.platform.limits`."""
        check(self, name=_ALGORITHMS, window=Maybe(COUNT))


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


@dataclass(frozen=True)
class Jitter:
    """Random spread of compute durations: `sigma` relative to the duration, 0.05 is 5 %."""

    sigma: float
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be, see `armillary.platform.limits`."""
        check(self, sigma=SHARE, seed=SEED)


@dataclass(frozen=True)
class Kernels:
    """What kernels reach of an NPU in the roofline model.

    Attributes:
        peaks: Precision (`PRECISIONS`) -> FLOP/s; empty: `System.peak_performance` for every precision.
        compute: Share of the peak that matrix products reach.
        memory: Share of the local memory bandwidth.
        overhead: ns that every kernel takes besides.
    """

    peaks: dict[str, float] = field(default_factory=dict)
    compute: float = 1.0
    memory: float = 1.0
    overhead: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what cannot be, see `armillary.platform.limits`."""
        check(self, compute=SHARE, memory=SHARE, overhead=TIME)
        check_table(self, "peaks", Choice(PRECISIONS), POSITIVE)
        if self.peaks and "bf16" not in self.peaks:
            raise refuse(self, ("peaks",), "missing key 'bf16'")


@dataclass(frozen=True)
class LocalMemory:
    """What only profile ``physical`` models of an NPU's memory.

    Attributes:
        capacity: Bytes; 0: not given.
        latency: ns until the first byte.
        read: Bytes per ns of a load from it; 0: not given.
        write: The same of a store.
    """

    capacity: int = 0
    latency: float = 0.0
    read: float = 0.0
    write: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what cannot be, see `armillary.platform.limits`."""
        check(self, capacity=BYTES, latency=TIME, read=Maybe(RATE, 0), write=Maybe(RATE, 0))


KERNEL_KINDS = ("gemm", "flops", "memory", "unknown")
"""Products of known shape; other operations, such as fused attention; bytes only; nothing but a recorded duration."""
FACTOR = Number(high=1e9, above=True)
"""Of a time."""
QUANTILE = Number(high=1e3, above=True)
"""Of measured over predicted times."""
COMPUTE_MODELS = ExtensionPoint(
    "armillary.compute", "compute model", ("roofline", "gpu", "tiled", "table", "systolic", "subprocess")
)


@dataclass(frozen=True)
class Override:
    """What is known better of some kernels; exactly one of `duration`, `factor` and `efficiency` is given.

    Attributes:
        name: Pattern of their names, as of files: ``*.attend``.
        kind: Of what they do, see `armillary.compute.KINDS`; empty: any.
        duration: ns that each takes.
        factor: Times what the model says.
        efficiency: Share of the peaks that they reach in the roofline model.
    """

    name: str = "*"
    kind: str = ""
    duration: float | None = None
    factor: float | None = None
    efficiency: float | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be, see `armillary.platform.limits`."""
        check(
            self, name=TEXT, kind=Choice(("", *KERNEL_KINDS)), duration=Maybe(TIME), factor=Maybe(FACTOR),
            efficiency=Maybe(SHARE),
        )  # fmt: skip
        if sum(each is not None for each in (self.duration, self.factor, self.efficiency)) != 1:
            raise refuse(self, (), "expected exactly one of duration, factor and efficiency")


@dataclass(frozen=True)
class Interval:
    """Of 80 % of measured steps: `low` and `high` are measured over predicted times, `of` says which steps."""

    low: float
    high: float
    of: str = ""

    def __post_init__(self) -> None:
        """Refuse what cannot be, see `armillary.platform.limits`."""
        check(self, low=QUANTILE, high=QUANTILE, of=TEXT)
        if self.low > self.high:
            raise refuse(self, (), f"got low {self.low} above high {self.high}, expected at most as much")


@dataclass(frozen=True)
class KernelModel:
    """What times compute nodes where `System.roofline` is set: a model of `armillary.compute`.

    Attributes:
        name: ``roofline``, another built-in model, or one of another package.
        options: Of the model.
        overrides: The first that fits a kernel counts; they also hold for recorded durations.
        source: The file, line and key that say so, or empty.
        folder: What paths are relative to.
        uncertainty: How far measured steps lie from predicted ones; None: not known.
    """

    name: str = "roofline"
    options: dict[str, Any] = field(default_factory=dict)
    overrides: tuple[Override, ...] = ()
    source: str = field(default="", compare=False)
    folder: Path = field(default=Path(), compare=False)
    uncertainty: Interval | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be, see `armillary.platform.limits`."""
        options, overrides = Kind(Mapping, "a mapping"), Kind(tuple, "a tuple of Override")
        uncertainty = Kind(Interval, "an Interval or None", none=True)
        check(
            self, name=Choice(COMPUTE_MODELS), options=options, overrides=overrides, uncertainty=uncertainty
        )
        from armillary.platform.option_rules import wrong_model_option

        place, problem = wrong_model_option(self.name, self.options)
        if problem:
            raise refuse(self, ("options", *place), problem)
        for at, each in enumerate(self.overrides):
            if not isinstance(each, Override):
                raise refuse(self, ("overrides", at), f"got {show(each)}, expected an Override")


@dataclass(frozen=True)
class Physical:
    """What only profile ``physical`` models; peak FLOP/s and memory bandwidth are those of `System`."""

    scheduling: SchedulingName = "fair"
    algorithm: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Collective -> one name per dimension, as `platform.collectives.ALGORITHMS` lists them (``direct`` may end in a
    window) or ``natural`` or ``auto``; a single ``one…`` name covers all dimensions. Not listed: natural."""
    chunks: int = 1
    speed: dict[int, float] = field(default_factory=dict)
    """Rank -> compute speed relative to the others; not listed: 1."""
    delay: dict[int, float] = field(default_factory=dict)
    """Rank -> ns that it starts late; not listed: 0."""
    jitter: Jitter | None = None
    endpoint_delay: float = 0.0
    """Delay of every message at its endpoint, ns."""
    kernels: Kernels = field(default_factory=Kernels)
    active_chunks: int = 0
    """Chunks of a collective that may be under way at a time on one line of NPUs, where messages are moved; 0: as
    many as hide latencies."""
    chunk_order: str = "baseline"
    """Which dimensions each chunk visits first, see `armillary.collective.chunk_order`."""
    within_dimension: WithinDimensionName = "earliest-phase"
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
class MemoryStage:
    """Alike devices or links that every transfer to or from a hierarchical memory crosses; it is spread over all.

    Attributes:
        name: For people.
        per: What has them for itself: an ``npu``, a ``node`` or the whole ``machine``.
        count: How many it has.
        read: Bytes per ns of one, towards the NPU.
        write: The same away from it, at the same time.
        latency: ns.
    """

    name: str
    per: Literal["npu", "node", "machine"]
    count: int
    read: float
    write: float
    latency: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what cannot be, see `armillary.platform.limits`."""
        check(self, name=TEXT, per=_STAGES, count=COUNT, read=RATE, write=RATE, latency=TIME)


@dataclass(frozen=True)
class RemoteMemory:
    """Remote memory: latency ns, bandwidth bytes per ns (whole number; 0 = infinite).

    A hierarchical one has neither, but `stages`, from the memory to the NPU, and moves `chunk` bytes at a time.
    """

    kind: Literal["none", "per-npu", "per-node", "pool", "hierarchical"] = "none"
    latency: int = 0
    bandwidth: int = 0
    npus_per_node: int = 0
    stages: tuple[MemoryStage, ...] = ()
    chunk: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be, see `armillary.platform.limits`."""
        whole = Number(high=2**63 - 1, whole=True)
        check(
            self, kind=_MEMORIES, latency=whole, bandwidth=whole, npus_per_node=Number(high=MOST_COUNT, whole=True),
            stages=Kind(tuple, "a tuple of MemoryStage"), chunk=BYTES,
        )  # fmt: skip
        for at, stage in enumerate(self.stages):
            if not isinstance(stage, MemoryStage):
                raise refuse(self, ("stages", at), f"got {show(stage)}, expected a MemoryStage")
        if (self.kind == "hierarchical") != bool(self.stages) or (self.stages and not self.chunk):
            raise refuse(self, (), "expected stages and chunk with kind hierarchical, and only there")
        if self.kind == "per-node" and not self.npus_per_node:
            raise refuse(self, (), "expected npus_per_node with kind per-node, and only there")


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
        from armillary.platform.option_rules import wrong_packet_option

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

    def __post_init__(self) -> None:
        """Refuse what cannot be, see `armillary.platform.limits`."""
        from armillary.platform.consistency import check_platform

        check_platform(self)

    @property
    def npus(self) -> int:
        """Number of NPUs: the product of the dimension sizes."""
        total = 1
        for dimension in self.dimensions:
            total *= dimension.size
        return total
