"""The memory of an NPU, and remote memory, as values; and what a transfer through a hierarchical one takes.

A hierarchical memory is a row of stages from the memory to the NPU, each of some alike devices or links for every
NPU, every node or the whole machine. A transfer of W bytes is cut into m chunks of c bytes that are spread evenly over
the devices of a stage and follow each other from stage to stage, as in a pipeline. A stage of n devices of B bytes/ns
shared by k NPUs gives each ``r = n B / k`` when all transfer together. The slowest one, b, is never idle from its first
chunk to its last; before and after that a chunk crosses the other stages alone::

    T = sum(latency) + sum(c / B_i for i != b) + W / r_b

With one chunk per device and round this is the time of the textbook pipeline, ``sum(t_i) + (m - 1) max(t_i)``. For an
in-switch collective switches copy, or add up, what is the same for all NPUs: every stage carries it once, k = 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil, fsum
from pathlib import Path
from typing import Any, Literal

from armillary.base.extension import ExtensionPoint
from armillary.base.hints import show
from armillary.platform.limits import (
    BYTES,
    COUNT,
    MOST_COUNT,
    RATE,
    TEXT,
    TIME,
    Choice,
    Kind,
    Maybe,
    Number,
    check,
    refuse,
)

_STAGES = Choice(("npu", "node", "machine"))
MEMORY_KINDS = ExtensionPoint(
    "armillary.memory", "memory kind", ("per-npu", "per-node", "pool", "hierarchical")
)
"""Of memory outside the NPUs; those of other packages also time the memory of an NPU."""
_OPTIONS = Kind(Mapping, "a mapping")


def _wrong_kind(value: object) -> str:
    """Return what is wrong with a kind; looks for other packages only where it is not built in."""
    known = isinstance(value, str) and (value == "none" or value in MEMORY_KINDS)
    return "" if known else Choice(("none", *MEMORY_KINDS))(value)


def wrong_local_kind(value: object) -> str:
    """Return what is wrong with a kind of local memory; only other packages provide such kinds."""
    if value == "" or (isinstance(value, str) and value in MEMORY_KINDS.others()):
        return ""
    others = tuple(MEMORY_KINDS.others())
    if not others:
        return f"got {show(value)}, expected none: kinds of local memory are of other packages, and none is installed"
    return Choice(others)(value)


@dataclass(frozen=True)
class LocalMemory:
    """The memory of an NPU; profile ``astra-sim`` uses its bandwidth only.

    Attributes:
        bandwidth: Bytes per ns; 0: not given, and reductions cost no time.
        capacity: Bytes that programs find; 0: not given.
        latency: ns until the first byte.
        read: Bytes per ns of a load from it; 0: `bandwidth`.
        write: The same for a store.
        kind: Model from another package that times accesses; empty: latency, read and write do.
        options: Options of that model.
        folder: What paths in the options are relative to.
    """

    bandwidth: float = 0.0
    capacity: int = 0
    latency: float = 0.0
    read: float = 0.0
    write: float = 0.0
    kind: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    folder: Path = field(default=Path(), compare=False)

    def __post_init__(self) -> None:
        """Validate the fields, see `armillary.platform.limits`."""
        # 0 is "not given", which the rule of a rate would refuse.
        rate = Maybe(RATE, 0)
        check(
            self, bandwidth=rate, capacity=BYTES, latency=TIME, read=rate, write=rate, kind=wrong_local_kind,
            options=_OPTIONS,
        )  # fmt: skip
        if self.options and not self.kind:
            raise refuse(self, ("options",), "expected only with a kind")

    @property
    def bytes_per_s(self) -> float:
        """The bandwidth per second, as ASTRA-sim's formula of a reduction has it: that decides how times round."""
        return self.bandwidth * 1e9

    def rate(self, store: bool) -> float:
        """Return the bytes per ns of a load or a store; 0: not given."""
        # One of both may be given alone: the other then falls back to `bandwidth`.
        return (self.write if store else self.read) or self.bandwidth


@dataclass(frozen=True)
class MemoryStage:
    """Identical devices or links over which every transfer to or from a hierarchical memory is spread.

    Attributes:
        name: Label for reports.
        per: Scope of one set: each ``npu``, each ``node`` or the whole ``machine``.
        count: Devices or links in a set.
        read: Bytes per ns of one, towards the NPU.
        write: The same away from it, at the same time.
        latency: ns.
    """

    name: str
    per: Literal["npu", "node", "machine"]
    count: int
    read: float
    write: float
    latency: float = 0.0

    def __post_init__(self) -> None:
        """Validate the fields, see `armillary.platform.limits`."""
        check(self, name=TEXT, per=_STAGES, count=COUNT, read=RATE, write=RATE, latency=TIME)


