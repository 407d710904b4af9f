"""The NPUs of the jobs of a study: named, counted, or placed where others are not."""

from __future__ import annotations

import re
from random import Random
from typing import Any, Literal

from pydantic import Field, ValidationError

from armillary.base.document import Document
from armillary.base.errors import InputError
from armillary.base.hints import KeyPath
from armillary.platform.fields import Count, Part, first_error
from armillary.platform.files.study_schema import Job

# The same grammar as in the JSON Schema, with at most ten digits so that int() stays cheap.
_RANGES = re.compile(r"\s*\d{1,10}(\s*-\s*\d{1,10})?(\s*,\s*\d{1,10}(\s*-\s*\d{1,10})?)*\s*")


class Block(Part):
    """NPUs at equal distances."""

    first: int = Field(default=0, ge=0, description="The NPU of rank 0.")
    count: Count
    stride: Count = 1


class Free(Part):
    """NPUs that no job before has."""

    count: Count
    placement: Literal["packed", "scattered", "random"] = Field(
        description="The lowest, as far apart as possible, or drawn at random."
    )
    seed: int = Field(default=0, ge=0, description="Of a random placement.")


def npus_of(job: Job, document: Document, at: KeyPath, n_npus: int, taken: set[int]) -> tuple[int, ...]:
    """Return the NPU of every rank of a job; `taken` are those of the jobs before.

    Raises:
        InputError: the value cannot be read, or the machine has not as many.
    """
    value: Any = job.npus
    if isinstance(value, dict):
        # `seed` alone is meant as a random placement whose `placement` is missing; Free then says so.
        layout = Free if "placement" in value or "seed" in value else Block
        try:
            found = layout.model_validate(value)
        except ValidationError as error:
            raise first_error(document, error, at) from None
        if isinstance(found, Block):
            # Only the last NPU can be outside: they ascend.
            last = found.first + (found.count - 1) * found.stride
            if last >= n_npus:
                raise _outside(document, at, last, n_npus)
            return tuple(range(found.first, last + 1, found.stride))
        assert isinstance(found, Free)
        return _free(found, document, at, n_npus, taken)
    # A plain number means the lowest free NPUs.
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return _free(Free(count=value, placement="packed"), document, at, n_npus, taken)
    npus = _listed(value)
    if npus is None:
        document.reject(
            at, value, "a number of NPUs, text such as '0-7, 16-23', a list, or a mapping with count"
        )
    seen: set[int] = set()
    for npu in npus:
        if npu >= n_npus:
            raise _outside(document, at, npu, n_npus)
        if npu in seen:
            raise document.error(at, f"NPU {npu} is given twice, expected each NPU once")
        seen.add(npu)
    return tuple(npus)


def _listed(value: Any) -> list[int] | None:
    """Return the NPUs of a list or of text, cut where there are more than any machine has; None: it is neither."""
    if isinstance(value, str) and _RANGES.fullmatch(value):
        found: list[int] = []
        for part in value.split(","):
            first, _, last = part.partition("-")
            # A range longer than any machine is cut at 2**24, since the caller refuses it at the first NPU
            # outside anyway.
            found += range(int(first), min(int(last or first), int(first) + 2**24) + 1)
        return found or None
    # True would be NPU 1.
    whole = isinstance(value, list) and all(
        isinstance(npu, int) and not isinstance(npu, bool) and npu >= 0 for npu in value
    )
    return list(value) if whole and value else None


def _free(wanted: Free, document: Document, at: KeyPath, n_npus: int, taken: set[int]) -> tuple[int, ...]:
    free = [npu for npu in range(n_npus) if npu not in taken]
    count = wanted.count
    if count > len(free):
        raise document.error(
            at,
            f"got {count} NPUs, expected at most {len(free)}: the machine has {n_npus}, jobs before have {len(taken)}",
        )
    if wanted.placement == "packed":
        return tuple(free[:count])
    if wanted.placement == "scattered":
        # Evenly spaced indices into the free NPUs, not into all: jobs before may have left holes.
        return tuple(free[i * len(free) // count] for i in range(count))
    # Its own generator, so that one job's placement does not depend on another's.
    return tuple(Random(wanted.seed).sample(free, count))


def _outside(document: Document, at: KeyPath, npu: int, n_npus: int) -> InputError:
    return document.error(at, f"got NPU {npu}, expected 0 to {n_npus - 1}")
