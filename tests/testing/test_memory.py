"""The suite for kinds of memory holds for all that are built in, and finds what is wrong with others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.platform import MemoryModel, MemoryStage, RemoteMemory
from armillary.platform.memory import MEMORY_KINDS
from armillary.testing.memory import check_memory

Install = Callable[[Any], None]
Ints = NDArray[np.int64]
STAGES = (
    MemoryStage("groups", "machine", 4, 100.0, 50.0, 300.0),
    MemoryStage("switches", "node", 2, 80.0, 80.0, 100.0),
    MemoryStage("fabric", "npu", 1, 60.0, 40.0),
)
BUILT_IN = {
    "per-npu": RemoteMemory("per-npu", 100, 50),
    "per-node": RemoteMemory("per-node", 100, 50, 4),
    "pool": RemoteMemory("pool", 100, 50),
    "hierarchical": RemoteMemory("hierarchical", npus_per_node=4, stages=STAGES, chunk=1 << 20),
}


class Paged(MemoryModel):
    """Whole pages, at twice the rate for loads."""

    def __init__(self, page: int) -> None:
        self.page = page

    @classmethod
    def create(cls, options: Mapping[str, Any], npus: int, folder: Path) -> MemoryModel:
        return cls(options.get("page", 4096))

    def durations(self, size: Ints, store: NDArray[np.bool_]) -> NDArray[Any]:
        ns: NDArray[Any] = 100 + -(-size // self.page) * self.page / np.where(store, 25.0, 50.0)
        return ns


class OfMachine(Paged):
    per = "machine"


class Negative(Paged):
    def durations(self, size: Ints, store: NDArray[np.bool_]) -> NDArray[Any]:
        return 10.0 - size


class Few(Paged):
    def durations(self, size: Ints, store: NDArray[np.bool_]) -> NDArray[Any]:
        return np.zeros(1)


class Sums(Paged):
    def durations(self, size: Ints, store: NDArray[np.bool_]) -> NDArray[Any]:
        return np.cumsum(size)


class Changes(Paged):
    def durations(self, size: Ints, store: NDArray[np.bool_]) -> NDArray[Any]:
        size += 1
        return size


class PrefersLarge(Paged):
    def durations(self, size: Ints, store: NDArray[np.bool_]) -> NDArray[Any]:
        return 10**10 - size


class Listed(Paged):
    def durations(self, size: Ints, store: NDArray[np.bool_]) -> Any:
        return size.tolist()


@pytest.mark.parametrize("kind", MEMORY_KINDS.built_in)
def test_every_kind_that_is_built_in(kind: str) -> None:
    check_memory(BUILT_IN[kind])


@pytest.mark.parametrize("kind", [Paged, OfMachine])
def test_one_of_another_package(kind: type, install: Install) -> None:
    install(kind)
    check_memory(RemoteMemory("mine"))
    check_memory(RemoteMemory("mine", options={"page": 1 << 20}), npus=3)


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        (Negative, "expected 0 or more"),
        (Few, "expected an array of 11 times"),
        (Sums, "depend on the order of accesses"),
        (Changes, "changes its arguments"),
        (PrefersLarge, "one of fewer bytes"),
        (Listed, "expected an array of 11 times"),
    ],
)
def test_what_is_wrong_is_found(kind: type, problem: str, install: Install) -> None:
    install(kind)
    with pytest.raises(AssertionError, match=problem):
        check_memory(RemoteMemory("mine"))


def test_what_is_none_is_refused(install: Install) -> None:
    install(Path)
    with pytest.raises(InputError, match="expected a subclass of MemoryModel"):
        check_memory(RemoteMemory("mine"))
    with pytest.raises(InputError, match="kind: got 'yours', expected one of none, per-npu"):
        RemoteMemory("yours")
