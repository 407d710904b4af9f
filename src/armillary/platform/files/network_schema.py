"""What a study file says of the network, of the collectives on it, and of memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, Tag, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from armillary.base.document import Document
from armillary.base.hints import KeyPath
from armillary.platform import memory as values
from armillary.platform.collectives import ALGORITHMS, CHUNK_ORDERS, WINDOWED
from armillary.platform.fields import (
    BY_TYPE,
    TAGS,
    Bandwidth,
    Capacity,
    Count,
    Named,
    Options,
    Part,
    Side,
    Size,
    Time,
    WholeBandwidth,
    WholeTime,
)
from armillary.platform.limits import placed
from armillary.platform.model import ProfileName, WithinDimensionName
from armillary.platform.network import TOPOLOGIES, Dimension, Port, links_per_npu
from armillary.platform.network import InNetwork as SwitchWork


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
    topology: Annotated[str, Named(TOPOLOGIES)]
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
        # Repeats the checks of `Dimension`, whose errors could not name the entry of a list with a shape.
        if self.in_network is not None and self.topology != "Switch":
            raise ValueError(f"got in_network for topology '{self.topology}', expected it for Switch only")
        if self.shape is not None and not TOPOLOGIES[self.topology].shaped:
            raise ValueError(
                f"got a shape for topology '{self.topology}', expected it for Torus or Mesh only"
            )
        if self.shape is not None and self.size is not None:
            raise ValueError("expected either size or shape, not both")
        if self.shape is None and self.size is None:
            # Size is needed, but a shape stands for it, so that pydantic cannot require it.
            raise PydanticCustomError("missing_key", "missing key", {"key": "size"})
        return self


def dimensions_of(
    network: Sequence[NetworkDimension], document: Document, path: KeyPath, profile: ProfileName
) -> tuple[tuple[Dimension, ...], dict[str, int]]:
    """Return the dimensions listed at `path`, and for the name of each its position there."""
    result: list[Dimension] = []
    entry: dict[str, int] = {}
    for position, part in enumerate(network):
        name = part.name or f"dim{position}"
        shape = part.shape or [part.size or 0]
        # A dimension of 1 has no links; a network of one NPU is the exception.
        if shape == [1] and len(network) > 1:
            document.reject((*path, position, "size"), 1, "2 or more")
        for axis, size in enumerate(shape):
            # Axes of a shape are numbered even if there is only one: NAME.0.
            full = f"{name}.{axis}" if part.shape else name
            if full in entry:
                raise document.error((*path, position, "name"), f"name '{full}' is used twice")
            entry[full] = position
            with placed(document, (*path, position)):
                result.append(_dimension(part, full, size, part.per or _per(profile)))
    return tuple(result), entry


def _per(profile: ProfileName) -> str:
    # A data sheet's figure is per NPU; ASTRA-sim's files state links.
    return "npu" if profile == "physical" else "link"


def _dimension(part: NetworkDimension, name: str, size: int, per: str) -> Dimension:
    stated = part.bandwidth
    out, into = (stated, stated) if isinstance(stated, float) else (stated.up, stated.down)
    links = links_per_npu(part.topology, size)
    # The slower direction: profile astra-sim has one bandwidth per link, and refuses those that differ.
    link = min(out, into) / (links if per == "npu" else 1)
    scale = 1 if per == "npu" else links
    # Per NPU, whichever way the file states it.
    both = Port(out * scale, into * scale)
    return Dimension(name, part.topology, size, link, part.latency, both, in_network_of(part.in_network))


def in_network_of(part: InNetwork | None) -> SwitchWork | None:
    """Return what switches can do; None where nothing is said."""
    return SwitchWork(part.rate or 0.0, part.latency, part.operations or 0) if part else None


_ALGORITHM = {
    "type": "string",
    # A window may be any number: one example per name.
    "examples": [*ALGORITHMS.built_in, *(f"{name}8" for name in WINDOWED)],
}
Algorithms = Annotated[
    Any,
    WithJsonSchema({"anyOf": [_ALGORITHM, {"type": "array", "items": _ALGORITHM, "minItems": 1}]}),
]


class HostKeys(Part):
    """The path through the host of a node: for groups with several members in it, none of whose NICs is near two."""

    bandwidth: Bandwidth = Field(description="Of a node, all groups together.")
    near: Count = Field(default=2, description="NPUs, neighbours in rank, that a NIC is near to.")


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
    chunk_order: Annotated[str, Named(CHUNK_ORDERS)] = Field(
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
    fit: str | None = Field(
        default=None,
        description="Times collectives and messages as measured: name of a fit, or path of its file (physical).",
    )
    node: str | None = Field(
        default=None, description="With fit: the outermost dimension inside a node; if absent the first."
    )
    host: HostKeys | None = Field(
        default=None,
        description="With fit: what data cross on the way to NICs that are not near; absent: the library relays them.",
    )
    queues: Count = Field(default=1, description="Queues per dimension.")


CHUNK = 1 << 20
"""Bytes that a hierarchical memory moves at a time, unless the file says."""


class Memory(Part):
    """The local memory of an NPU."""

    bandwidth: Bandwidth
    capacity: Capacity | None = Field(
        default=None, description="That programs find, to see whether a generated workload fits."
    )
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


class Storage(Part):
    """What storage and checkpoint nodes read from and write to, of the whole machine."""

    bandwidth: Bandwidth = Field(description="Of all of it.")
    latency: Time = Field(default=0.0, description="Of every operation.")
    readers: Count | None = Field(default=None, description="NPUs that use it at a time; if absent all.")
    client: Bandwidth | None = Field(default=None, description="Most that one NPU has; if absent its share.")
    at: str | None = Field(
        default=None, min_length=1,
        description="Dimension, tier of switches or node that joins it to a network that moves messages.",
    )  # fmt: skip
    operations: Count | None = Field(
        default=None, description="Operations that it begins in a second (with at)."
    )


def storage(given: Storage | None) -> values.Storage | None:
    """Return the storage that a study file describes."""
    if given is None:
        return None
    return values.Storage(
        given.bandwidth,
        given.latency,
        given.readers or 0,
        given.client or 0.0,
        given.at or "",
        given.operations or 0,
    )


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
