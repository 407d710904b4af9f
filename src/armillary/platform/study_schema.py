"""The layout of a native study file, as pydantic models; also the source of its JSON Schema.

Quantities are text with a unit (`armillary.units`); a key that is not listed here is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError, core_schema

from armillary import units
from armillary.errors import nearest
from armillary.platform.algorithms import PHYSICAL_ALGORITHMS
from armillary.platform.model import (
    ChunkOrderName,
    CollectiveName,
    ProfileName,
    SchedulingName,
    TopologyName,
    WithinDimensionName,
)


@dataclass(frozen=True)
class Quantity:
    """Makes a field read text with a unit; `whole` names the unit of which only whole numbers will do."""

    parse: Callable[[object], float]
    kind: str
    example: str
    positive: bool = True
    whole: str = ""
    most: str = ""

    def read(self, text: object) -> float:
        """Return the value of `text`.

        Raises:
            ValueError: It is not such a quantity.
        """
        value = self.parse(text)
        if self.positive and value == 0:
            raise ValueError(f"got {text!r}, expected more than 0, e.g. '{self.example}'")
        if self.most and value > self.parse(self.most):
            raise ValueError(f"got {text!r}, expected at most {self.most}")
        if self.whole and value != int(value):
            raise ValueError(f"got {text!r}, expected a whole number of {self.whole}")
        return int(value) if self.whole else value

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        return {"type": "string", "pattern": units.unit_pattern(self.kind), "examples": [self.example]}


def _per_rank(value: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "propertyNames": {"pattern": "^[0-9]+$"}, "additionalProperties": value}


_ALGORITHM = {
    "type": "string",
    "pattern": f"^({'|'.join(PHYSICAL_ALGORITHMS)}|direct[1-9][0-9]*|oneDirect[1-9][0-9]*)$",
}

Bandwidth = Annotated[float, Quantity(units.parse_bandwidth, "bandwidth", "400 GB/s")]
WholeBandwidth = Annotated[int, Quantity(units.parse_bandwidth, "bandwidth", "100 GB/s", whole="GB/s")]
Time = Annotated[float, Quantity(units.parse_time, "time", "500 ns", positive=False)]
WholeTime = Annotated[int, Quantity(units.parse_time, "time", "10 ns", positive=False, whole="ns")]
Percent = Annotated[float, Quantity(units.parse_percent, "percent", "5 %")]
Efficiency = Annotated[float, Quantity(units.parse_percent, "percent", "45 %", most="100 %")]
Flops = Annotated[float, Quantity(units.parse_flops, "flops", "312 TFLOP/s")]
Size = Annotated[int, Quantity(units.parse_bytes, "bytes", "1 GiB", whole="bytes")]
Algorithms = Annotated[
    Any,
    WithJsonSchema({"anyOf": [_ALGORITHM, {"type": "array", "items": _ALGORITHM, "minItems": 1}]}),
]
Groups = Annotated[
    Any,
    WithJsonSchema(
        {
            "type": "object",
            "propertyNames": {"pattern": "^0*[1-9][0-9]*$"},
            "additionalProperties": {
                "type": "array",
                "items": {"type": "integer", "minimum": 0},
                "minItems": 1,
            },
        }
    ),
]
_NPU = {"type": "integer", "minimum": 0}
_COUNT = {"type": "integer", "minimum": 1}
JobNpus = Annotated[
    Any,
    WithJsonSchema(
        {
            "anyOf": [
                _COUNT,
                {"type": "string", "pattern": r"^\s*\d+(\s*-\s*\d+)?(\s*,\s*\d+(\s*-\s*\d+)?)*\s*$"},
                {"type": "array", "items": _NPU, "minItems": 1},
                {
                    "type": "object",
                    "properties": {"first": _NPU, "count": _COUNT, "stride": _COUNT},
                    "required": ["count"],
                    "additionalProperties": False,
                },
                {
                    "type": "object",
                    "properties": {
                        "count": _COUNT,
                        "placement": {"enum": ["packed", "scattered", "random"]},
                        "seed": _NPU,
                    },
                    "required": ["count", "placement"],
                    "additionalProperties": False,
                },
            ]
        }
    ),
]
RankSpeeds = Annotated[Any, WithJsonSchema(_per_rank({"type": "number", "exclusiveMinimum": 0}))]
RankTimes = Annotated[
    Any,
    WithJsonSchema(_per_rank({"type": "string", "pattern": units.unit_pattern("time")})),
]
Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
Side = Annotated[int, Field(ge=2, le=2**31 - 1)]
TAGS = ("<text>", "<mapping>")
"""Names of the two ways to write some values; pydantic puts them into the place of an error."""
BY_TYPE = Discriminator(lambda value: TAGS[isinstance(value, dict)])


class Part(BaseModel):
    """A mapping of the file: types are not converted, and keys that are not listed are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any) -> Any:
        """Refuse an unknown key with its nearest match, before anything is said about the values."""
        known = [field.alias or name for name, field in cls.model_fields.items()]
        for key in data if isinstance(data, dict) else ():
            if key not in known:
                hint = nearest(str(key), known) or f"; known keys: {', '.join(known)}"
                raise PydanticCustomError("unknown_key", "unknown key{hint}", {"key": key, "hint": hint})
        return data


