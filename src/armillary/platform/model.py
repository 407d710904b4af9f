"""The machine as plain, immutable values: times in ns, sizes in bytes, rates in bytes per ns and FLOP/s."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from armillary.base.hints import KeyPath, show
from armillary.platform.collectives import (
    ALGORITHMS,
    ASTRA_SIM_ALGORITHMS,
    CHUNK_ORDERS,
    COLLECTIVES,
    PHYSICAL_COLLECTIVES,
    FitChoice,
    checked_groups,
    wrong_name,
)
from armillary.platform.kernels import PRECISIONS, Compute, Jitter, Terms
from armillary.platform.limits import (
    COUNT,
    FLAG,
    MOST_COUNT,
    POSITIVE,
    SHARE,
    TEXT,
    TIME,
    WHOLE_TIME,
    Choice,
    Kind,
    Maybe,
    Number,
    all_are,
    check,
    check_table,
    refuse,
)
from armillary.platform.memory import LocalMemory, RemoteMemory, Storage
from armillary.platform.network import Dimension, NetworkChoice, Port, port
from armillary.platform.variation import Variation

if TYPE_CHECKING:
    from armillary.platform.topology.network import Network

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
_PROTOCOLS = Choice(("lossless", "rdma", "credit", "tcp"))
# Any object: _check_platform compares ranks with the number of NPUs, which an Npu alone does not know.
_RANK = Kind(object, "a rank")
"""Any key: only the platform knows how many ranks there are."""


PHYSICAL = {"profile": "physical"}
"""Metadata of a field that profile ``astra-sim`` refuses where its value is not the default."""


@dataclass(frozen=True)
class Npu:
    """One NPU, and the ranks whose NPU differs.

    Attributes:
        peak: FLOP/s of every precision, or of each of `PRECISIONS`, where ``bf16`` is required; 0: not given.
        memory: Its local memory.
        endpoint_delay: ns of every message at its endpoint; None: 0, and 10 in profile ``astra-sim``.
        speed: Rank -> compute speed relative to the others; not listed: 1.
    """

    peak: float | dict[str, float] = 0.0
    memory: LocalMemory = field(default_factory=LocalMemory)
    endpoint_delay: float | None = None
    speed: dict[int, float] = field(default_factory=dict, metadata=PHYSICAL)

    def __post_init__(self) -> None:
        """Validate the fields, see `armillary.platform.limits`."""
        if isinstance(self.peak, Mapping):
            check_table(self, "peak", Choice(PRECISIONS), POSITIVE)
            # GEMMs without an attribute `precision` run as bf16, so that its peak must be there.
            if "bf16" not in self.peak:
                raise refuse(self, ("peak",), "missing key 'bf16'")
        else:
            check(self, peak=Number())
        check(self, memory=Kind(LocalMemory, "a LocalMemory"), endpoint_delay=Maybe(TIME))
        check_table(self, "speed", _RANK, POSITIVE)

    @property
    def peak_flops(self) -> float:
        """FLOP/s of GEMMs that name no precision; 0: not given."""
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
        chunks: Number of chunks that a collective is split into.
        active_chunks: Chunks in flight per dimension: in profile ``physical`` of one collective, on one line of
            NPUs, where messages are moved. 0: as many as hide latencies, and 1 in profile ``astra-sim``.
        chunk_order: Which dimensions each chunk visits first, see `armillary.collective.chunk_order`.
        within_dimension: Which chunk of a collective a dimension serves first.
        fit: Measured fit that times collectives and messages instead of schedules; None: schedules do.
    """

    algorithms: dict[str, tuple[str, ...]] = field(default_factory=dict)
    chunks: int = 1
    active_chunks: int = 0
    chunk_order: str = field(default="baseline", metadata=PHYSICAL)
    within_dimension: WithinDimensionName = field(default="earliest-phase", metadata=PHYSICAL)
    fit: FitChoice | None = None

    def __post_init__(self) -> None:
        """Validate the fields, see `armillary.platform.limits`."""
        check(
            self, chunks=COUNT, active_chunks=Number(high=MOST_COUNT, whole=True), chunk_order=_CHUNK_ORDERS,
            within_dimension=_WITHIN, fit=Kind(FitChoice, "a FitChoice or None", none=True),
        )  # fmt: skip
        check_table(self, "algorithms", TEXT, Kind(tuple, "a tuple of names, one per dimension"))


