"""Native study files: one YAML file that says what runs on which machine, with units in the values.

::

    workload: {trace: traces/step}        # or {collective: all-reduce, size: 1 GiB}: one on all NPUs
    profile: astra-sim                    # optional
    time_unit: ns                         # optional
    platform:
      network:                            # innermost dimension first; bandwidth per link, latency per hop
        - {name: package, topology: Ring, size: 2, bandwidth: 250 GB/s, latency: 500 ns}
        - {name: node, topology: FullyConnected, size: 8, bandwidth: 200 GB/s, latency: 500 ns}
      npu: {peak: 312 TFLOP/s, memory: {bandwidth: 2039 GB/s}, endpoint_delay: 10 ns}
      collectives: {all-reduce: [ring, direct], optimization: localBWAware, chunks: 64, active_chunks: 1}
      remote_memory: {kind: pool, bandwidth: 100 GB/s, latency: 1 us}
      groups: {1: [0, 1, 2, 3]}
      compute: {roofline: true}

Only ``platform.network`` is needed. All keys and defaults stand in `armillary.platform.study_schema`;
`json_schema` exports them. Paths are relative to the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from armillary.errors import InputError, nearest, one_of
from armillary.platform.algorithms import COLLECTIVES, read_algorithms
from armillary.platform.astra_sim_keys import NETWORK_KEYS
from armillary.platform.document import Document, KeyPath, key_text, read_document, show
from armillary.platform.groups import read_groups
from armillary.platform.model import Algorithm, CollectiveName, Dimension, Platform, RemoteMemory, System
from armillary.platform.study_schema import PlatformFile, StudyFile

_NO_PHYSICAL = "profile 'physical' is not available in this version, use 'astra-sim'"


@dataclass(frozen=True)
class Collective:
    """One collective on all NPUs; `size` in bytes, as the ``comm_size`` of a Chakra node."""

    kind: CollectiveName
    size: int


@dataclass(frozen=True)
class Study:
    """A study file: exactly one of `trace` (a file prefix) and `collective` is given."""

    platform: Platform
    trace: Path | None
    collective: Collective | None
    profile: Literal["astra-sim"]
    path: Path


def load_study(path: str | Path) -> Study:
    """Read a study file.

    Raises:
        InputError: The file is missing or malformed, or has no workload.
    """
    document = read_document(path, "study file", "yaml")
    model = _validate(document)
    if model.workload is None:
        raise InputError(f"{document.name}: missing key 'workload': a trace, or a collective and its size")
    work = model.workload
    return Study(
        platform=_platform(model.platform, document, ("platform",)),
        trace=Path(path).parent / work.trace if work.trace else None,
        collective=Collective(work.collective, work.size) if work.collective and work.size else None,
        profile=model.profile,
        path=Path(path),
    )


def load_platform(path: str | Path) -> Platform:
    """Read the machine of a study file, or of a file that holds the platform mapping alone.

    Raises:
        InputError: The file is missing or malformed.
    """
    document = read_document(path, "platform file", "yaml")
    if "platform" in document.data:
        return _platform(_validate(document).platform, document, ("platform",))
    if all(key in document.data for key in NETWORK_KEYS):
        raise InputError(
            f"{document.name}: this is an ASTRA-sim network file, which needs a system file beside it; "
            "expected a native platform file with the key 'network'"
        )
    try:
        model = PlatformFile.model_validate(document.data)
    except ValidationError as error:
        raise _first_error(document, error) from None
    return _platform(model, document, ())


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a study file; quantities are strings with a pattern."""
    schema = StudyFile.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Armillary study"}


def _validate(document: Document) -> StudyFile:
    if document.data.get("profile") == "physical":
        raise document.error(("profile",), _NO_PHYSICAL)
    try:
        return StudyFile.model_validate(document.data)
    except ValidationError as error:
        raise _first_error(document, error) from None


def _first_error(document: Document, error: ValidationError) -> InputError:
    """Return the first of pydantic's errors in the words of this project."""
    first: Any = error.errors(include_url=False)[0]
    path: KeyPath = tuple(first["loc"])
    context = first.get("ctx", {})
    kind = first["type"]
    if kind == "missing":
        inside = f" in {key_text(path[:-1])}" if path[:-1] else ""
        return InputError(f"{document.where(path[:-1])}: missing key '{path[-1]}'{inside}")
    if kind == "unknown_key":
        return document.error((*path, context["key"]), first["msg"])
    if kind == "value_error":
        return document.error(path, str(context["error"]))
    got = show(first["input"])
    if kind == "literal_error":
        choices = [word.strip("' ") for word in context["expected"].replace(" or ", ",").split(",")]
        return document.error(
            path, f"got {got}, expected {one_of(choices)}{nearest(str(first['input']), choices)}"
        )
    expected = {
        "int_type": "a whole number",
        "string_type": "text",
        "bool_type": "true or false",
        "list_type": "a list",
        "model_type": "a mapping of keys to values",
        "greater_than_equal": f"{context.get('ge')} or more",
        "less_than_equal": f"{context.get('le')} or less",
        "too_short": "at least one entry",
        "string_too_short": "some text",
    }
    return document.error(path, f"got {got}, expected {expected.get(kind, first['msg'])}")


