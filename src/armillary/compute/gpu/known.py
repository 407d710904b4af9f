"""Times of GEMMs that were computed before: training steps of one machine have the same few over and over."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.compute.gpu.device import GemmFit, Gpu
from armillary.compute.gpu.gemm import gemm_seconds
from armillary.compute.gpu.power import Power
from armillary.compute.gpu.residuals import Residuals
from armillary.compute.model import Floats, Ints

MOST = 1 << 16
"""GEMMs that are kept, some 20 MB."""
_MOST_DEVICES = 256
"""Devices with their constants: one of a file of its own is read anew for each simulation."""
_known: dict[tuple[object, ...], tuple[Gpu, dict[tuple[float, ...], tuple[float, int]]]] = {}
"""By device and constants; the device itself is kept, as it is known by its identity."""


def known_gemm_seconds(
    gpu: Gpu,
    precision: str,
    sizes: Floats,
    written: Floats,
    fit: GemmFit,
    *,
    sustained: float,
    power: Power | None,
    transposed: NDArray[np.bool_],
    residuals: Residuals | None = None,
) -> tuple[Floats, Ints]:
    """Return what `gemm_seconds` does, which times each GEMM by itself."""
    _, known = _known.setdefault((id(gpu), precision, fit, sustained, power, residuals is None), (gpu, {}))
    rows: list[tuple[float, ...]] = [
        (*row, last, turned)
        for row, last, turned in zip(sizes.tolist(), written.tolist(), transposed.tolist(), strict=True)
    ]
    new = [at for at, row in enumerate(rows) if row not in known]
    if new:
        options: dict[str, Any] = {"sustained": sustained, "power": power, "transposed": transposed[new]}
        options["residuals"] = residuals
        seconds, bound = gemm_seconds(gpu, precision, sizes[new], written[new], fit, **options)
        found = zip(seconds.tolist(), bound.tolist(), strict=True)
        known.update(zip((rows[at] for at in new), found, strict=True))
    times = [known[row] for row in rows]
    if len(_known) > _MOST_DEVICES or sum(len(each) for _, each in _known.values()) > MOST:
        _known.clear()
    return np.array([one for one, _ in times]), np.array([limit for _, limit in times], np.int64)
