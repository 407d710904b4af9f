"""The layout of ``platform.compute``: one set of keys for each compute model, as pydantic models."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, TypeAdapter, ValidationError, model_validator

from armillary.base import units
from armillary.base.document import Document
from armillary.base.hints import KeyPath, key_text
from armillary.platform import kernels as values
from armillary.platform.fields import (
    BY_TYPE,
    TAGS,
    Count,
    Efficiency,
    Options,
    Part,
    Quantity,
    Ruled,
    Size,
    Time,
    first_error,
)
from armillary.platform.kernels import COMPUTE_MODELS, FACTOR, QUANTILE, Interval, Override
from armillary.platform.limits import Choice

Clock = Annotated[float, Quantity(units.parse_frequency, "frequency", "1.4 GHz")]

Wait = Annotated[float, Quantity(units.parse_time, "time", "1 min")]


class Efficiencies(Part):
    """Shares of the peaks that kernels reach (physical)."""

    compute: Efficiency = Field(default=1.0, description="Of the peak performance.")
    memory: Efficiency = Field(default=1.0, description="Of the bandwidth of the local memory.")


class KernelOverride(Part):
    """What is known better of some kernels: exactly one of duration, factor and efficiency."""

    name: str = Field(default="*", min_length=1, description="Pattern of names, as of files: '*.attend'.")
    kind: Literal["gemm", "flops", "memory", "unknown"] | None = Field(
        default=None, description="GEMMs of known shape, other operations, bytes only, a duration only."
    )
    duration: Time | None = Field(default=None, description="That each takes.")
    factor: Annotated[float, Ruled(FACTOR)] | None = Field(
        default=None, description="Times what the model says, or the recorded duration."
    )
    efficiency: Efficiency | None = Field(default=None, description="Share of the peaks that they reach.")

    @model_validator(mode="after")
    def _one(self) -> KernelOverride:
        # The rule of `Override`, repeated so that the error names file, line and key.
        if sum(each is not None for each in (self.duration, self.factor, self.efficiency)) != 1:
            raise ValueError("expected exactly one of duration, factor and efficiency")
        return self


class Uncertainty(Part):
    """How far measured steps lie from predicted ones, as quantiles of measured over predicted time."""

    low: Annotated[float, Ruled(QUANTILE)] = Field(description="Least of the middle 90 %: 0.93.")
    high: Annotated[float, Ruled(QUANTILE)] = Field(description="Largest of them: 1.07.")
    of: str = Field(default="", description="What was measured: residuals of 355 vTrain rows.")

    @model_validator(mode="after")
    def _ordered(self) -> Uncertainty:
        if self.low > self.high:
            raise ValueError(f"got low {self.low} above high {self.high}, expected at most as much")
        return self


class Compute(Part):
    """How nodes are timed: compute by recorded durations or a model, or everything as recorded."""

    model: Literal["roofline"] | None = Field(
        default=None,
        description="roofline (as roofline: true), gpu, tiled, table, systolic, subprocess, or another package's.",
    )
    roofline: bool = False
    replay: bool = Field(
        default=False, description="Communication and memory, too, take their recorded durations."
    )
    efficiency: Annotated[
        Annotated[Efficiency, Tag(TAGS[0])] | Annotated[Efficiencies, Tag(TAGS[1])], BY_TYPE
    ] = Field(
        default=1.0, description="Share of the peaks that kernels reach in the roofline model (physical)."
    )
    kernel_overhead: Time = Field(
        default=0.0, description="What every kernel of the roofline model takes besides (physical)."
    )
    overrides: list[KernelOverride] = Field(
        default=[], description="Of some kernels; the first that fits counts."
    )
    uncertainty: Uncertainty | None = Field(
        default=None, description="How far measured steps lie from predicted ones (physical)."
    )

    @model_validator(mode="after")
    def _one_model(self) -> Compute:
        named = getattr(self, "model", None)
        # "roofline: true" is the older spelling of "model: roofline"; both together are fine.
        if self.roofline and named not in (None, "roofline"):
            raise ValueError(f"got roofline: true and model: {named}, expected only one of them")
        return self

    @property
    def times(self) -> bool:
        """Whether a model times compute nodes."""
        return self.roofline or self.model is not None

    def options(self) -> dict[str, Any]:
        """Return the options of the model."""
        return {}


class Factors(Part):
    """What the model's times are multiplied by; of the device's file where absent."""

    gemm: Annotated[float, Field(gt=0, lt=1e3)] | None = Field(default=None, description="Of GEMMs.")
    attention: Annotated[float, Field(gt=0, lt=1e3)] | None = Field(
        default=None, description="Of fused attention."
    )
    memory: Annotated[float, Field(gt=0, lt=1e3)] | None = Field(
        default=None, description="Of kernels that are bound by memory."
    )


class GpuKernels(Compute):
    """Kernels of a known GPU, by constants that are fitted to measurements."""

    # A discriminator narrows the type of the field that it inherits, which mypy refuses.
    model: Literal["gpu"]  # type: ignore[assignment]
    device: str = Field(
        min_length=1,
        description="Its name, e.g. h100-sxm, or the path of a YAML file, relative to the study.",
    )
    sustained: Efficiency | None = Field(
        default=None,
        description="Share of the clocks that is left besides what the power limit of the device takes.",
    )
    load: Literal["sustained", "alone"] = Field(
        default="sustained",
        description="sustained: kernels follow each other, and the power limit lowers the clocks of those that load "
        "the tensor cores; alone: each is measured by itself, at full clocks.",
    )
    factors: Factors = Factors()

    def options(self) -> dict[str, Any]:
        """Return the options of the model."""
        return {
            "device": self.device,
            "factors": {**self.factors.model_dump(), "sustained": self.sustained},
            "load": self.load,
        }


class TableColumns(Part):
    """Names of the columns, where they are others."""

    m: str | None = None
    n: str | None = None
    k: str | None = None
    time: str | None = None
    precision: str | None = None


class Table(Compute):
    """Measured times of GEMMs by their shape; other kernels by the roofline model."""

    model: Literal["table"]  # type: ignore[assignment]
    file: str = Field(min_length=1, description="CSV with a header, perhaps .gz; relative to the study.")
    columns: TableColumns = TableColumns()
    unit: Literal["ns", "us", "ms", "s"] = Field(default="us", description="Of the times.")
    precision: Literal["fp32", "bf16", "fp8"] = Field(
        default="bf16", description="Of all rows, without such a column."
    )

    def options(self) -> dict[str, Any]:
        """Return the options of the model."""
        scale = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}[self.unit]
        columns = self.columns.model_dump(exclude_none=True)
        return {"file": self.file, "columns": columns, "unit_ns": scale, "precision": self.precision}


class Tiled(Compute):
    """The roofline model, with GEMMs that move the tiles of a buffer."""

    model: Literal["tiled"]  # type: ignore[assignment]
    buffer: Annotated[Size, Field(gt=0)] = Field(
        description="On-chip memory of an NPU, where a tile of results stays."
    )

    def options(self) -> dict[str, Any]:
        """Return the options of the model."""
        return {"buffer": self.buffer}


class SystolicBuffers(Part):
    """Buffers of a systolic array, each in two halves; SCALE-sim's names."""

    ifmap: Annotated[Size, Field(gt=0)] = Field(description="Of the left operand of a GEMM.")
    filter: Annotated[Size, Field(gt=0)] = Field(description="Of the right operand.")
    ofmap: Annotated[Size, Field(gt=0)] = Field(description="Of the result.")


