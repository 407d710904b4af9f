"""Measured tables: the time of a GEMM from those of its neighbours.

What is interpolated is the ratio of measured time and roofline, which varies little where times vary by a million: its
logarithm is fitted by a plane over the logarithms of m, n and k, weighted by nearness (local linear regression,
Cleveland, JASA 1979). A shape that was measured gets the measured time. Outside of what was measured the ratio is that
of the nearest shape inside.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import fsum
from pathlib import Path
from typing import Any

import numpy as np

from armillary.base import portable
from armillary.base.errors import InputError
from armillary.compute.model import ComputeModel, Device, Floats, Times, Work
from armillary.compute.table_file import Measured, read_table
from armillary.trace.gemm import Gemm

NEIGHBOURS = 12
"""Shapes that a time is taken from: of a grid the eight corners around it, and some more to fit a plane."""
ELEMENT = {"fp32": 4, "bf16": 2, "fp8": 1}


class Surface:
    """Times of the GEMMs of one precision.

    Attributes:
        low: Smallest m, n and k.
        high: Largest.
    """

    def __init__(self, measured: Measured, peak: float, memory: float, element: int) -> None:
        self.peak, self.memory, self.element = peak, memory, element
        self.low, self.high = measured.sizes.min(axis=0), measured.sizes.max(axis=0)
        self._at = portable.log(measured.sizes.astype(np.float64))
        self._ratio = portable.log(measured.ns / self._roofline(measured.sizes.astype(float)))
        self._exact = {
            tuple(sizes): ns for sizes, ns in zip(measured.sizes.tolist(), measured.ns, strict=True)
        }

    def time(self, m: int, n: int, k: int) -> tuple[float, float]:
        """Return ns, and by what factor a size is outside (1: it is inside).

        Rows and columns change places where that brings a GEMM inside: (XW)ᵀ = WᵀXᵀ takes as long.
        """
        # A factor outside decides which of the two orientations is used.
        here, there = self._outside(m, n, k), self._outside(n, m, k)
        if there < here:
            m, n, here = n, m, there
        if (m, n, k) in self._exact:
            return float(self._exact[m, n, k]), 1.0
        sizes = np.array([m, n, k], float)
        # Outside the ratio of the nearest shape inside holds: roofline times vary, their ratio hardly does.
        inside = portable.log(np.clip(sizes, self.low, self.high))
        return float(self._roofline(sizes[None])[0] * portable.exp(self._fit(inside))), here

    def _outside(self, *sizes: int) -> float:
        return float(max(np.max(sizes / self.high), np.max(self.low / np.array(sizes)), 1.0))

    def _roofline(self, sizes: Floats) -> Floats:
        m, n, k = sizes.T
        moved = (m * k + k * n + m * n) * self.element
        result: Floats = np.maximum(2 * m * n * k / self.peak, moved / self.memory) * 1e9
        return result

    def _fit(self, at: Floats) -> float:
        away = np.abs(self._at - at)
        distance = np.sqrt((away * away).sum(axis=1))
        count = min(NEIGHBOURS, len(distance))
        # Stable: of shapes that are equally near, the first of the table on every machine.
        near = np.argsort(distance, kind="stable")[:count]
        reach = distance[near].max()
        if reach == 0 or count < 5:  # a plane has four numbers
            return float(self._ratio[near[np.argmin(distance[near])]])
        # Square root of the tricube weight, since least squares squares it. 1.1: the farthest neighbour keeps
        # some weight.
        share = distance[near] / (1.1 * reach)
        left = np.clip(1 - share * share * share, 0, 1)
        weight = left * np.sqrt(left)
        plane = np.column_stack([np.ones(count), self._at[near] - at]) * weight[:, None]
        # Centred at the shape that is looked up, so the constant is the answer.
        found = portable.least_squares(plane, self._ratio[near] * weight, 1e-6)
        around = self._ratio[near]
        # A plane may overshoot between neighbours: the answer stays within their range.
        return float(np.clip(found[0], around.min(), around.max()))


class Table(ComputeModel):
    """Times kernels that are GEMMs of a measured precision.

    A batch is taken for one GEMM of as many rows, which fills the NPU as well, but for no less than its bytes take.
    """

    def __init__(self, surfaces: dict[str, Surface], device: Device, notes: list[str]) -> None:
        self.surfaces, self.device, self.notes = surfaces, device, notes

    @classmethod
    def create(cls, options: Mapping[str, Any], device: Device, folder: Path) -> Table:
        """See `ComputeModel`; the options are those of `armillary.platform.files.compute_schema.Table`."""
        path = folder / options["file"]
        measured, notes = read_table(
            path, options.get("columns", {}), options.get("unit_ns", 1e3), options.get("precision", "bf16")
        )
        if device.peak <= 0 or device.memory <= 0:
            raise InputError(
                "a table needs npu.peak and npu.memory.bandwidth: it is interpolated between rooflines"
            )
        surfaces = {
            # Where the NPU names no peak for a precision, any will do: it is the same for all rows.
            name: Surface(found, device.peak_of(name) or device.peak, device.memory, ELEMENT[name])
            for name, found in measured.items()
        }
        return cls(surfaces, device, notes)

    def durations(self, work: Work) -> Times:
        """See `ComputeModel`."""
        ns, beyond = np.full(len(work), np.nan), np.ones(len(work))
        lacking: dict[str, int] = {}
        for at, gemms in enumerate(work.gemms):
            precision = work.precisions[at]
            if gemms and precision not in self.surfaces:
                lacking[precision] = lacking.get(precision, 0) + 1
            elif gemms:
                times = [self._time(gemm, precision) for gemm in gemms]
                ns[at], beyond[at] = fsum(time for time, _ in times), max(outside for _, outside in times)
        bound = tuple("" if np.isnan(each) else "measured" for each in ns)
        notes = [
            f"{count} different GEMMs in {precision}, which is not in the table, take the roofline's time"
            for precision, count in lacking.items()
        ]
        return Times(ns, bound, beyond, (*self.notes, *notes))

    def _time(self, gemm: Gemm, precision: str) -> tuple[float, float]:
        # See the class: a batch as one GEMM with more rows.
        time, outside = self.surfaces[precision].time(gemm.m * gemm.batch, gemm.n, gemm.k)
        if gemm.batch > 1:
            # A batch has a right operand each, so it moves more than one GEMM of as many rows.
            moved = gemm.elements // gemm.calls * ELEMENT[precision]
            time = max(time, moved / self.device.memory * 1e9)
        return time * gemm.calls, outside
