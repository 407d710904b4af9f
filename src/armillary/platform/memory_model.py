"""How long memory accesses take: the protocol of memory kinds, and the kinds of ASTRA-sim.

A hierarchical memory is the one kind that is more than a time for each access: its transfers share links
(`armillary.platform.memory`, `armillary.engine.physical.memory`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError, one_of
from armillary.base.hints import show
from armillary.platform.memory import MEMORY_KINDS, LocalMemory, RemoteMemory

Ints = NDArray[np.int64]
Unit = Literal["npu", "node", "machine"]


class MemoryModel(ABC):
    """Times the accesses of a memory, either an NPU's own or one outside the NPUs.

    A simulation calls `create`, perhaps more than once, and `durations` with the accesses of each rank. An access must
    take the same time for every caller, at any time, whatever other accesses run.

    A package adds a kind of memory by an entry point of the group ``armillary.memory`` that names the class;
    `armillary.testing.memory` checks that a kind keeps to this.

    Attributes:
        per: What serves one access after the other, first come, first served, the lowest rank first at the same time:
            nothing ("npu": an NPU waits for its own accesses only), every "node", or the whole "machine". Of the memory
            of an NPU it has no meaning.
    """

    per: Unit = "npu"

    @classmethod
    @abstractmethod
    def create(cls, options: Mapping[str, Any], npus: int, folder: Path) -> MemoryModel:
        """Return the model.

        Args:
            options: Key ``options`` beside the ``kind`` in the study, as YAML gives it.
            npus: NPUs of the machine.
            folder: That of the study: what paths in the options are relative to.

        Raises:
            InputError: an option is wrong: say which, its value, and what was expected.
        """

    @abstractmethod
    def durations(self, size: Ints, store: NDArray[np.bool_]) -> NDArray[Any]:
        """Return how long accesses take once they are served.

        Args:
            size: (accesses) int64: bytes, 0 or more; there may be no accesses.
            store: (accesses) bool: whether it is a store; else it is a load.

        Returns:
            (accesses) ns, at least 0, integers or floats; they are rounded up to a ns.

        Raises:
            InputError: an access cannot be timed.
        """


class Server(MemoryModel):
    """A path of some latency and bandwidth: kinds per-npu, per-node and pool."""

    def __init__(self, per: Unit, latency: int, bandwidth: int) -> None:
        """Take a latency in ns and a bandwidth in bytes per ns; bandwidth 0 is infinite."""
        self.per, self.latency, self.bandwidth = per, latency, bandwidth

    @classmethod
    def create(cls, options: Mapping[str, Any], npus: int, folder: Path) -> Server:
        """See `MemoryModel`."""
        return cls(**options)

    def durations(self, size: Ints, store: NDArray[np.bool_]) -> Ints:
        """Return latency + bytes over the bandwidth, rounded up."""
        # -(-a // b) rounds up in integers: a float quotient would be off from 2**53 bytes on.
        transfer: Ints = -(-size // self.bandwidth) if self.bandwidth else np.zeros_like(size)
        return transfer + self.latency


_PER: dict[str, Unit] = {"per-npu": "npu", "per-node": "node", "pool": "machine"}


def memory_model(memory: RemoteMemory | LocalMemory, npus: int) -> MemoryModel:
    """Return the model that times the accesses of a memory whose kind has no stages.

    Raises:
        InputError: the kind's package cannot be loaded, provides no memory model, or rejects the options.
    """
    kind = memory.kind
    if isinstance(memory, RemoteMemory) and kind in _PER:
        # The three kinds of ASTRA-sim need no registry: their model is a latency and a bandwidth.
        return Server(_PER[kind], memory.latency, memory.bandwidth)
    found = MEMORY_KINDS.load_class(kind, {}, MemoryModel)
    make = partial(found.create, memory.options, npus, memory.folder)
    model = MEMORY_KINDS.create(kind, make, MemoryModel)
    if model.per not in get_args(Unit):
        raise InputError(
            f"memory kind '{kind}': per: got {show(model.per)}, expected {one_of(get_args(Unit))}"
        )
    # Local memory has no nodes, so `per` does not matter there.
    if isinstance(memory, RemoteMemory) and (model.per == "node") != bool(memory.npus_per_node):
        only = (
            "expected npus_per_node with it" if model.per == "node" else "expected no npus_per_node with it"
        )
        raise InputError(f"memory kind '{kind}' serves each {model.per}: {only}")
    return model


def access_ns(model: MemoryModel, kind: str, size: Ints, store: NDArray[np.bool_]) -> NDArray[Any]:
    """Return the checked result of `MemoryModel.durations`; `kind` is its name in errors.

    Raises:
        InputError: a result is no time.
    """
    # Built in: nothing to check, and integers stay exact.
    if isinstance(model, Server):
        return model.durations(size, store)
    with MEMORY_KINDS.guard(kind):
        ns = model.durations(size, store)
    expected = f"expected an array of {len(size)} times in ns"
    if not isinstance(ns, np.ndarray):
        raise InputError(f"memory kind '{kind}': durations returned {show(ns)}, {expected}")
    if ns.shape != size.shape or ns.dtype.kind not in "iuf":
        raise InputError(
            f"memory kind '{kind}': durations returned {ns.dtype} of shape {ns.shape}, {expected}"
        )
    # NaN compares false with everything, and is thus found by the negation.
    wrong = np.flatnonzero(~(np.isfinite(ns) & (ns >= 0)))
    if len(wrong):
        at = int(wrong[0])
        what = f"a {'store' if store[at] else 'load'} of {size[at]} bytes takes {ns[at]:g} ns"
        raise InputError(f"memory kind '{kind}': {what}, expected 0 or more, and an end")
    return ns
