"""What a study file says of collectives: their algorithms, chunks and queues."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema

from armillary.platform.collectives import ALGORITHMS, CHUNK_ORDERS, WINDOWED
from armillary.platform.fields import Bandwidth, Count, Named, Part
from armillary.platform.model import WithinDimensionName

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