class Workload(Part):
    """What runs: a trace, one collective on all NPUs, or the step of a model."""

    trace: str | None = Field(
        default=None, min_length=1, description="Prefix of the trace files, PREFIX.RANK.et."
    )
    collective: CollectiveName | None = None
    size: Size | None = Field(
        default=None, description="Size of the collective, per NPU as the Chakra comm_size."
    )
    generate: Annotated[Any, WithJsonSchema({"type": "object"})] = Field(
        default=None, description="A model, and how it is spread over the NPUs and run."
    )

    @model_validator(mode="after")
    def _one_kind(self) -> Workload:
        if sum(kind is not None for kind in (self.trace, self.collective, self.generate)) != 1:
            raise ValueError("expected either trace, or collective with size, or generate")
        if (self.collective is None) != (self.size is None):
            raise ValueError("expected collective and size together")
        return self


class Job(Part):
    """One of several workloads that share the machine (physical)."""

    name: str | None = Field(default=None, min_length=1, description="By default job0, job1, …")
    workload: Workload
    npus: JobNpus = Field(
        description="A number of free NPUs, '0-7, 16-23', a list, {first, count, stride} or {count, placement, seed}; "
        "in the order of the ranks."
    )
    arrival: WholeTime = Field(default=0, description="When it may begin.")
    repeat: Count = Field(default=1, description="Times that it comes, on the same NPUs.")
    every: WholeTime | None = Field(default=None, description="Time between these arrivals.")

    @model_validator(mode="after")
    def _repeats(self) -> Job:
        if (self.repeat > 1) != (self.every is not None):
            raise ValueError("expected repeat, 2 or more, and every together")
        return self


class Memory(Part):
    """The local memory of an NPU."""

    bandwidth: Bandwidth
    capacity: Size | None = Field(default=None, description="To see whether a generated workload fits.")
    latency: Time = Field(default=0.0, description="Until the first byte of an access (physical).")
    read: Bandwidth | None = Field(
        default=None, description="Bandwidth of loads; if absent, bandwidth (physical)."
    )
    write: Bandwidth | None = Field(
        default=None, description="Bandwidth of stores; if absent, bandwidth (physical)."
    )


class Peaks(Part):
    """Peak performance by the precision of matrix products (physical)."""

    bf16: Flops = Field(description="Also that of nodes which name no precision.")
    fp8: Flops | None = None
    fp32: Flops | None = None


class Npu(Part):
    """One NPU."""

    peak: Annotated[Annotated[Flops, Tag(TAGS[0])] | Annotated[Peaks, Tag(TAGS[1])], BY_TYPE] | None = Field(
        default=None, description="Peak performance: for the roofline model, and for bounds in physical."
    )
    memory: Memory | None = Field(
        default=None, description="Local memory; reductions and the roofline model use it."
    )
    endpoint_delay: WholeTime | None = Field(
        default=None,
        description="Delay of every message at its endpoint; if absent 0 in physical, 10 ns in astra-sim.",
    )
    speed: RankSpeeds = Field(
        default=None, description="Rank: its compute speed relative to the others, 0.8 is slower (physical)."
    )


class UpDown(Part):
    """Bandwidth that differs by direction (physical)."""

    up: Bandwidth = Field(description="Sent by an NPU.")
    down: Bandwidth = Field(description="Received by an NPU.")


class InNetwork(Part):
    """What switches can do with the data of collectives: add it up and multicast it (physical)."""

    rate: Bandwidth | None = Field(
        default=None, description="What a switch adds of each port's data; if absent as fast as data comes."
    )
    latency: Time = Field(default=0.0, description="What every message spends in a switch besides.")
    operations: Count | None = Field(
        default=None,
        description="Chunks of collectives that a switch works on at a time; further ones wait. If absent no limit.",
    )