class Systolic(Compute):
    """A systolic array, for GEMMs of known shape; other kernels by the roofline model."""

    model: Literal["systolic"]  # type: ignore[assignment]
    rows: Count
    columns: Count
    dataflow: Literal["output", "weight", "input"] = Field(
        default="weight", description="What stays in the array."
    )
    clock: Clock
    arrays: Count = Field(default=1, description="Of an NPU, which share every GEMM.")
    stall: bool = Field(default=True, description="A kernel takes at least its bytes ÷ the memory bandwidth.")
    buffers: SystolicBuffers | None = Field(
        default=None, description="On the chip; absent: as large as it takes to fetch each operand once."
    )

    @model_validator(mode="after")
    def _wait(self) -> Systolic:
        # `stall: false` takes no time for memory, so that buffers would have no effect.
        if self.buffers and not self.stall:
            raise ValueError("buffers: expected none with 'stall: false', which waits for no memory")
        return self

    def options(self) -> dict[str, Any]:
        """Return the options of the model."""
        keys = ("rows", "columns", "dataflow", "clock", "arrays", "stall")
        found = {key: getattr(self, key) for key in keys}
        return found | ({"buffers": self.buffers.model_dump()} if self.buffers else {})


class Program(Compute):
    """Another program, which reads and writes lines of JSON."""

    model: Literal["subprocess"]  # type: ignore[assignment]
    command: list[str] = Field(min_length=1, description="Runs in the folder of the study.")
    timeout: Wait = Field(default=60e9, description="After which it is stopped.")

    def options(self) -> dict[str, Any]:
        """Return the options of the model."""
        return {"command": self.command, "timeout_ns": self.timeout}