@dataclass(frozen=True)
class RemoteMemory:
    """Remote memory: latency ns, bandwidth bytes per ns (whole number; 0 = infinite).

    A hierarchical one has `stages` instead, from the memory to the NPU, and moves `chunk` bytes at a time. A kind of
    another package has `options` instead, whose paths are relative to `folder`.
    """

    kind: str = "none"
    latency: int = 0
    bandwidth: int = 0
    npus_per_node: int = 0
    stages: tuple[MemoryStage, ...] = ()
    chunk: int = 0
    options: dict[str, Any] = field(default_factory=dict)
    folder: Path = field(default=Path(), compare=False)

    def __post_init__(self) -> None:
        """Validate the fields, see `armillary.platform.limits`."""
        whole = Number(high=2**63 - 1, whole=True)
        check(
            self, kind=_wrong_kind, latency=whole, bandwidth=whole, npus_per_node=Number(high=MOST_COUNT, whole=True),
            stages=Kind(tuple, "a tuple of MemoryStage"), chunk=BYTES, options=_OPTIONS,
        )  # fmt: skip
        for at, stage in enumerate(self.stages):
            if not isinstance(stage, MemoryStage):
                raise refuse(self, ("stages", at), f"got {show(stage)}, expected a MemoryStage")
        # Together, because either without the other times nothing: stages say how fast, the chunk how it is
        # cut.
        if (self.kind == "hierarchical") != bool(self.stages) or (self.stages and not self.chunk):
            raise refuse(self, (), "expected stages and chunk with kind hierarchical, and only there")
        # Of other packages, `memory_model` checks this: only the model knows whether it serves nodes.
        if self.kind == "per-node" and not self.npus_per_node:
            raise refuse(self, (), "expected npus_per_node with kind per-node, and only there")
        if self.plugged and (self.latency or self.bandwidth):
            raise refuse(self, (), f"expected no latency and bandwidth with kind {self.kind}, but options")
        if self.options and not self.plugged:
            raise refuse(self, ("options",), "expected only with a kind of another package")

    @property
    def plugged(self) -> bool:
        """Whether it is of a kind of another package."""
        return self.kind != "none" and self.kind not in MEMORY_KINDS.built_in


@dataclass(frozen=True)
class Storage:
    """Where storage and checkpoint nodes read and write, of the whole machine.

    Attributes:
        bandwidth: Bytes per ns of all of it.
        latency: ns of every operation, also of those without bytes.
        readers: NPUs that read or write at a time, among which the bandwidth is divided; 0: all.
        client: Bytes per ns of one NPU at most; 0: no limit of its own.
        at: Where it is joined to a network that moves messages: a dimension, a tier of switches, or a node; "":
            nowhere, and `readers` and `client` say what an NPU has.
        operations: Operations that it begins in a second, one after the other; 0: no limit. With `at` only.
    """

    bandwidth: float
    latency: float = 0.0
    readers: int = 0
    client: float = 0.0
    at: str = ""
    operations: int = 0

    def __post_init__(self) -> None:
        """Validate the fields, see `armillary.platform.limits`."""
        readers = Number(high=MOST_COUNT, whole=True)
        check(self, bandwidth=RATE, latency=TIME, readers=readers, client=Maybe(RATE, 0), operations=readers)
        for name in ("readers", "client") if self.at else ("operations",):
            if getattr(self, name):
                why = "with at the links say that" if self.at else "it counts with at only"
                raise refuse(self, (name,), f"got {getattr(self, name):g}, expected none: {why}")

    def sharing(self, npus: int) -> int:
        """Return how many of `npus` NPUs share the bandwidth."""
        return min(self.readers or npus, npus)

    def rate(self, npus: int) -> float:
        """Return the bytes per ns of each of `npus` NPUs."""
        share = self.bandwidth / self.sharing(npus)
        return min(share, self.client or share)


def speed(stage: MemoryStage, store: bool) -> float:
    """Return the bytes per ns of one device of a stage."""
    return stage.write if store else stage.read


def share(memory: RemoteMemory, stage: MemoryStage, npus: int) -> int:
    """Return how many NPUs share a stage."""
    # A machine may be smaller than one node.
    return {"npu": 1, "node": min(memory.npus_per_node, npus), "machine": npus}[stage.per]


def fill_ns(memory: RemoteMemory, size: int, store: bool, npus: int, collective: bool = False) -> float:
    """Return the ns of a transfer beyond its bytes over the rate of the slowest stage, see the top of the module.

    Which stage is the slowest is judged for all NPUs together; for fewer, this is off by a chunk at most.

    Args:
        memory: A hierarchical one.
        size: Bytes of the transfer.
        store: Whether it goes away from the NPU.
        npus: Of the machine.
        collective: Whether all NPUs transfer the same.
    """
    # Equal chunks, as many as needed at most `memory.chunk` each: the last one is not shorter than the rest.
    chunk = size / max(1, -(-size // memory.chunk))
    times = [chunk / speed(stage, store) for stage in memory.stages]
    each = [_rate(memory, stage, store, 1 if collective else npus) for stage in memory.stages]
    # Of equally slow stages the first, which is the nearest to the memory.
    slowest = each.index(min(each))
    return fsum(stage.latency for stage in memory.stages) + fsum(times) - times[slowest]


def together_ns(memory: RemoteMemory, size: int, store: bool, npus: int, collective: bool = False) -> int:
    """Return the time in which all NPUs of a machine load or store `size` bytes each, together."""
    slowest = min(_rate(memory, stage, store, 1 if collective else npus) for stage in memory.stages)
    return ceil(fill_ns(memory, size, store, npus, collective)) + ceil(size / slowest)


def _rate(memory: RemoteMemory, stage: MemoryStage, store: bool, npus: int) -> float:
    return stage.count * speed(stage, store) / share(memory, stage, npus)