class NetworkDimension(Part):
    """One network dimension; the first of the list is the innermost.

    A Torus or Mesh with a `shape` stands for as many dimensions, named NAME.0, NAME.1, …, each with this
    bandwidth and latency.
    """

    name: str | None = Field(default=None, min_length=1, description="E.g. chiplet, package, node, pod.")
    topology: TopologyName
    size: Count | None = Field(
        default=None, description="NPUs, or groups of NPUs: 2 or more, or 1 in a network of one NPU."
    )
    shape: list[Side] | None = Field(
        default=None, min_length=1, max_length=30, description="Instead of size, for Torus and Mesh."
    )
    bandwidth: Annotated[Annotated[Bandwidth, Tag(TAGS[0])] | Annotated[UpDown, Tag(TAGS[1])], BY_TYPE] = (
        Field(description="One way.")
    )
    per: Literal["npu", "link"] | None = Field(
        default=None,
        description="What has this bandwidth: if absent an NPU in physical, a link in astra-sim.",
    )
    latency: Time = Field(description="Per link hop.")
    in_network: InNetwork | None = Field(
        default=None, description="Collectives in the switch: algorithm in-switch."
    )

    @model_validator(mode="after")
    def _one_size(self) -> NetworkDimension:
        if self.in_network is not None and self.topology != "Switch":
            raise ValueError(f"got in_network for topology '{self.topology}', expected it for Switch only")
        if self.shape is not None and self.topology not in ("Torus", "Mesh"):
            raise ValueError(
                f"got a shape for topology '{self.topology}', expected it for Torus or Mesh only"
            )
        if self.shape is not None and self.size is not None:
            raise ValueError("expected either size or shape, not both")
        if self.shape is None and self.size is None:
            raise PydanticCustomError("missing_key", "missing key", {"key": "size"})
        return self


class Collectives(Part):
    """How collectives run: one algorithm name for all dimensions, or a list with one per dimension.

    Where a collective is not listed, each dimension gets the natural one: ring on Ring, direct on
    FullyConnected, halvingDoubling on Switch (ring if its size is not a power of two; direct for all-to-all).
    `auto` picks per dimension and size; it and the collectives after all-to-all are for physical.
    """

    all_reduce: Algorithms = Field(default=None, alias="all-reduce")
    all_gather: Algorithms = Field(default=None, alias="all-gather")
    reduce_scatter: Algorithms = Field(default=None, alias="reduce-scatter")
    all_to_all: Algorithms = Field(default=None, alias="all-to-all")
    all_to_all_v: Algorithms = Field(default=None, alias="all-to-all-v")
    broadcast: Algorithms = None
    reduce: Algorithms = None
    gather: Algorithms = None
    scatter: Algorithms = None
    barrier: Algorithms = None
    reduce_scatter_block: Algorithms = Field(default=None, alias="reduce-scatter-block")
    optimization: Literal["baseline", "localBWAware"] = "localBWAware"
    chunks: Count = Field(default=64, description="Chunks a collective is split into.")
    active_chunks: Count | None = Field(
        default=None,
        description="Chunks in flight per dimension; if absent 1 (astra-sim) or as many as hide latencies.",
    )
    chunk_order: ChunkOrderName = Field(
        default="baseline",
        description="Which dimensions each chunk visits first: always the same, or by a scheduler (physical).",
    )
    within_dimension: WithinDimensionName = Field(
        default="earliest-phase",
        description="Which chunk of a collective a dimension serves first (physical).",
    )
    hierarchy: list[Count] | None = Field(
        default=None,
        min_length=1,
        description="Levels at which collectives run over a topology, innermost first: NPUs per group, groups, …",
    )
    queues: Count = Field(default=1, description="Queues per dimension.")


class ReadWrite(Part):
    """Bandwidth that differs by direction."""

    read: Bandwidth = Field(description="Towards the NPU.")
    write: Bandwidth = Field(description="From the NPU.")


class MemoryStage(Part):
    """Alike devices or links between a hierarchical memory and the NPUs; transfers are spread over all of them."""

    name: str = Field(min_length=1, description="E.g. groups, switches, fabric.")
    per: Literal["npu", "node", "machine"] = Field(description="What has them for itself.")
    count: Count = Field(default=1, description="How many it has.")
    bandwidth: Annotated[Annotated[Bandwidth, Tag(TAGS[0])] | Annotated[ReadWrite, Tag(TAGS[1])], BY_TYPE] = (
        Field(description="Of one, in each direction.")
    )
    latency: Time = Field(default=0.0, description="What every access waits for here.")