class Other(Compute):
    """A compute model of another package."""

    model: Annotated[str, Field(min_length=1)]  # type: ignore[assignment]
    given: Options = Field(default={}, alias="options", description="What the model says it takes.")

    def options(self) -> dict[str, Any]:
        """Return the options of the model."""
        return self.given


_KINDS: dict[str, type[Compute]] = {
    "roofline": Compute, "gpu": GpuKernels, "tiled": Tiled, "table": Table, "systolic": Systolic, "subprocess": Program,
}  # fmt: skip


def read_compute(value: Any, document: Document, path: KeyPath) -> Compute:
    """Return the checked keys of ``platform.compute``; None are the defaults.

    Raises:
        InputError: a key or value is wrong.
    """
    # Every key has a default, so that no section and an empty one mean the same.
    if value is None:
        return Compute()
    if not isinstance(value, dict):
        document.reject(path, value, "a mapping of keys to values")
    # A mapping without a model may still have efficiencies and overrides, which the base class reads.
    name = value.get("model", "roofline")
    if problem := Choice(COMPUTE_MODELS)(name):
        raise document.error((*path, "model"), problem)
    try:
        # Models of other packages share one layout: name and options.
        return _KINDS.get(name, Other).model_validate(value)
    except ValidationError as error:
        raise first_error(document, error, path) from None


def compute_of(compute: Compute, document: Document, path: KeyPath) -> values.Compute:
    """Return how a study file says that compute nodes are timed."""
    share = compute.efficiency
    both = (share, share) if isinstance(share, float) else (share.compute, share.memory)
    return values.Compute(
        # "" means recorded durations.
        (compute.model or "roofline") if compute.times else "",
        compute.options(),
        tuple(
            Override(each.name, each.kind or "", each.duration, each.factor, each.efficiency)
            for each in compute.overrides
        ),
        replay=compute.replay,
        kernels=values.Kernels(*both, overhead=compute.kernel_overhead),
        # Lines of a file are counted for errors alone, and recorded durations have none.
        source=f"{document.where(path)}: {key_text(path)}" if compute.times or compute.overrides else "",
        folder=document.path.parent if document.path else values.Compute().folder,
        uncertainty=Interval(own.low, own.high, own.of) if (own := compute.uncertainty) else None,
    )


def compute_schema() -> dict[str, Any]:
    """Return the JSON Schemas of the models, and of ``Compute``, which is any of them."""
    # The discriminator is never called: only the schema of the union is wanted.
    union = TypeAdapter(
        Annotated[
            Annotated[Compute, Tag("roofline")]
            | Annotated[Table, Tag("table")]
            | Annotated[GpuKernels, Tag("gpu")]
            | Annotated[Tiled, Tag("tiled")]
            | Annotated[Systolic, Tag("systolic")]
            | Annotated[Program, Tag("subprocess")]
            | Annotated[Other, Tag("other")],
            Discriminator(lambda value: "other"),
        ]
    ).json_schema()
    definitions: dict[str, Any] = union.pop("$defs")
    # The base class is what `model: roofline` validates; in the schema it has the name of the model.
    roofline = definitions.pop("Compute")
    # $ref to it must follow the new name.
    return definitions | {"Roofline": roofline, "Compute": {"anyOf": _renamed(union)}}


def _renamed(union: dict[str, Any]) -> list[dict[str, Any]]:
    choices: list[dict[str, Any]] = union.get("oneOf") or union["anyOf"]
    return [{"$ref": "#/$defs/Roofline"} if each["$ref"].endswith("/Compute") else each for each in choices]