@dataclass(frozen=True)
class Packets:
    """The protocol of network model ``packet``, and its options by the names of its fields."""

    protocol: Literal["lossless", "rdma", "credit", "tcp"] = "lossless"
    options: dict[str, Any] = field(default_factory=dict)
    source: str = field(default="", compare=False)
    """File, line and key of the setting, or empty."""

    def __post_init__(self) -> None:
        """Validate the fields, see `armillary.platform.limits`."""
        check(self, protocol=_PROTOCOLS, options=Kind(Mapping, "a mapping"))
        if not self.options:
            return  # most machines have none, and importing the rules imports pydantic
        from armillary.platform.packet_options import wrong_packet_option

        place, problem = wrong_packet_option(self.protocol, self.options)
        if problem:
            raise refuse(self, ("options", *place), problem)

    @property
    def given(self) -> bool:
        """Whether the machine sets anything about packets."""
        # A file may state the defaults: `source` tells this from saying nothing.
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
        scheduling: Order in which messages use a port.
        stragglers: Rank -> ns that it starts late; not listed: 0.
        jitter: Random spread of compute durations; None: none.
        variation: Distributions that samples draw from; without samples they have no effect.
        port_speed: Rank -> share of the bandwidth of each dimension that its ports have; not listed: all of it.
        storage: What storage and checkpoint nodes use; None: they take their recorded times.
        terms: Interference and overhead that slow a step.
        packets: What network model ``packet`` moves.
        network_model: Default for simulations that name none.
        topology: Its graph, if described as one; `dimensions` are then the levels that collectives see.
        astra_sim: What only profile ``astra-sim`` uses.
        dialect: Of the files that it was read from: of those of ASTRA-sim each profile makes what that program would.
        profile: The profile that the file names, default for simulations that name none.
        warnings: Warnings of the reader.
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
    variation: Variation | None = field(default=None, metadata=PHYSICAL)
    port_speed: dict[int, tuple[float, ...]] = field(default_factory=dict, metadata=PHYSICAL)
    storage: Storage | None = None
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
        """Validate the fields, see `armillary.platform.limits`."""
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
    # The network carries nothing, but a machine must have one.
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
        platform, storage=Kind(Storage, "a Storage or None", none=True),
        dimensions=Kind(tuple, "a tuple of Dimension"), scheduling=_SCHEDULING,
        jitter=Kind(Jitter, "a Jitter or None", none=True),
        variation=Kind(Variation, "a Variation or None", none=True), dialect=Choice(("native", "astra-sim")),
        profile=Choice(get_args(ProfileName)), groups=Kind(dict, "a mapping of group id to ranks"),
        **{name: Kind(part, f"a {part.__name__}") for name, part in parts.items()},
    )  # fmt: skip
    # Kinds first, then what relates parts to each other: the checks below rely on the types above.
    check_table(platform, "stragglers", _RANK, TIME)
    for at, dimension in enumerate(platform.dimensions):
        if not isinstance(dimension, Dimension):
            raise refuse(platform, ("dimensions", at), f"got {show(dimension)}, expected a Dimension")
    npus = platform.npus
    if npus > MOST_COUNT:
        raise refuse(platform, ("dimensions",), f"has {npus} NPUs in all, expected at most {MOST_COUNT}")
    _check_port_speed(platform)
    per_rank: dict[KeyPath, Mapping[int, object]] = {
        ("npu", "speed"): platform.npu.speed,
        ("stragglers",): platform.stragglers,
        ("port_speed",): platform.port_speed,
    }
    for place, table in per_rank.items():
        if all_are(Number(high=npus - 1, whole=True), table.keys()):
            continue
        for rank in table:
            # The rule of a rank needs the number of NPUs, which is known only here.
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


def _check_port_speed(platform: Platform) -> None:
    """Refuse shares of bandwidths that are no shares, or not one for each dimension."""
    check_table(platform, "port_speed", _RANK, Kind(tuple, "a tuple of shares, one per dimension"))
    count = len(platform.dimensions)
    for rank, shares in platform.port_speed.items():
        if len(shares) != count:
            raise refuse(
                platform,
                ("port_speed", rank),
                f"lists {len(shares)} shares, expected {count}, one per dimension",
            )
        for at, share in enumerate(shares):
            if problem := SHARE(share):
                raise refuse(platform, ("port_speed", rank, at), problem)


def _check_algorithms(platform: Platform) -> None:
    """Refuse unknown names of algorithms, and too many of them."""
    count, native = len(platform.dimensions), platform.dialect == "native"
    # Files of ASTRA-sim may name only what that program runs; a native file may also name what physical adds.
    known = Choice(PHYSICAL_COLLECTIVES if native else COLLECTIVES)
    for kind, names in platform.collectives.algorithms.items():
        if problem := known(kind):
            raise refuse(platform, ("collectives", "algorithms"), problem)
        for at, name in enumerate(names):
            if problem := wrong_name(name, ALGORITHMS if native else ASTRA_SIM_ALGORITHMS):
                raise refuse(platform, ("collectives", "algorithms", kind, at), problem)
        # ASTRA-sim runs the first dimensions only where names are missing; a native file must say all of
        # them.
        short = native and len(names) != count
        # "oneRing" alone stands for all dimensions: it runs over them as one flat ring.
        if len(names) > count or (short and not (len(names) == 1 and names[0].startswith("one"))):
            problem = f"lists {len(names)} algorithms, expected {count}, one per network dimension"
            raise refuse(platform, ("collectives", "algorithms", kind), problem)
