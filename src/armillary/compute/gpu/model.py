"""The compute model ``gpu``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from armillary.base import portable
from armillary.base.errors import InputError, one_of
from armillary.compute.gpu.attention import attention_seconds
from armillary.compute.gpu.device import SECOND, Factors, Gpu, load_gpu
from armillary.compute.gpu.gemm import BOUNDS, ELEMENT
from armillary.compute.gpu.known import known_gemm_seconds
from armillary.compute.gpu.power import Power
from armillary.compute.model import ComputeModel, Device, Floats, Times, Work

LAYOUTS = ("input", "weight")
"""Last words of the names of gradients of linear layers: the left operand's, the right one's."""
LINEAR = ("gemm", *LAYOUTS)
"""Last words of the names of GEMMs of linear layers, of which those of several experts are issued one by one."""
FUSED = ("attend",)
"""Words in the names of fused attention."""


class Scan(NamedTuple):
    """How fast kernels pass states from chunk to chunk: linear attention, state spaces.

    Attributes:
        rate: FLOP/s of an SM.
        memory: Share of their bytes that reaches the memory.
    """

    rate: float
    memory: float


SCANS = {"scan": Scan(0.93e12, 0.66), "ssd": Scan(0.235e12, 0.66)}
"""By the last word of their names.

- ``scan``, of Gated DeltaNet: 1.9, 1.67 and 1.5 ns per token and head of 128 x 128 on an H100, H200 and B200
  (aiconfigurator, TensorRT-LLM 1.3.0rc10, from 16,384 tokens and 32 heads on). They follow neither the peak of the
  tensor cores nor the memory alone; these two numbers give 1.94, 1.71 and 1.45 ns.
- ``ssd``, of Mamba-2 in training: no kernel was measured. The rate is that with which Nemotron 3 Nano's steps of
  Megatron-Bridge have no error on average, so that it holds what else such layers lack (docs/validation/training.md).
