"""What a study file says of what runs: one workload, or jobs that share the machine."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, WithJsonSchema, model_validator

from armillary.platform.fields import Count, Part, Size, WholeTime
from armillary.platform.model import CollectiveName

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
