"""A topology as study files describe it: ``topology: {kind: fat-tree, k: 8, bandwidth: 50 GB/s, …}``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, ValidationError

from armillary.base.document import Document
from armillary.base.errors import InputError, one_of
from armillary.base.hints import KeyPath, key_text
from armillary.platform.fields import (
    Bandwidth,
    Count,
    Part,
    Percent,
    Side,
    Size,
    Time,
    choice_schema,
    first_error,
)
from armillary.platform.files.network_schema import InNetwork, NetworkDimension, dimensions_of, in_network_of
from armillary.platform.files.topology import listed, read_graph
from armillary.platform.topology.aggregation import named_switches
from armillary.platform.topology.failures import Failure, degraded
from armillary.platform.topology.graph import UNBOUNDED, Topology
from armillary.platform.topology.grids import from_dimensions, hypercube, optical_torus, wafer_mesh
from armillary.platform.topology.network import Network, RoutingName, routing_of
from armillary.platform.topology.planes import MOST_PLANES, OVER_PLANES, in_planes
from armillary.platform.topology.trees import dragonfly, fat_tree, leaf_spine, rail_optimised


class FailureEntry(Part):
    """A node or a link that fails or gets worse."""

    node: str | None = Field(default=None, description="E.g. spine 0; all of its links.")
    link: Annotated[list[str], Field(min_length=2, max_length=2)] | None = Field(
        default=None, description="Two nodes."
    )
    at: Time = Field(default=0.0, description="From when on.")
    until: Time | None = Field(default=None, description="When it is repaired; if absent never.")
    bandwidth: Percent = Field(default=0.0, description="What remains of the bandwidth; if absent nothing.")
    latency: Time = Field(default=0.0, description="What is added to the latency.")
    one_way: bool = Field(default=False, description="Only from the first node to the second.")


class SwitchesInNetwork(InNetwork):
    """What some switches of a graph can do with the data of collectives."""

    switches: list[str] | None = Field(
        default=None, min_length=1, description="Which: sorts (leaf) or single ones (leaf 0); if absent all."
    )


# Subclasses add what the builder of their kind takes, under the same names, see `_build`.
class _Any(Part):
    """Keys of every kind."""

    buffer: Size | None = Field(default=None, description="At the end of every link; if absent unlimited.")
    routing: RoutingName | None = Field(
        default=None,
        description="If absent dimension-order where there are dimensions, widest for InfraGraph, else ecmp.",
    )
    table: str | None = Field(default=None, description="CSV file node,destination,next of routing static.")
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = Field(
        default=0, description="Of ecmp, adaptive, valiant, ugal and widest."
    )
    failures: list[FailureEntry] = Field(default=[])
    assumed: list[str] = Field(
        default=[],
        description="What one has to know of its numbers, a sentence each: stands above every result.",
    )
    in_network: SwitchesInNetwork | None = Field(
        default=None, description="Collectives in the switches: algorithm in-switch."
    )


class _Links(_Any):
    bandwidth: Bandwidth
    latency: Time


class DimensionsKind(_Any):
    """Nested dimensions as a graph."""

    kind: Literal["dimensions"]
    network: list[NetworkDimension] = Field(min_length=1, description="As platform.network.")


class _Planes(_Links):
    """Keys of networks that may have several planes; bandwidths and latencies are those of all planes together."""

    planes: Annotated[int, Field(ge=1, le=MOST_PLANES)] = Field(
        default=1,
        description="Networks of their own, with an even share of every link; NICs have a port in each.",
    )


class FatTreeKind(_Planes):
    """A k-ary fat tree."""

    kind: Literal["fat-tree"]
    k: Side
    oversubscription: Annotated[float, Field(gt=0)] = Field(default=1.0, strict=False)


class LeafSpineKind(_Planes):
    """Leaves and spines."""

    kind: Literal["leaf-spine"]
    leaves: Count
    spines: Annotated[int, Field(ge=0)] = Field(description="0: one leaf joins all.")
    npus_per_leaf: Count
    uplink: Bandwidth | None = None


class DragonflyKind(_Links):
    """A dragonfly."""

    kind: Literal["dragonfly"]
    npus_per_router: Count
    routers: Count = Field(description="Of a group.")
    global_links: Count = Field(description="Of a router.")
    groups: Side | None = None
    local_bandwidth: Bandwidth | None = None
    global_bandwidth: Bandwidth | None = None
    global_latency: Time | None = None


class RailKind(_Planes):
    """Hosts on rails; bandwidth and latency are those of the NICs."""

    kind: Literal["rail-optimised"]
    hosts: Count
    npus_per_host: Count
    host_bandwidth: Bandwidth
    host_latency: Time
    host_switches: Count = 1
    hosts_per_unit: Count | None = None
    spines: Annotated[int, Field(ge=0)] = 0
    uplink: Bandwidth | None = None


class WaferKind(_Links):
    """A 2-D mesh on a wafer."""

    kind: Literal["wafer-mesh"]
    shape: list[Count] = Field(min_length=2, max_length=2)
    die: list[Count] | None = Field(default=None, min_length=2, max_length=2)
    die_bandwidth: Bandwidth | None = None
    die_latency: Time | None = None


class HypercubeKind(_Links):
    """A hypercube of 2**order NPUs."""

    kind: Literal["hypercube"]
    order: Annotated[int, Field(ge=1, le=24)]


class OpticalTorusKind(_Links):
    """A 3-D torus of cubes, joined by optical circuit switches."""

    kind: Literal["optical-torus"]
    shape: list[Side] = Field(min_length=3, max_length=3)
    cube: Count = 4
    optical_latency: Time | None = None
    twisted: bool = False


class FileKind(_Any):
    """An edge list, GraphML, htsim's .topo, or a topology of ASTRA-sim's ns-3 back end (.txt)."""

    kind: Literal["file"]
    file: str = Field(min_length=1, description="A .csv, .yaml, .graphml, .topo or .txt file.")


class EdgesKind(_Any):
    """An edge list, in the file itself."""

    kind: Literal["edges"]
    links: list[dict[str, Any]] = Field(min_length=1, description="Each from, to, bandwidth, latency, …")
    npus: list[str] | None = Field(
        default=None, description="Names of the NPUs by rank; absent: npu 0, npu 1, …"
    )
    forward: bool = Field(default=False, description="Messages may pass through NPUs.")


class LinkKeys(Part):
    """What a link of an InfraGraph is capable of, instead of what the file states."""

    bandwidth: Bandwidth | None = Field(default=None, description="One way.")
    latency: Time | None = Field(default=None, description="Per hop.")


class InfraGraphKind(_Any):
    """An InfraGraph file."""

    kind: Literal["infragraph"]
    file: str = Field(min_length=1, description="A .yaml or .json file.")
    links: dict[str, LinkKeys] = Field(
        default={}, description="By the name of a link; one that states nothing is assumed by its name."
    )
    forward: bool | None = Field(
        default=None,
        description="Whether xpus pass on messages for others; if absent where nothing else joins all of them.",
    )


KINDS: dict[str, type[_Any]] = {
    "dimensions": DimensionsKind,
    "fat-tree": FatTreeKind,
    "leaf-spine": LeafSpineKind,
    "dragonfly": DragonflyKind,
    "rail-optimised": RailKind,
    "wafer-mesh": WaferKind,
    "hypercube": HypercubeKind,
    "optical-torus": OpticalTorusKind,
    "file": FileKind,
    "edges": EdgesKind,
    "infragraph": InfraGraphKind,
}
_BUILDERS: dict[str, Callable[..., Topology]] = {
    "fat-tree": fat_tree,
    "leaf-spine": leaf_spine,
    "dragonfly": dragonfly,
    "rail-optimised": rail_optimised,
    "wafer-mesh": wafer_mesh,
    "hypercube": hypercube,
    "optical-torus": optical_torus,
}


def read_topology(document: Document, path: KeyPath, data: Any) -> Network:
    """Return what the mapping `data`, which stands at `path` of a document, describes.

    Raises:
        InputError: A key is unknown or missing, or a value does not fit.
    """
    if not isinstance(data, dict):
        document.reject(path, data, "a mapping with a kind")
    if "kind" not in data:
        # Without this, the error would be that of a kind called None.
        raise document.error(path, f"missing key 'kind', expected {one_of(KINDS)}")
    named = document.choice((*path, "kind"), data["kind"], KINDS)
    try:
        kind = KINDS[named].model_validate(data)
    except ValidationError as error:
        raise first_error(document, error, path) from None
    # Paths in a study are relative to its file.
    folder = document.path.parent if document.path else Path()
    try:
        built = _build(named, kind, document, path, folder)
        topology = built.topology
        failures = tuple(
            Failure(
                **entry.model_dump(exclude={"link"}),
                link=(entry.link[0], entry.link[1]) if entry.link else None,
            )
            for entry in kind.failures
        )
    except InputError as error:
        # Errors of files in the mapping (an edge list) name their own place already.
        raise error if str(error).startswith(document.name) else document.error(path, str(error)) from None
    for number, failure in enumerate(failures):
        try:
            # Tried one by one, so that the error names the entry of the list.
            degraded(topology, [failure])
        except InputError as error:
            raise document.error((*path, "failures", number), str(error)) from None
    # Only graphs that were built from dimensions have an order of dimensions. In a host of an InfraGraph slow and fast
    # links join the same NPUs.
    usual: RoutingName = "widest" if named == "infragraph" else "ecmp"
    chosen: RoutingName = kind.routing or ("dimension-order" if topology.dimensions else usual)
    _check_planes(document, path, topology, chosen, kind)
    table = folder / kind.table if kind.table else None
    if table and chosen != "static":
        raise document.error((*path, "table"), f"expected with routing static only, got '{chosen}'")
    try:
        # Built for its errors: `Network.at` builds it again for each stage of failures.
        routing_of(chosen, topology, kind.seed, table)
    except InputError as error:
        raise document.error((*path, "table" if table else "routing"), str(error)) from None
    switches: tuple[int, ...] = ()
    if kind.in_network:
        try:
            switches = named_switches(topology, kind.in_network.switches)
        except InputError as error:
            raise document.error((*path, "in_network"), str(error)) from None
    # Errors of a simulation can then name the line of the study.
    topology = dataclasses.replace(topology, source=f"{document.where(path)}: {key_text(path)}")
    return Network(
        topology,
        chosen,
        kind.seed,
        failures,
        table,
        in_network_of(kind.in_network),
        switches,
        (*built.assumed, *kind.assumed),
        built.warnings,
    )


def _check_planes(document: Document, path: KeyPath, topology: Topology, routing: str, kind: _Any) -> None:
    """Refuse what would leave the plane of a part of a message, or use one plane only."""
    if topology.planes == 1:
        return
    if routing not in OVER_PLANES:
        raise document.error(
            (*path, "routing"), f"got '{routing}', expected {one_of(OVER_PLANES)} with planes"
        )
    if kind.in_network:
        raise document.error(
            (*path, "in_network"), "switches of several planes do not add up together, expected planes: 1"
        )


def topology_schema() -> dict[str, Any]:
    """Return the JSON Schemas of all kinds, by name, and of their choice as ``Topology``."""
    return choice_schema("Topology", KINDS.values(), "A graph of NPUs and switches.")


class _Built(NamedTuple):
    """A graph, and what its description leaves out."""

    topology: Topology
    assumed: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def _build(named: str, kind: _Any, document: Document, path: KeyPath, folder: Path) -> _Built:
    buffer = UNBOUNDED if kind.buffer is None else kind.buffer
    if isinstance(kind, FileKind):
        if Path(kind.file).suffix.lower() == ".txt":
            from armillary.platform.files.ns3_topology import read_ns3

            topology, lost = read_ns3(folder / kind.file)
            return _Built(topology, warnings=tuple(lost))
        return _Built(read_graph(folder / kind.file))
    if isinstance(kind, EdgesKind):
        keys = {"links": kind.links, "npus": kind.npus, "forward": kind.forward}
        return _Built(listed(document, path, keys, "edges"))
    if isinstance(kind, InfraGraphKind):
        from armillary.platform.files.infragraph import read_infragraph

        links = {name: (link.bandwidth, link.latency) for name, link in kind.links.items()}
        found = read_infragraph(folder / kind.file, links, buffer, kind.forward)
        return _Built(found.topology, found.assumed, found.warnings)
    if isinstance(kind, DimensionsKind):
        # "physical": graphs exist in that profile only, which decides what a bandwidth without `per` means.
        dimensions, _ = dimensions_of(kind.network, document, (*path, "network"), "physical")
        return _Built(from_dimensions(dimensions, buffer))
    # What is left are the arguments of the builder.
    own = {
        key: value for key, value in kind if key not in _Any.model_fields and key not in ("kind", "planes")
    }
    # Builders unpack tuples; YAML gives lists.
    own = {key: tuple(value) if isinstance(value, list) else value for key, value in own.items()}
    built = _BUILDERS[named](**own, buffer=buffer)
    return _Built(in_planes(built, kind.planes) if isinstance(kind, _Planes) else built)