"""


@dataclass(frozen=True)
class GpuModel(ComputeModel):
    """Times GEMMs by their shape, fused attention by its shape or operations, other kernels by their bytes.

    Attributes:
        gpu: The device.
        factors: What times are multiplied by.
        alone: Whether kernels run alone, with pauses, and keep their clocks: ``load: alone``.
    """

    gpu: Gpu
    factors: Factors
    alone: bool = False

    @classmethod
    def create(cls, options: Mapping[str, Any], device: Device, folder: Path) -> GpuModel:
        """See `ComputeModel`; the options are those of `armillary.platform.files.compute_schema.GpuKernels`."""
        gpu = load_gpu(options["device"], folder)
        # Options of the study win over the constants of the device.
        given = {name: value for name, value in options.get("factors", {}).items() if value is not None}
        chosen = {
            each.name: given.get(each.name, getattr(gpu.factors, each.name)) for each in fields(Factors)
        }
        return cls(gpu, Factors(**chosen), options.get("load") == "alone")

    def durations(self, work: Work) -> Times:
        """See `ComputeModel`."""
        self._check(work)
        ns = np.full(len(work), np.nan)
        bound = [""] * len(work)
        kinds = [self._kind(work, at) for at in range(len(work))]
        self._gemms(work, [at for at, kind in enumerate(kinds) if kind == "gemm"], ns, bound)
        self._attention(work, [at for at, kind in enumerate(kinds) if kind == "attention"], ns, bound)
        self._scans(work, [at for at, kind in enumerate(kinds) if kind == "scan"], ns, bound)
        self._others(work, [at for at, kind in enumerate(kinds) if kind == "other"], ns, bound)
        note = f"constants of {self.gpu.name} are derived from {self.gpu.like}" if self.gpu.derived else ""
        if self.gpu.basis == "sheet":
            note = f"of {self.gpu.name} only the data sheet is known: times of kernels may be off by 40 %"
        elif self.gpu.basis == "measured":
            note = ""
        return Times(ns, tuple(bound), notes=(note,) if note and len(work) else ())

    def _kind(self, work: Work, at: int) -> str:
        kind = work.kind(at)
        if kind in ("gemm", "unknown"):
            return kind
        if kind == "flops" and work.names[at].rpartition(".")[2] in SCANS:
            return "scan"
        fused = bool(work.attention_of(at)) or any(word in work.names[at] for word in FUSED)
        return "attention" if kind == "flops" and fused else "other"

    def _check(self, work: Work) -> None:
        for at, precision in enumerate(work.precisions):
            # 1 operation: generated kernels that compute nothing name it.
            if precision not in self.gpu.peaks and work.operations[at] > 1:
                raise InputError(
                    f"kernel '{work.names[at]}' has precision '{precision}', of which {self.gpu.name} has no peak; "
                    f"expected {one_of(self.gpu.peaks)}"
                )

    def _gemms(self, work: Work, which: Sequence[int], ns: Floats, bound: list[str]) -> None:
        # GEMMs of one precision are timed together, whatever kernel they belong to.
        kinds = {at: (work.precisions[at], work.scaling_of(at)) for at in which}
        for precision, scaling in sorted(set(kinds.values())):
            mine = [at for at in which if kinds[at] == (precision, scaling)]
            rows = [(at, gemm) for at in mine for gemm in work.gemms[at]]
            # GEMMs of experts run one after another, each too small for the device. Of 120 measured ones on an A100
            # and a B200 a loop is off by a factor of 1.07 and 13 %, one kernel for all by 1.35 and 25 %.
            issued = [
                (1, each.batch) if self._linear(work.names[at]) else (each.batch, 1) for at, each in rows
            ]
            sizes = np.array(
                [(each.m, each.n, each.k, batch) for (_, each), (batch, _) in zip(rows, issued, strict=True)],
                float,
            )
            written = np.array([self._written(work, at) for at, _ in rows])
            seconds, limit = known_gemm_seconds(
                self.gpu, precision, sizes, written, self.gpu.gemm_fit(precision, scaling),
                sustained=self.factors.sustained, power=self._power,
                transposed=np.array([work.names[at].rpartition(".")[2] == "weight" for at, _ in rows]),
                # Operands that other kernels have quantised were not measured.
                residuals=self.gpu.residuals.get(precision) if self.alone and not scaling else None,
            )  # fmt: skip
            seconds *= np.array(
                [
                    each.calls * calls * self._layout(work.names[at], calls)
                    for (at, each), (_, calls) in zip(rows, issued, strict=True)
                ]
            )
            total = np.zeros(len(work))
            # A kernel may have several GEMMs: their times add up, and the last one names the bound.
            np.add.at(total, [at for at, _ in rows], seconds * self.factors.gemm * SECOND)
            ns[mine] = total[mine]
            for (at, _), number in zip(rows, limit.tolist(), strict=True):
                bound[at] = BOUNDS[number]

    def _written(self, work: Work, at: int) -> float:
        """Return the bytes of an element of the result that are read and written: a gradient is added to in fp32."""
        element = ELEMENT[work.precisions[at]]
        least = max(2.0, element)
        if work.size[at] < 0:
            return least
        gemms = work.gemms[at]
        operands = sum((each.m * each.k + each.k * each.n) * each.batch * each.calls for each in gemms)
        results = sum(each.m * each.n * each.batch * each.calls for each in gemms)
        # What remains of the kernel's bytes after its operands, per result, within plausible limits.
        return float(np.clip((int(work.size[at]) - operands * element) / results, least, 16))

    def _linear(self, name: str) -> bool:
        return name.rpartition(".")[2] in LINEAR

    def _layout(self, name: str, experts: int) -> float:
        last = name.rpartition(".")[2]
        factor = self.gpu.layouts[last] if last in LAYOUTS else 1.0
        return factor * (self.gpu.layouts["grouped"] if experts > 1 else 1.0)

    @property
    def _power(self) -> Power | None:
        return None if self.alone else self.gpu.power

    def _clocks(self, load: float) -> float:
        return float(self._power.clocks(np.array(load))) if self._power else 1.0

    def _attention(self, work: Work, which: Sequence[int], ns: Floats, bound: list[str]) -> None:
        for precision in sorted({work.precisions[at] for at in which}):
            mine = [at for at in which if work.precisions[at] == precision]
            shaped = [at for at in mine if work.attention_of(at)]
            if shaped:
                table = np.array(
                    [
                        (*shape, shape.pairs(int(work.operations[at])))
                        for at in shaped
                        if (shape := work.attention_of(at))
                    ]
                )
                seconds = attention_seconds(
                    self.gpu, precision, table, sustained=self.factors.sustained, power=self._power
                )
                ns[shaped] = seconds * self.factors.attention * SECOND
            fit = self.gpu.attention_fit(precision)
            clocks = self.factors.sustained * self._clocks(fit.rate / self.gpu.gemm_fit(precision).rate)
            peak = self.gpu.peaks[precision] * clocks
            for at in set(mine) - set(shaped):
                # Heads of 128 elements on a device that they fill.
                flops, score = float(work.operations[at]), fit.score / clocks
                # 512 = 2 * (128 + 128) operations per score.
                busy = portable.hypot(flops / (peak * fit.rate), flops / 512 * score / self.gpu.sms)
                moved = max(int(work.size[at]), 0) / (self.gpu.bandwidth * fit.memory)
                ns[at] = (max(busy, moved) + fit.launch) * self.factors.attention * SECOND
            for at in mine:
                bound[at] = "compute"

    def _scans(self, work: Work, which: Sequence[int], ns: Floats, bound: list[str]) -> None:
        for at in which:
            scan = SCANS[work.names[at].rpartition(".")[2]]
            computing = float(work.operations[at]) / (scan.rate * self.gpu.sms)
            moving = scan.memory * max(int(work.size[at]), 0) / (self.gpu.bandwidth * self.gpu.share)
            busy = portable.hypot(computing, moving * self.factors.memory)
            ns[at] = (busy + self.gpu.launch) * SECOND
            bound[at] = "compute" if computing > moving else "memory"

    def _others(self, work: Work, which: Sequence[int], ns: Floats, bound: list[str]) -> None:
        if not which:
            return
        moving = memory_seconds(self.gpu, np.maximum(work.size[which], 0)) * self.factors.memory
        # GEMMs of no known shape run at the rate of large ones.
        rates = np.array(
            [
                # A precision without constants, e.g. int8, is timed as bf16.
                self.gpu.peaks.get(work.precisions[at], self.gpu.peaks["bf16"])
                * self.gpu.gemm_fit(work.precisions[at] if work.precisions[at] in ELEMENT else "bf16").rate
                for at in which
            ]
        )
        flops = np.where(work.operations[which] > 1, work.operations[which], 0)
        computing = flops / (rates * self.factors.sustained * self._clocks(1.0)) * self.factors.gemm
        # A kernel that computes also pays for its launch; `moving` has it already.
        ns[which] = np.maximum(moving, computing + self.gpu.launch * (flops > 0)) * SECOND
        for at, computes in zip(which, (computing > moving).tolist(), strict=True):
            bound[at] = "compute" if computes else "memory"


def memory_seconds(gpu: Gpu, size: Floats) -> Floats:
    """Return (kernels) s of kernels that read and write (kernels) bytes."""
    result: Floats = gpu.launch + size / (gpu.bandwidth * gpu.share)
    return result
