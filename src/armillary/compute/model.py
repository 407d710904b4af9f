"""The protocol of compute models: what is called when, what goes in, and what comes out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.platform.kernels import Kernels
from armillary.platform.model import Platform
from armillary.trace.attention import Attention
from armillary.trace.gemm import Gemm

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
KINDS = ("gemm", "flops", "memory", "unknown")
"""GEMMs of known shape; other operations, such as fused attention; bytes only; nothing but a recorded duration."""


@dataclass(frozen=True)
class Device:
    """The NPU that kernels run on.

    Attributes:
        peak: FLOP/s; 0: not given.
        memory: Bandwidth of the local memory, bytes/s; 0: not given.
        kernels: What kernels reach of both in the roofline model.
        latency: Latency of the local memory, ns.
        peaks: Precision -> FLOP/s; empty where `peak` holds for all.
    """

    peak: float
    memory: float
    kernels: Kernels = field(default_factory=Kernels)
    latency: float = 0.0
    peaks: Mapping[str, float] = field(default_factory=dict)

    @staticmethod
    def of(platform: Platform) -> Device:
        """Return the NPU of a platform."""
        npu, memory = platform.npu, platform.npu.memory
        return Device(npu.peak_flops, memory.bytes_per_s, platform.compute.kernels, memory.latency, npu.peaks)

    def peak_of(self, precision: str) -> float:
        """Return the FLOP/s of a precision; 0: not given."""
        return self.peaks.get(precision, 0.0) if self.peaks else self.peak


@dataclass(frozen=True)
class Work:
    """Kernels, all different, as columns of one length.

    Attributes:
        names: Names of the nodes; not unique, since kernels of one name may differ.
        operations: FLOPs, 2 per multiply-add; -1: not named.
        size: Bytes read and written in the local memory; -1: not named.
        precisions: Of GEMMs: ``bf16`` where a node says nothing else.
        gemms: The GEMMs of a kernel that does nothing else, in the order in which they run; else ().
        recorded: Recorded duration in ns; 0: none.
        attention: Shape of a kernel that is fused attention, else None; empty: of none is it known.
        scalings: Recipe by which other kernels have quantised the operands of a GEMM, else ""; empty: of none.
    """

    names: tuple[str, ...]
    operations: Ints
    size: Ints
    precisions: tuple[str, ...]
    gemms: tuple[tuple[Gemm, ...], ...]
    recorded: Ints
    attention: tuple[Attention | None, ...] = ()
    scalings: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.names)

    def attention_of(self, at: int) -> Attention | None:
        """Return the shape of kernel `at`, if it is fused attention."""
        return self.attention[at] if self.attention else None

    def scaling_of(self, at: int) -> str:
        """Return the recipe by which the operands of GEMM `at` were quantised before it; "": they were not."""
        return self.scalings[at] if self.scalings else ""

    def kind(self, at: int) -> str:
        """Return which of `KINDS` kernel `at` is."""
        if self.gemms[at]:
            return "gemm"
        if self.operations[at] > 1:  # generated kernels that compute nothing name 1 operation
            return "flops"
        return "memory" if max(self.operations[at], self.size[at]) >= 0 else "unknown"


@dataclass(frozen=True)
class Times:
    """How long kernels take.

    Attributes:
        ns: (kernels) At least 0; nan where the model does not know: the roofline model takes it.
        bound: (kernels) What limits the time, in one word: ``compute``, ``memory``, ``measured``; may be empty.
        beyond: (kernels) How far outside of what it knows the model went: 1 is inside, 2 is twice the largest size.
        notes: What a person should know, once per run.
    """

    ns: Floats
    bound: tuple[str, ...] = ()
    beyond: Floats | None = None
    notes: tuple[str, ...] = ()


class ComputeModel(ABC):
    """Says how long kernels take on one NPU.

    A simulation calls `create` once, then `durations` once with all different kernels of all ranks, and `close` at the
    end, also after an error. Ranks with another speed, and jitter, are applied to the result, which is rounded up to a
    ns. The same work must get the same times, in any order and beside any other work.

    A package adds a model by an entry point of the group ``armillary.compute`` that names the class;
    `armillary.testing.compute` checks that a model keeps to this.
    """

    @classmethod
    @abstractmethod
    def create(cls, options: Mapping[str, Any], device: Device, folder: Path) -> ComputeModel:
        """Return the model.

        Args:
            options: ``platform.compute.options`` of the study, as YAML gives them (of built-in models its other keys).
            device: The NPU.
            folder: That of the study: what paths in the options are relative to.

        Raises:
            InputError: an option is wrong: say which, its value, and what was expected.
        """

    @abstractmethod
    def durations(self, work: Work) -> Times:
        """Return how long kernels take, in the order of `work`, which may be empty.

        Raises:
            InputError: a kernel cannot be timed.
        """

    def close(self) -> None:  # noqa: B027
        """Give back what the model holds: files, programs."""