def _platform(model: PlatformFile, document: Document, path: KeyPath) -> Platform:
    warnings: list[str] = []
    dimensions = _dimensions(model, document, path)
    npus = Platform(dimensions).npus
    if npus > 2**31 - 1:
        raise document.error((*path, "network"), f"has {npus} NPUs in all, expected at most {2**31 - 1}")
    npu, collectives, remote = model.npu, model.collectives, model.remote_memory
    if model.compute.roofline and not (npu.peak and npu.memory):
        raise document.error(
            (*path, "compute", "roofline"), "expected npu.peak and npu.memory.bandwidth with it"
        )
    if npu.peak and not model.compute.roofline:
        warnings.append(f"{document.name}: npu.peak has no effect without compute.roofline: true")
    if npu.memory is None:
        warnings.append(f"{document.name}: no npu.memory.bandwidth: reductions cost no time")
    groups = {}
    if model.groups is not None:
        if not isinstance(model.groups, dict):
            document.reject((*path, "groups"), model.groups, "a mapping of group id to ranks")
        groups = read_groups(document, (*path, "groups"), model.groups, npus)
    return Platform(
        dimensions=dimensions,
        system=System(
            collective_optimization=collectives.optimization,
            endpoint_delay=10 if npu.endpoint_delay is None else npu.endpoint_delay,
            active_chunks=collectives.active_chunks,
            dataset_splits=collectives.chunks,
            local_mem_bandwidth=npu.memory.bandwidth * 1e9 if npu.memory else 0.0,
            peak_performance=npu.peak or 0.0,
            roofline=model.compute.roofline,
            algorithms={
                kind: _algorithms(
                    kind,
                    getattr(collectives, kind.replace("-", "_")),
                    dimensions,
                    document,
                    (*path, "collectives", kind),
                )
                for kind in COLLECTIVES
            },
        ),
        memory=RemoteMemory(remote.kind, remote.latency, remote.bandwidth, remote.npus_per_node or 0)
        if remote
        else RemoteMemory(),
        groups=groups,
        queues_per_dim=collectives.queues,
        rendezvous=model.rendezvous,
        dialect="native",
        warnings=tuple(warnings),
        source=document.path,
    )


def _dimensions(model: PlatformFile, document: Document, path: KeyPath) -> tuple[Dimension, ...]:
    result: list[Dimension] = []
    for position, part in enumerate(model.network):
        name = part.name or f"dim{position}"
        if any(name == other.name for other in result):
            raise document.error((*path, "network", position, "name"), f"name '{name}' is used twice")
        result.append(Dimension(name, part.topology, part.size, part.bandwidth, part.latency))
    return tuple(result)


def _algorithms(
    kind: str, names: Any, dimensions: Sequence[Dimension], document: Document, path: KeyPath
) -> tuple[Algorithm, ...]:
    if names is None:
        return tuple(natural_algorithm(kind, dimension) for dimension in dimensions)
    alone = isinstance(names, str)
    algorithms = read_algorithms(document, path, [names] if alone else names, len(dimensions))
    if algorithms[0].name.startswith("one") and len(algorithms) == 1:
        return algorithms  # one ring over all NPUs, whatever the dimensions
    if alone:
        return algorithms * len(dimensions)
    if len(algorithms) != len(dimensions):
        raise document.error(
            path, f"lists {len(algorithms)} algorithms, expected {len(dimensions)}, one per network dimension"
        )
    return algorithms


def natural_algorithm(kind: str, dimension: Dimension) -> Algorithm:
    """Return the algorithm of a collective that suits a dimension's wiring."""
    if dimension.topology == "Ring":
        return Algorithm("ring")
    if dimension.topology == "FullyConnected" or kind == "all-to-all":
        return Algorithm("direct")
    power_of_two = dimension.size & (dimension.size - 1) == 0
    return Algorithm("halvingDoubling" if power_of_two else "ring")
