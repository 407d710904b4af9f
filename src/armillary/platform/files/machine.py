"""The machine of a native study file: from its checked layout to a `Platform`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from armillary.base.document import Document
from armillary.base.errors import InputError, one_of
from armillary.base.hints import KeyPath, key_text, show
from armillary.base.units import parse_time
from armillary.platform import model as values
from armillary.platform.collectives import (
    ALGORITHMS,
    PHYSICAL_COLLECTIVES,
    FitChoice,
    HostPath,
    read_groups,
    read_names,
)
from armillary.platform.fields import Part, Quantity, first_error
from armillary.platform.files.compute_schema import Compute, compute_of, read_compute
from armillary.platform.files.network_schema import (
    Collectives,
    dimensions_of,
    local_memory,
    remote_memory,
    storage,
)
from armillary.platform.files.study_schema import Peaks, PlatformFile, terms_of
from armillary.platform.files.variation_schema import variation_of
from armillary.platform.kernels import Jitter
from armillary.platform.limits import POSITIVE, TIME, placed
from armillary.platform.memory import RemoteMemory, Storage
from armillary.platform.model import AstraSimSystem, Packets, Platform, ProfileName
from armillary.platform.network import Dimension, NetworkChoice
from armillary.platform.profiles import NOT_ASTRA_SIM, astra_sim_conflicts
from armillary.platform.variation import Variation

# Entries of stragglers are free keys, which pydantic does not see: they are read by hand with this.
_TIME = Quantity(parse_time, "time", "2 ms", TIME)

if TYPE_CHECKING:
    from armillary.platform.topology.network import Network


def read_machine(model: PlatformFile, document: Document, path: KeyPath, profile: ProfileName) -> Platform:
    """Return the machine of a study.

    Args:
        model: The platform part of the file.
        document: The file, for errors.
        path: Where the part stands in the file.
        profile: Says what a bandwidth without ``per`` means, and which keys have a meaning.

    Raises:
        InputError: A value is out of range, or the profile does not model something that is there.
    """
    topology = None
    if model.network is None:
        dimensions, topology = graph_of(model, document, path, profile)
        # Levels of a graph have no entry in the file; errors about them point at the first.
        entry = {dimension.name: 0 for dimension in dimensions}
    else:
        dimensions, entry = dimensions_of(model.network, document, (*path, "network"), profile)
        # Only a graph leaves open how its NPUs nest.
        if model.collectives.hierarchy:
            raise document.error(
                (*path, "collectives", "hierarchy"),
                "expected only with a topology: here the dimensions of the network are the levels",
            )
    # A Platform of dimensions alone checks their sizes, so that the tables per rank below can rely on `npus`.
    with placed(document, path, {"dimensions": ("network",)}):
        npus = Platform(dimensions).npus
    npu, collectives, remote = model.npu, model.collectives, model.remote_memory
    folder = document.path.parent if document.path else Path()
    compute = read_compute(model.compute, document, (*path, "compute"))
    # Together they would contradict each other: replay takes recorded times only.
    if compute.times and compute.replay:
        other = "roofline" if compute.roofline else "model"
        raise document.error((*path, "compute", "replay"), f"expected only one of {other} and replay")
    # The roofline model divides by both; other models fall back to it for kernels they do not know.
    if compute.times and not (npu.peak and npu.memory):
        raise document.error(
            (*path, "compute", "roofline" if compute.roofline else "model"),
            "expected npu.peak and npu.memory.bandwidth with it",
        )
    for number, each in enumerate(compute.overrides):
        # `efficiency` scales the roofline model, whatever the model of the other kernels.
        if each.efficiency is not None and not (npu.peak and npu.memory):
            raise document.error(
                (*path, "compute", "overrides", number, "efficiency"),
                "expected npu.peak and npu.memory.bandwidth with it",
            )
    groups = {}
    if model.groups is not None:
        if not isinstance(model.groups, dict):
            document.reject((*path, "groups"), model.groups, "a mapping of group id to ranks")
        groups = read_groups(document, (*path, "groups"), model.groups, npus)
    # All parts are checked on their own; Platform checks how they fit each other.
    platform = Platform(
        dimensions=dimensions,
        npu=values.Npu(
            _peak(npu.peak),
            local_memory(npu.memory, folder),
            npu.endpoint_delay,
            _per_rank(document, (*path, "npu", "speed"), npu.speed, npus, _speed),
        ),
        compute=compute_of(compute, document, (*path, "compute")),
        collectives=values.Collectives(
            _algorithms(collectives, dimensions, document, (*path, "collectives")),
            collectives.chunks,
            # Absent: 0, which each profile reads in its own way.
            collectives.active_chunks or 0,
            collectives.chunk_order,
            collectives.within_dimension,
            _fit(collectives, dimensions, document, (*path, "collectives")),
        ),
        remote_memory=remote_memory(remote, folder) if remote else RemoteMemory(),
        storage=_storage(model, topology, document, (*path, "storage")),
        groups=groups,
        scheduling=model.scheduling,
        stragglers=_per_rank(document, (*path, "stragglers"), model.stragglers, npus, _time),
        jitter=Jitter(model.jitter.sigma, model.jitter.seed) if model.jitter else None,
        terms=terms_of(model.terms),
        variation=_variation(model, dimensions, document, (*path, "variation")),
        packets=_packets(model, document, path),
        topology=topology,
        astra_sim=AstraSimSystem(
            collectives.optimization, queues_per_dim=collectives.queues, rendezvous=model.rendezvous
        ),
        dialect="native",
        profile=profile,
        network_model=_network_model(model, document, (*path, "network_model")),
        warnings=(*_warnings(model, compute, document, profile), *(topology.warnings if topology else ())),
        source=document.path,
    )
    # Only now: what profile astra-sim cannot model is seen in the finished machine.
    for place, problem in astra_sim_conflicts(platform) if profile == "astra-sim" else ():
        at: KeyPath = place
        if place[0] == "network":
            # Dimensions of a shape (NAME.0, NAME.1) share one entry of the list.
            at = ("network", entry[place[1]], place[2])
        raise document.error((*path, *at), problem)
    return platform


def graph_of(
    model: PlatformFile, document: Document, path: KeyPath, profile: ProfileName
) -> tuple[tuple[Dimension, ...], Network]:
    """Return the graph that a machine describes, and the levels at which collectives run on it.

    Raises:
        InputError: the profile knows dimensions only, or the graph or the levels do not fit.
    """
    # Imported here: graphs need NumPy and parsers that most machines do not.
    from armillary.platform.files.topology_schema import read_topology
    from armillary.platform.logical import logical_dimensions
    from armillary.platform.topology.aggregation import with_in_network

    if profile == "astra-sim":
        raise document.error(
            (*path, "topology"), f"a graph: {NOT_ASTRA_SIM}; expected network, a list of dimensions"
        )
    network = read_topology(document, (*path, "topology"), model.topology)
    try:
        # Sizes given under collectives.hierarchy, hence the key of the error below.
        levels = logical_dimensions(network.topology, tuple(model.collectives.hierarchy or ()))
        return with_in_network(levels, network), network
    except InputError as error:
        raise document.error((*path, "collectives", "hierarchy"), str(error)) from None


def _packets(model: PlatformFile, document: Document, path: KeyPath) -> Packets:
    if model.packets is None:
        return Packets()
    from armillary.platform.packet_options import PROTOCOLS

    path = (*path, "packets")
    if not isinstance(model.packets, dict) or "protocol" not in model.packets:
        # The layout depends on the protocol, so that it is chosen before pydantic sees the mapping.
        raise document.error(path, f"expected a mapping with a protocol, {one_of(PROTOCOLS)}")
    protocol = document.choice((*path, "protocol"), model.packets["protocol"], PROTOCOLS)
    try:
        packets = packets_of(PROTOCOLS[protocol].model_validate(model.packets))
        # Says that packets were given even where all values are the defaults.
        return replace(packets, source=f"{document.where(path)}: {key_text(path)}")
    except ValidationError as error:
        raise first_error(document, error, path) from None


def _storage(
    model: PlatformFile, network: Network | None, document: Document, path: KeyPath
) -> Storage | None:
    with placed(document, path):
        found = storage(model.storage)
        # The places of a network of dimensions are known once its graph is built.
        if found and found.at and network:
            from armillary.platform.topology.attached import places

            places(network.topology, found.at)
    return found


def _variation(
    model: PlatformFile, dimensions: tuple[Dimension, ...], document: Document, path: KeyPath
) -> Variation | None:
    if model.variation is None:
        return None
    with placed(document, path):
        variation = variation_of(model.variation)
        variation.check_dimensions([dimension.name for dimension in dimensions])
    return variation


def _network_model(model: PlatformFile, document: Document, path: KeyPath) -> NetworkChoice:
    given = model.network_model
    if given is None:
        return NetworkChoice()
    name, options = (given, {}) if isinstance(given, str) else (given.name, given.options)
    folder = document.path.parent if document.path else Path()
    with placed(document, path):
        return NetworkChoice(name, options, f"{document.where(path)}: {key_text(path)}", folder)


def _peak(given: Peaks | float | None) -> float | dict[str, float]:
    if isinstance(given, Peaks):
        return given.model_dump(exclude_none=True)
    # None: not given, which a machine writes as 0.
    return given or 0.0


def _fit(
    keys: Collectives, dimensions: tuple[Dimension, ...], document: Document, path: KeyPath
) -> FitChoice | None:
    names = [dimension.name for dimension in dimensions]
    if keys.fit is None:
        if keys.node is not None:
            raise document.error((*path, "node"), "expected only with fit: it says what a node of the fit is")
        if keys.host is not None:
            raise document.error((*path, "host"), "expected only with fit, whose collectives cross it")
        return None
    inner = 1
    if keys.node is not None:
        # The named dimension and those inside it make up a node.
        inner += names.index(document.choice((*path, "node"), keys.node, names))
    folder = document.path.parent if document.path else Path()
    host = HostPath(keys.host.bandwidth, keys.host.near) if keys.host else None
    source = f"{document.where((*path, 'fit'))}: {key_text((*path, 'fit'))}"
    return FitChoice(keys.fit, inner, folder, source, host)


def _warnings(model: PlatformFile, compute: Compute, document: Document, profile: ProfileName) -> list[str]:
    warnings = []
    # Only keys that the file sets: the defaults are always there.
    given = model.collectives.model_fields_set if profile == "physical" else set()
    for key in ("optimization", "queues"):
        if key in given:
            warnings.append(
                f"{document.name}: collectives.{key} has no effect in profile physical; astra-sim uses it"
            )
    # In profile physical the peak still serves bounds and reports.
    if model.npu.peak and not compute.times and profile == "astra-sim":
        warnings.append(f"{document.name}: npu.peak has no effect without compute.roofline: true")
    if model.npu.memory is None:
        warnings.append(f"{document.name}: no npu.memory.bandwidth: reductions cost no time")
    return warnings


def _algorithms(
    collectives: Collectives, dimensions: tuple[Dimension, ...], document: Document, path: KeyPath
) -> dict[str, tuple[str, ...]]:
    """Return the names of algorithms of each collective that the file lists, see `Collectives.algorithms`."""
    result = {}
    count = len(dimensions)
    for kind in PHYSICAL_COLLECTIVES:
        # Keys of the file are "all-reduce"; attributes cannot have hyphens.
        given = getattr(collectives, kind.replace("-", "_"))
        if given is None:
            continue
        place = (*path, kind)
        names = read_names(document, place, [given] if isinstance(given, str) else given, count, ALGORITHMS)
        if isinstance(given, str) and not given.startswith("one"):
            # One name stands for all dimensions, except those that span them by themselves.
            names *= count
        if len(names) != count and not (len(names) == 1 and names[0].startswith("one")):
            raise document.error(
                place, f"lists {len(names)} algorithms, expected {count}, one per network dimension"
            )
        result[kind] = names
    return result


def _per_rank(
    document: Document,
    path: KeyPath,
    table: Any,
    npus: int,
    read: Callable[[Document, KeyPath, object], float],
) -> dict[int, float]:
    if table is None:
        return {}
    if not isinstance(table, dict):
        document.reject(path, table, "a mapping of rank to value")
    # Keys of a mapping that pydantic takes as it is: booleans and text are possible.
    for rank in table:
        if isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank < npus:
            raise document.error((*path, rank), f"got {show(rank)}, expected a rank from 0 to {npus - 1}")
    return {rank: read(document, (*path, rank), value) for rank, value in table.items()}


def _speed(document: Document, path: KeyPath, value: object) -> float:
    if problem := POSITIVE(value):
        raise document.error(path, problem)
    return float(value)  # type: ignore[arg-type]


def _time(document: Document, path: KeyPath, value: object) -> float:
    try:
        return _TIME.read(value)
    except ValueError as error:
        raise document.error(path, str(error)) from None


# TCP options whose engine counts in ms; all other times are in ns.
_MILLISECONDS = ("min_rto", "max_rto", "ack_delay")


def packets_of(model: Part) -> Packets:
    """Return what a checked part of a study file says; what it leaves out is left to the model."""
    # Unset keys are left out, so that the engine's defaults apply and not those of the layout.
    options: dict[str, Any] = model.model_dump(exclude_none=True, exclude_unset=True)
    for name in _MILLISECONDS:
        if name in options:
            # ns to ms.
            options[name] /= 1e6
    return Packets(options.pop("protocol"), options)
