"""Native study files: one YAML file that says what runs on which machine, with units in the values.

::

    workload: {trace: traces/step}        # or {collective: all-reduce, size: 1 GiB}: one on all NPUs; or generate
    profile: physical                     # optional; or astra-sim
    time_unit: ns                         # optional
    platform:
      network:                            # innermost dimension first; latency per hop
        - {name: package, topology: Ring, size: 2, bandwidth: 250 GB/s, per: link, latency: 500 ns}
        - {name: node, topology: FullyConnected, size: 8, bandwidth: 200 GB/s, latency: 500 ns}
        - {name: rack, topology: Torus, shape: [4, 4], bandwidth: {up: 50 GB/s, down: 25 GB/s}, latency: 1 us}
      npu: {peak: 312 TFLOP/s, memory: {bandwidth: 2039 GB/s}, endpoint_delay: 10 ns, speed: {3: 0.8}}
      collectives: {all-reduce: [ring, direct, ring, ring], all-gather: auto, chunks: 64, active_chunks: 1}
      scheduling: fifo
      stragglers: {5: 2 ms}
      jitter: {sigma: 5 %, seed: 1}
      remote_memory: {kind: pool, bandwidth: 100 GB/s, latency: 1 us}
      groups: {1: [0, 1, 2, 3]}
      compute: {roofline: true}

Instead of ``workload``, ``jobs`` is a list of several, each with the NPUs that it runs on.

Only ``platform.network`` is needed; ``platform: {preset: hgx-h100}`` is a known system, and other keys beside it
change that. All keys and defaults stand in `armillary.platform.files.study_schema` and what it imports;
`json_schema` exports them. Paths are relative to the file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from armillary.base.document import Document, Source, check_path, is_there, read_document
from armillary.base.errors import InputError, nearest
from armillary.base.hints import KeyPath, did_you_mean, show
from armillary.platform.collectives import COLLECTIVES
from armillary.platform.fields import first_error
from armillary.platform.files.machine import read_machine
from armillary.platform.files.study_schema import Job, PlatformFile, StudyFile, Workload
from armillary.platform.model import CollectiveName, Platform, ProfileName
from armillary.platform.profiles import NOT_ASTRA_SIM, with_roofline

_GRAPHS = (".csv", ".graphml", ".topo", ".txt")
"""Suffixes of networks of other tools: `armillary.platform.files.topology.SUFFIXES` that are no YAML."""
_RANK_FILE = re.compile(r"\.\d+\.et(\.gz|\.zst)?$")


@dataclass(frozen=True)
class Collective:
    """One collective on all NPUs; `size` in bytes, as the ``comm_size`` of a Chakra node."""

    kind: CollectiveName
    size: int


@dataclass(frozen=True)
class StudyJob:
    """One of the jobs of a study: a study of what it runs, with its NPUs in the order of its ranks."""

    name: str
    work: Study
    npus: tuple[int, ...]
    arrival_ns: int


@dataclass(frozen=True)
class Study:
    """A study file: exactly one of `trace` (a file prefix), `collective`, `generate` and `jobs` is given.

    What `generate` holds is read and checked by `armillary.workload.plan.request`, for whose errors the `document` is.
    """

    platform: Platform
    trace: Path | None
    collective: Collective | None
    profile: ProfileName
    path: Path
    generate: dict[str, Any] | None = None
    document: Document | None = field(default=None, repr=False, compare=False)
    jobs: tuple[StudyJob, ...] = ()
    place: KeyPath = ("workload",)
    """Where the workload stands in the document."""
    ranks: int = 0
    """Ranks of the workload: those of the platform, or of the job that this is of."""


def load_study(path: str | Path) -> Study:
    """Read a study file.

    Raises:
        InputError: The file is missing or malformed, or has no workload.
    """
    check_path(path, "study file")
    if Path(path).suffix not in (".yaml", ".yml"):
        _refuse_trace(os.fspath(path))
    return study_of(read_document(path, "study file", "yaml"), Path(path))


def _refuse_trace(path: str) -> None:
    """Refuse a trace in whatever format; a Chakra trace by the name of one of its files or their prefix."""
    from armillary.trace.files import SUFFIXES
    from armillary.trace.other_formats import refuse_other

    refuse_other(path, "a study file")
    prefix = _RANK_FILE.sub("", path)
    of_trace = prefix != path or (
        not is_there(path) and any(is_there(f"{path}.0{each}") for each in SUFFIXES)
    )
    if of_trace:
        raise InputError(
            f"{path}: a Chakra trace, expected a study file; `armillary run --workload {prefix} --machine FILE|PRESET` "
            "runs it"
        )


def study_of(document: Document, path: Path) -> Study:
    """Return the study that a document holds; paths in it are relative to the folder of `path`.

    Raises:
        InputError: It is malformed, or has no workload.
    """
    # Presets are filled in before validation, so that what the user changes and what the preset says are
    # checked as one.
    given = document.data.get("platform") if isinstance(document.data, dict) else None
    document, warnings = _expanded(document, ("platform",))
    model = _validate(document)
    if model.workload is None and model.jobs is None:
        raise InputError(
            f"{document.name}: missing key 'workload': a trace, a collective and its size, or generate; or 'jobs'"
        )
    # Only profile physical runs several jobs on one machine.
    if model.jobs and model.profile == "astra-sim":
        raise document.error(("jobs",), NOT_ASTRA_SIM)
    platform = _from_preset(read_machine(model.platform, document, ("platform",), model.profile), given)
    works = [model.workload] if model.workload else [job.workload for job in model.jobs or ()]
    # Generated kernels have no recorded durations: some model must time them, by default the roofline.
    if any(isinstance(work.generate, dict) for work in works):
        platform = with_roofline(platform)
    study = Study(
        _warned(platform, warnings),
        # The workload follows below; `jobs` copy this study per job.
        None,
        None,
        model.profile,
        path,
        document=document,
        ranks=platform.npus,
    )
    if model.workload:
        return _with_work(study, model.workload)
    return replace(study, jobs=tuple(_jobs(study, model.jobs or [], document)))


def _with_work(study: Study, work: Workload) -> Study:
    """Return the study of one workload, which stands at `Study.place`."""
    assert study.document is not None
    if study.profile == "astra-sim" and work.collective and work.collective not in COLLECTIVES:
        # Other collectives exist in profile physical only.
        raise study.document.error((*study.place, "collective"), f"got '{work.collective}': {NOT_ASTRA_SIM}")
    if work.generate is not None and not isinstance(work.generate, dict):
        study.document.reject((*study.place, "generate"), work.generate, "a mapping of keys to values")
    return replace(
        study,
        trace=study.path.parent / work.trace if work.trace else None,
        collective=Collective(work.collective, work.size) if work.collective and work.size else None,
        generate=work.generate,
    )


def _jobs(study: Study, jobs: list[Job], document: Document) -> Iterator[StudyJob]:
    """Yield the jobs of a study; one that repeats is as many, named NAME.0 and so on."""
    from armillary.platform.files.job_npus import npus_of

    taken: set[int] = set()
    names: set[str] = set()
    # Late: most studies have no jobs.
    from armillary.base.counts import MOST_JOBS, check_count

    check_count(
        sum(job.repeat for job in jobs), MOST_JOBS, f"{document.where(('jobs',))}: jobs", "a smaller repeat"
    )
    for i, job in enumerate(jobs):
        name = job.name or f"job{i}"
        # In the order of the file: each job may take only NPUs that those before it have left free.
        npus = npus_of(job, document, ("jobs", i, "npus"), study.platform.npus, taken)
        taken |= set(npus)
        work = _with_work(replace(study, place=("jobs", i, "workload"), ranks=len(npus)), job.workload)
        for number in range(job.repeat):
            # Repetitions are jobs of their own, NAME.0, NAME.1, …, which differ in the arrival only.
            own = f"{name}.{number}" if job.repeat > 1 else name
            if own in names:
                raise document.error(("jobs", i, "name"), f"got '{own}' again, expected another for each job")
            names.add(own)
            yield StudyJob(own, work, npus, job.arrival + number * (job.every or 0))


def load_platform(path: Source) -> Platform:
    """Read the machine of a study file, of a file that holds the platform mapping alone, or a preset by its name.

    What such a file holds may be given as a mapping, too.
    Such a file names no profile: where it does not say, a bandwidth is per NPU, as in profile ``physical``.

    Raises:
        InputError: The file is missing or malformed.
    """
    document = platform_document(path)
    # A whole study; its profile then decides what a bandwidth without `per` means.
    if "platform" in document.data:
        given = document.data["platform"]
        document, warnings = _expanded(document, ("platform",))
        study = _validate(document)
        platform = read_machine(study.platform, document, ("platform",), study.profile)
        return _warned(_from_preset(platform, given), warnings)
    from armillary.platform.files.astra_sim_keys import NETWORK_KEYS

    # A frequent mistake: the network file of ASTRA-sim has the same suffix, but no machine.
    if all(key in document.data for key in NETWORK_KEYS):
        raise InputError(
            f"{document.name}: this is an ASTRA-sim network file, which needs a system file beside it; "
            "expected a native platform file with the key 'network'"
        )
    given = document.data
    document, warnings = _expanded(document, ())
    try:
        model = PlatformFile.model_validate(document.data)
    except ValidationError as error:
        raise first_error(document, error) from None
    return _warned(_from_preset(read_machine(model, document, (), "physical"), given), warnings)


def _from_preset(platform: Platform, given: Any) -> Platform:
    """Return the platform with a fit that says which preset brought it; `given` is the mapping of the user."""
    fit, name = platform.collectives.fit, given.get("preset") if isinstance(given, dict) else None
    if fit is None or name is None or "fit" in (given.get("collectives") or {}):
        return platform
    fit = replace(fit, preset=str(name))
    return replace(platform, collectives=replace(platform.collectives, fit=fit))


def platform_of(machine: object) -> Platform:
    """Return a machine that is given as such, or as what `load_platform` takes.

    Raises:
        InputError: it is something else, or the file is missing or malformed.
    """
    if isinstance(machine, Platform):
        return machine
    if isinstance(machine, str | Path | Mapping):
        return load_platform(machine)
    raise InputError(
        f"platform: got {show(machine)}, expected a Platform, the name of a preset, the path of a study or platform "
        "file, or what such a file holds"
    )


def platform_document(path: Source) -> Document:
    """Return the parsed file, or the content of one that names a preset if `path` is no file but a preset's name.

    Raises:
        InputError: It is neither, or malformed.
    """
    if isinstance(path, Mapping):
        return read_document(path, "platform file", "yaml")
    check_path(path, "platform file")
    from armillary.platform.files.preset import (
        device_names,
        is_preset,
        preset_document,
        preset_names,
        read_preset,
    )
    from armillary.platform.files.sized import counted, turned

    many = counted(str(path))
    if many and Path(many[1]).suffix in (".yaml", ".yml") and not is_there(path):
        return _many(str(path), *many)
    # A file of the same name wins over a preset.
    if is_preset(str(path)) and not is_there(path):
        # Its errors need no file beside them.
        read_preset(str(path))
        return preset_document(str(path))
    # A suffix is meant as a file; reading it gives the usual error if it does not exist.
    if Path(path).suffix.lower() in _GRAPHS and is_there(path):
        # The network of another tool is a machine by itself; its reader names its lines.
        return Document(
            str(path), {"topology": {"kind": "file", "file": Path(path).name}}, Path(path), "", "yaml"
        )
    if Path(path).suffix or is_there(path):
        document = read_document(path, "platform file", "yaml")
        if not ("infrastructure" in document.data or {"devices", "instances"} <= document.data.keys()):
            return document
        # An InfraGraph is a machine by itself: errors name lines of its own, which have no such keys.
        return replace(document, data={"topology": {"kind": "infragraph", "file": Path(path).name}})
    # A device is no machine, but one of them is.
    meant = [f"1x{name}" for name in device_names() if name.casefold() == str(path).casefold()]
    meant += [text for text in turned(str(path)) if is_preset(text)]
    hint = did_you_mean(meant[:1]) if meant else nearest(str(path), preset_names())
    raise InputError(f"{path}: neither a file nor a preset{hint}; presets: {', '.join(preset_names())}")


def _many(name: str, count: int, file: str) -> Document:
    """Return the document of `count` machines of a file, joined by ``between`` or its outermost dimension.

    Raises:
        InputError: the file is malformed, or says nothing of a network between its machines.
    """
    from armillary.platform.files.sized import multiplied

    document = platform_document(file)
    at = ("platform",) if "platform" in document.data else ()
    document, _ = _expanded(document, at)
    keys = document.data["platform"] if at else document.data
    grown = multiplied(name, keys, document.data.get("between") if at else None, count)
    return replace(document, data={**document.data, "platform": grown} if at else grown)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a study file but for what is below ``generate``; quantities are text with a pattern."""
    from armillary.platform.files.compute_schema import compute_schema
    from armillary.platform.files.topology_schema import topology_schema
    from armillary.platform.packet_options import packets_schema

    # Parts that are validated lazily, by their `kind` or `protocol`, are Any in the layout: patch in their
    # schemas.
    schema = StudyFile.model_json_schema()
    schema["$defs"] |= topology_schema() | packets_schema() | compute_schema()
    keys = schema["$defs"]["PlatformFile"]["properties"]
    keys["topology"] = {"$ref": "#/$defs/Topology"}
    keys["compute"] = {"$ref": "#/$defs/Compute"}
    keys["packets"] = {"$ref": "#/$defs/Packets"}
    # Over a preset, `network` may also map names of dimensions to keys.
    keys["network"]["anyOf"].append({"type": "object", "additionalProperties": {"type": "object"}})
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Armillary study"}


def _expanded(document: Document, path: tuple[str, ...]) -> tuple[Document, tuple[str, ...]]:
    """Return the document with its presets filled in, and warnings about them; see `preset.expand`."""
    machine: Any = document.data
    for key in path:
        machine = machine.get(key)
    memory = machine.get("remote_memory") if isinstance(machine, dict) else None
    if not any(isinstance(part, dict) and "preset" in part for part in (machine, memory)):
        return document, ()
    from armillary.platform.files.preset import expand

    return expand(document, path)


def _warned(platform: Platform, warnings: tuple[str, ...]) -> Platform:
    return replace(platform, warnings=(*platform.warnings, *warnings)) if warnings else platform


def _validate(document: Document) -> StudyFile:
    try:
        return StudyFile.model_validate(document.data)
    except ValidationError as error:
        raise first_error(document, error) from None
