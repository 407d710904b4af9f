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

Only ``platform.network`` is needed. All keys and defaults stand in `armillary.platform.study_schema`;
`json_schema` exports them. Paths are relative to the file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from armillary.errors import InputError, nearest, one_of
from armillary.platform.algorithms import COLLECTIVES
from armillary.platform.astra_sim_keys import NETWORK_KEYS
from armillary.platform.document import Document, KeyPath, key_text, read_document, show
from armillary.platform.machine import read_machine
from armillary.platform.model import CollectiveName, Platform, ProfileName
from armillary.platform.profiles import NOT_ASTRA_SIM, with_roofline
from armillary.platform.study_schema import TAGS, PlatformFile, StudyFile


@dataclass(frozen=True)
class Collective:
    """One collective on all NPUs; `size` in bytes, as the ``comm_size`` of a Chakra node."""

    kind: CollectiveName
    size: int


@dataclass(frozen=True)
class Study:
    """A study file: exactly one of `trace` (a file prefix), `collective` and `generate` is given.

    What `generate` holds is read and checked by `armillary.workload.plan.request`, for whose errors the `document` is.
    """

    platform: Platform
    trace: Path | None
    collective: Collective | None
    profile: ProfileName
    path: Path
    generate: dict[str, Any] | None = None
    document: Document | None = field(default=None, repr=False, compare=False)


def load_study(path: str | Path) -> Study:
    """Read a study file.

    Raises:
        InputError: The file is missing or malformed, or has no workload.
    """
    document = read_document(path, "study file", "yaml")
    model = _validate(document)
    if model.workload is None:
        raise InputError(
            f"{document.name}: missing key 'workload': a trace, a collective and its size, or generate"
        )
    work = model.workload
    if model.profile == "astra-sim" and work.collective and work.collective not in COLLECTIVES:
        raise document.error(("workload", "collective"), f"got '{work.collective}': {NOT_ASTRA_SIM}")
    if work.generate is not None and not isinstance(work.generate, dict):
        document.reject(("workload", "generate"), work.generate, "a mapping of keys to values")
    platform = read_machine(model.platform, document, ("platform",), model.profile)
    return Study(
        platform=with_roofline(platform) if work.generate is not None else platform,
        trace=Path(path).parent / work.trace if work.trace else None,
        collective=Collective(work.collective, work.size) if work.collective and work.size else None,
        profile=model.profile,
        path=Path(path),
        generate=work.generate,
        document=document,
    )


def load_platform(path: str | Path) -> Platform:
    """Read the machine of a study file, or of a file that holds the platform mapping alone.

    Such a file names no profile: where it does not say, a bandwidth is per NPU, as in profile ``physical``.

    Raises:
        InputError: The file is missing or malformed.
    """
    document = read_document(path, "platform file", "yaml")
    if "platform" in document.data:
        study = _validate(document)
        return read_machine(study.platform, document, ("platform",), study.profile)
    if all(key in document.data for key in NETWORK_KEYS):
        raise InputError(
            f"{document.name}: this is an ASTRA-sim network file, which needs a system file beside it; "
            "expected a native platform file with the key 'network'"
        )
    try:
        model = PlatformFile.model_validate(document.data)
    except ValidationError as error:
        raise first_error(document, error) from None
    return read_machine(model, document, (), "physical")


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a study file but for what is below ``generate``; quantities are text with a pattern."""
    schema = StudyFile.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Armillary study"}


def _validate(document: Document) -> StudyFile:
    try:
        return StudyFile.model_validate(document.data)
    except ValidationError as error:
        raise first_error(document, error) from None


def first_error(document: Document, error: ValidationError, at: KeyPath = ()) -> InputError:
    """Return the first of pydantic's errors in the words of this project; `at` is where the part stands."""
    path, problem = first_problem(error)
    path = (*at, *path)
    if not problem:
        inside = f" in {key_text(path[:-1])}" if path[:-1] else ""
        return InputError(f"{document.where(path[:-1])}: missing key '{path[-1]}'{inside}")
    return document.error(path, problem)


def first_problem(error: ValidationError) -> tuple[KeyPath, str]:
    """Return where the first of pydantic's errors is, and what: empty for a key that is missing."""
    first: Any = error.errors(include_url=False)[0]
    path: KeyPath = tuple(part for part in first["loc"] if part not in TAGS)
    context = first.get("ctx", {})
    kind = first["type"]
    if kind in ("missing", "missing_key"):
        return (path if kind == "missing" else (*path, context["key"])), ""
    if kind == "unknown_key":
        return (*path, context["key"]), first["msg"]
    if kind == "value_error":
        return path, str(context["error"])
    got = show(first["input"])
    if kind == "literal_error":
        choices = [word.strip("' ") for word in context["expected"].replace(" or ", ",").split(",")]
        return path, f"got {got}, expected {one_of(choices)}{nearest(str(first['input']), choices)}"
    expected = {
        "int_type": "a whole number",
        "string_type": "text",
        "bool_type": "true or false",
        "list_type": "a list",
        "model_type": "a mapping of keys to values",
        "greater_than_equal": f"{context.get('ge')} or more",
        "less_than_equal": f"{context.get('le')} or less",
        "greater_than": f"more than {context.get('gt')}",
        "float_type": "a number",
        "too_short": "at least one entry",
        "too_long": f"at most {context.get('max_length')} entries",
        "string_too_short": "some text",
    }
    return path, f"got {got}, expected {expected.get(kind, first['msg'])}"
