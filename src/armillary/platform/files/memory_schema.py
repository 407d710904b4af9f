"""What a study file says of memory, that of an NPU and that outside the NPUs; and the values that this makes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, Tag, model_validator
from pydantic_core import PydanticCustomError

from armillary.platform import memory as values
from armillary.platform.fields import (
    BY_TYPE,
    TAGS,
    Bandwidth,
    Count,
    Named,
    Options,
    Part,
    Size,
    Time,
    WholeBandwidth,
    WholeTime,
)

CHUNK = 1 << 20
"""Bytes that a hierarchical memory moves at a time, unless the file says."""


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
    kind: str | None = Field(
        default=None, description="Of another package: what times accesses instead (physical)."
    )
    options: Options = Field(default={}, description="What that kind says it takes.")

    @model_validator(mode="after")
    def _fits_kind(self) -> Memory:
        if self.kind is None:
            if self.options:
                raise ValueError("expected options only with a kind of another package")
            return self
        if problem := values.wrong_local_kind(self.kind):
            raise ValueError(f"kind: {problem}")
        # model_fields_set: a latency of 0 that is written down is refused as well.
        if self.model_fields_set & {"latency", "read", "write"}:
            raise ValueError(f"expected no latency, read and write with kind {self.kind}, but options")
        return self


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
    kind: Annotated[str, Named(values.MEMORY_KINDS)] | None = Field(
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
    options: Options = Field(default={}, description="What a kind of another package says it takes.")

    @model_validator(mode="after")
    def _fits_kind(self) -> RemoteMemory:
        if self.kind is None:
            # A preset has filled in the kind before this runs, so that None means that neither is given.
            raise PydanticCustomError("missing_key", "missing key", {"key": "kind"})
        if self.kind not in values.MEMORY_KINDS.built_in:
            # Other kinds take all they need in `options`; only npus_per_node is common, as nodes are the
            # engine's concern.
            for key in ("bandwidth", "latency", "stages", "chunk"):
                if getattr(self, key) is not None:
                    raise ValueError(f"expected no {key} with kind {self.kind}, but options")
            return self
        if self.options:
            raise ValueError("expected options only with a kind of another package")
        if self.kind == "hierarchical":
            # Each stage has its own.
            if self.stages is None or self.bandwidth is not None or self.latency is not None:
                raise ValueError("expected stages with kind hierarchical, and bandwidth and latency in them")
            if (self.npus_per_node is not None) != any(stage.per == "node" for stage in self.stages):
                raise ValueError("expected npus_per_node with a stage per node, and only there")
            names = [stage.name for stage in self.stages]
            # Errors and reports call stages by name.
            if len(set(names)) < len(names):
                raise ValueError(f"got stages {', '.join(names)}, expected a name of its own for each")
            return self
        # Left: the kinds of ASTRA-sim, which are one latency and one bandwidth.
        for key in ("bandwidth", "latency"):
            if getattr(self, key) is None:
                raise PydanticCustomError("missing_key", "missing key", {"key": key})
        if self.stages is not None or self.chunk is not None:
            raise ValueError("expected stages and chunk only with kind hierarchical")
        if (self.kind == "per-node") != (self.npus_per_node is not None):
            raise ValueError("expected npus_per_node with kind per-node, and only there")
        return self


def local_memory(given: Memory | None, folder: Path) -> values.LocalMemory:
    """Return the local memory that a study file in a folder describes."""
    if given is None:
        return values.LocalMemory()
    own = given.read or 0.0, given.write or 0.0, given.kind or "", given.options, folder
    return values.LocalMemory(given.bandwidth, given.capacity or 0, given.latency, *own)


def remote_memory(given: RemoteMemory, folder: Path) -> values.RemoteMemory:
    """Return the remote memory that a study file in a folder describes."""
    # For the type checker: `_fits_kind` refuses None.
    assert given.kind is not None
    if given.kind not in values.MEMORY_KINDS.built_in:
        per_node = given.npus_per_node or 0
        return values.RemoteMemory(given.kind, npus_per_node=per_node, options=given.options, folder=folder)
    if given.kind != "hierarchical":
        return values.RemoteMemory(
            given.kind, given.latency or 0, int(given.bandwidth or 0), given.npus_per_node or 0
        )
    stages = []
    for stage in given.stages or ():
        stated = stage.bandwidth
        # A single bandwidth holds in both directions.
        read, write = (stated, stated) if isinstance(stated, float) else (stated.read, stated.write)
        stages.append(values.MemoryStage(stage.name, stage.per, stage.count, read, write, stage.latency))
    return values.RemoteMemory(
        "hierarchical",
        npus_per_node=given.npus_per_node or 0,
        stages=tuple(stages),
        chunk=given.chunk or CHUNK,
    )
