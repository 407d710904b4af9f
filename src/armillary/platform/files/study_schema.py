"""The layout of a native study file, as pydantic models; also the source of its JSON Schema.

Quantities are text with a unit (`armillary.base.units`); a key that is not listed is an error. Here are the file, its
platform and the NPU; the other parts have modules of their own, `*_schema`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, Tag, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from armillary.base import units
from armillary.platform.fields import (
    BY_TYPE,
    TAGS,
    Count,
    Efficiency,
    Flops,
    Named,
    Options,
    Part,
    Quantity,
    Ruled,
    Size,
    Time,
    WholeTime,
)
from armillary.platform.files.network_schema import (
    Collectives,
    Memory,
    NetworkDimension,
    RemoteMemory,
    Storage,
)
from armillary.platform.files.variation_schema import VariationKeys
from armillary.platform.kernels import PROCESSORS, TRAFFIC, Terms
from armillary.platform.limits import LONGER, SEED, SHARE_OR_NONE
from armillary.platform.model import CollectiveName, ProfileName, SchedulingName
from armillary.platform.network import NETWORK_MODELS

# Validated by hand in `job_npus`, since five ways to write it would give five errors per mistake.
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
        # Counted, not compared pairwise: two of the three are as wrong as none.
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
        # Either without the other has no meaning: once needs no distance, and more need one.
        if (self.repeat > 1) != (self.every is not None):
            raise ValueError("expected repeat, 2 or more, and every together")
        return self


Share = Annotated[float, Quantity(units.parse_percent, "percent", "10 %", SHARE_OR_NONE)]
Longer = Annotated[float, Quantity(units.parse_percent, "percent", "10 %", LONGER)]


class OverlapKeys(Part):
    """How much kernels and collectives that run at the same time on a rank slow each other."""

    compute: Share = Field(
        default=0.0, description="What a kernel takes longer while a collective moves data."
    )
    communication: Share = Field(
        default=0.0, description="What a collective takes longer while one of its ranks computes."
    )
    processors: Annotated[float, Ruled(PROCESSORS)] = Field(
        default=0.0,
        description="Processors (SMs) that a collective occupies; kernels bound by computation lack them.",
    )
    traffic: Annotated[float, Ruled(TRAFFIC)] = Field(
        default=0.0,
        description="Bytes through the memory for each byte that a collective sends; kernels bound by memory lack that "
        "bandwidth.",
    )


class CommunicationKeys(Part):
    """What collectives and messages take longer in a step than alone, by how far they go."""

    inside: Longer = Field(default=0.0, description="Within a node, over links such as NVLink.")
    between: Longer = Field(default=0.0, description="Between nodes, over NICs.")


class StepKeys(Part):
    """What an iteration takes outside of kernels: data loader, optimizer on the host, logging."""

    time: Time = Field(default=0.0, description="Of every iteration.")
    share: Share = Field(default=0.0, description="Of what the rest takes.")


Communication = Annotated[
    Annotated[Longer, Tag(TAGS[0])] | Annotated[CommunicationKeys, Tag(TAGS[1])], BY_TYPE
]


class TermsKeys(Part):
    """Terms of a step that kernels and links do not show; each is off unless it is given (physical)."""

    overlap: OverlapKeys = OverlapKeys()
    communication: Communication = Field(
        default=0.0,
        description="What collectives and messages take longer in a step than alone: everywhere, or inside a node and "
        "between nodes.",
    )
    launch: Time = Field(
        default=0.0, description="The least time of a kernel: what the CPU needs to issue it."
    )
    straggler: Share = Field(
        default=0.0, description="Standard deviation of the speeds of ranks; a step waits for the slowest."
    )
    step: StepKeys = StepKeys()


def terms_of(keys: TermsKeys) -> Terms:
    """Return the terms that a study file asks for."""
    given = keys.communication
    by_place = given if isinstance(given, CommunicationKeys) else CommunicationKeys()
    return Terms(
        overlap_compute=keys.overlap.compute,
        overlap_communication=keys.overlap.communication,
        overlap_processors=keys.overlap.processors,
        overlap_traffic=keys.overlap.traffic,
        communication=0.0 if isinstance(given, CommunicationKeys) else given,
        communication_inside=by_place.inside,
        communication_between=by_place.between,
        launch=keys.launch,
        straggler=keys.straggler,
        step_time=keys.step.time,
        step_share=keys.step.share,
    )


def _per_rank(value: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "propertyNames": {"pattern": "^[0-9]+$"}, "additionalProperties": value}


# Validated by `read_groups`, which ASTRA-sim's files share; the schema only helps editors. Ids are 1 or more.
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
# Keys are ranks: their limits depend on the machine, so that `machine.read_machine` checks them.
RankSpeeds = Annotated[Any, WithJsonSchema(_per_rank({"type": "number", "exclusiveMinimum": 0}))]
RankTimes = Annotated[
    Any,
    WithJsonSchema(_per_rank({"type": "string", "pattern": units.unit_pattern("time")})),
]


class Peaks(Part):
    """Peak performance by the precision of GEMMs (physical)."""

    bf16: Flops = Field(description="Also that of nodes which name no precision.")
    fp8: Flops | None = None
    fp4: Flops | None = None
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


class Jitter(Part):
    """Random spread of compute durations (physical)."""

    sigma: Efficiency = Field(description="Standard deviation relative to the duration, at most 100 %.")
    seed: Annotated[int, Ruled(SEED)] = 0


NetworkName = Annotated[str, Named(NETWORK_MODELS)]


class NetworkModelKeys(Part):
    """A network model of another package, with its options."""

    name: NetworkName
    options: Options = Field(default={}, description="What the model says it takes.")


class PlatformFile(Part):
    """A machine."""

    model_config = ConfigDict(
        # pydantic cannot say "one of these keys", and a preset is filled in before validation.
        json_schema_extra={"anyOf": [{"required": [key]} for key in ("network", "preset", "topology")]}
    )

    preset: str | None = Field(
        default=None, description="A known system (`armillary machine list`); the other keys change it."
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
    network_model: (
        Annotated[Annotated[NetworkName, Tag(TAGS[0])] | Annotated[NetworkModelKeys, Tag(TAGS[1])], BY_TYPE]
        | None
    ) = Field(
        default=None,
        description="How messages share links, unless a command says; if absent analytical, or flow with a topology.",
    )
    # Parts whose keys all have defaults are values, so that a study may leave them out.
    npu: Npu = Npu()
    collectives: Collectives = Collectives()
    remote_memory: RemoteMemory | None = None
    storage: Storage | None = None
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
    variation: VariationKeys | None = None
    terms: TermsKeys = TermsKeys()
    rendezvous: bool = Field(default=False, description="Receivers announce themselves before data is sent.")

    @model_validator(mode="after")
    def _one_network(self) -> PlatformFile:
        # After presets are filled in: a preset counts as its network.
        if self.network is None and self.topology is None:
            raise PydanticCustomError("missing_key", "missing key", {"key": "network"})
        if self.network is not None and self.topology is not None:
            raise ValueError("expected either network or topology, not both")
        return self


class StudyFile(Part):
    """A study: a machine and what runs on it."""

    platform: PlatformFile
    software: str | None = Field(
        default=None,
        description="What trains on the machine by default: a name, or a file of `armillary calibrate` (train, plan).",
    )
    assumptions: list[str] = Field(
        default=[], description="What the machine takes from elsewhere, a sentence each (train, plan)."
    )
    between: dict[str, Any] | None = Field(
        default=None,
        description="A dimension without its size, which joins copies of the machine where it is counted "
        "(64xmycluster.yaml); absent: the outermost dimension grows.",
    )
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
        # Neither is fine: the file is a platform.
        if self.workload is not None and self.jobs is not None:
            raise ValueError("expected either workload or jobs, not both")
        return self