class RemoteMemory(Part):
    """Memory outside the NPUs."""

    preset: str | None = Field(
        default=None, description="A known memory, e.g. cxl-pool; the other keys change it."
    )
    kind: Literal["per-npu", "per-node", "pool", "hierarchical"] | None = Field(
        default=None, description="Needed, but with a preset, which has one."
    )
    bandwidth: WholeBandwidth | None = Field(default=None, description="Not for kind hierarchical.")
    latency: WholeTime | None = Field(default=None, description="Not for kind hierarchical.")
    npus_per_node: Count | None = Field(
        default=None, description="Only where something is per node, and needed there."
    )
    stages: list[MemoryStage] | None = Field(
        default=None, min_length=1, description="From the memory to the NPU (hierarchical, physical)."
    )
    chunk: Size | None = Field(
        default=None, description="What moves from stage to stage at a time; if absent 1 MiB (hierarchical)."
    )

    @model_validator(mode="after")
    def _fits_kind(self) -> RemoteMemory:
        if self.kind is None:
            raise PydanticCustomError("missing_key", "missing key", {"key": "kind"})
        if self.kind == "hierarchical":
            if self.stages is None or self.bandwidth is not None or self.latency is not None:
                raise ValueError("expected stages with kind hierarchical, and bandwidth and latency in them")
            if (self.npus_per_node is not None) != any(stage.per == "node" for stage in self.stages):
                raise ValueError("expected npus_per_node with a stage per node, and only there")
            names = [stage.name for stage in self.stages]
            if len(set(names)) < len(names):
                raise ValueError(f"got stages {', '.join(names)}, expected a name of its own for each")
            return self
        for key in ("bandwidth", "latency"):
            if getattr(self, key) is None:
                raise PydanticCustomError("missing_key", "missing key", {"key": key})
        if self.stages is not None or self.chunk is not None:
            raise ValueError("expected stages and chunk only with kind hierarchical")
        if (self.kind == "per-node") != (self.npus_per_node is not None):
            raise ValueError("expected npus_per_node with kind per-node, and only there")
        return self


class Jitter(Part):
    """Random spread of compute durations (physical)."""

    sigma: Percent = Field(description="Standard deviation relative to the duration, at most 100 %.")
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = 0

    @model_validator(mode="after")
    def _at_most_all(self) -> Jitter:
        if self.sigma > 1:
            raise ValueError(f"got sigma {100 * self.sigma:g} %, expected at most 100 %")
        return self


class PlatformFile(Part):
    """A machine."""

    model_config = ConfigDict(
        json_schema_extra={"anyOf": [{"required": [key]} for key in ("network", "preset", "topology")]}
    )

    preset: str | None = Field(
        default=None, description="A known system (`armillary platform list`); the other keys change it."
    )
    network: list[NetworkDimension] | None = Field(
        default=None,
        min_length=1,
        description="Dimensions, innermost first; over a preset also a mapping of a dimension's name to its keys.",
    )
    topology: Annotated[Any, WithJsonSchema({"type": "object"})] = Field(
        default=None, description="A graph instead of dimensions, for network models with contention."
    )
    packets: Annotated[Any, WithJsonSchema({"type": "object"})] = Field(
        default=None,
        description="What network model packet moves: protocol lossless (if absent), credit or tcp.",
    )
    npu: Npu = Npu()
    collectives: Collectives = Collectives()
    remote_memory: RemoteMemory | None = None
    groups: Groups = Field(
        default=None, description="Communicator id: its ranks, in the order they communicate."
    )
    compute: Annotated[Any, WithJsonSchema({"type": "object"})] = Field(
        default=None, description="How compute nodes are timed; model chooses how."
    )
    scheduling: SchedulingName = Field(
        default="fair", description="Who uses a port first: all at once, or in order (physical)."
    )
    stragglers: RankTimes = Field(default=None, description="Rank: how late it starts (physical).")
    jitter: Jitter | None = None
    rendezvous: bool = Field(default=False, description="Receivers announce themselves before data is sent.")

    @model_validator(mode="after")
    def _one_network(self) -> PlatformFile:
        if self.network is None and self.topology is None:
            raise PydanticCustomError("missing_key", "missing key", {"key": "network"})
        if self.network is not None and self.topology is not None:
            raise ValueError("expected either network or topology, not both")
        return self


class StudyFile(Part):
    """A study: a machine and what runs on it."""

    platform: PlatformFile
    workload: Workload | None = Field(
        default=None, description="May be left out of a file that is only a platform."
    )
    jobs: list[Job] | None = Field(
        default=None,
        min_length=1,
        description="Instead of workload: several, on NPUs of their own or shared.",
    )
    profile: ProfileName = Field(default="physical", description="Meaning of the numbers.")
    time_unit: Literal["ns"] = Field(default="ns", description="Length of a tick.")

    @model_validator(mode="after")
    def _one_workload(self) -> StudyFile:
        if self.workload is not None and self.jobs is not None:
            raise ValueError("expected either workload or jobs, not both")
        return self
