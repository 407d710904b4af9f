"""Kernels under a load that lasts: what the power limit takes from the clocks, and what GEMMs of experts take.

SimuMax measures each kernel in a loop without pauses and states shares of the peak (``accelerator.op`` of its system
files). From the dense GEMMs follows the demand for power of the device; the grouped ones check the model.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.base.hints import show
from armillary.base.json_text import parse_json
from armillary.base.reading import read_plain
from armillary.compute.gpu.device import Gpu
from armillary.compute.gpu.gemm import gemm_seconds
from armillary.compute.gpu.power import REST, VOLTAGE, Power
from armillary.compute.model import Floats

LONG = 300e-6
"""s of GEMMs that fill the pauses of the measurement: of shorter ones the host is a part of the load."""
_PASSES = {"fwd": "forward", "bwd_grad_act": "input", "bwd_grad_w": "weight"}
_LAYOUTS = {"TN": "forward", "NN": "input", "NT": "weight"}
# Bytes that are read and written of a result: bf16; bf16 that is added to; fp32 that is added to.
_WRITTEN = {("False", "bf16"): 2.0, ("False", "fp32"): 4.0, ("True", "bf16"): 4.0, ("True", "fp32"): 8.0}


@dataclass(frozen=True)
class Loaded:
    """Measured GEMMs.

    Attributes:
        sizes: (rows, 4) m, n, k and 1.
        count: (rows) How many of them the kernel has: experts.
        written: (rows) Bytes of an element of the result that are read and written.
        seconds: (rows).
        kinds: (rows) ``forward``, ``input`` or ``weight``.
    """

    sizes: Floats
    count: Floats
    written: Floats
    seconds: Floats
    kinds: tuple[str, ...]


def read_loaded(path: Path) -> tuple[Loaded, Loaded]:
    """Return dense and grouped GEMMs of a system file of SimuMax.

    Raises:
        InputError: the file is no such file.
    """
    try:
        operators = parse_json(read_plain(path), path)["accelerator"]["op"]
        return _dense(operators["matmul"]), _grouped(operators["group_matmul"])
    # ArithmeticError: a kernel at no share of no peak, or numbers beyond those of a float.
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ArithmeticError) as error:
        raise InputError(
            f"{path}: expected a system file of SimuMax with accelerator.op.matmul: {error}"
        ) from error


def _dense(operator: dict[str, object]) -> Loaded:
    rows = []
    for given, share in _rows(operator):
        m, n, k = (int(given[each]) for each in "mnk")
        seconds = 2 * m * n * k * int(given["b"]) / (_peak(operator) * share)
        written = _WRITTEN[given["accumulate"], given["out_dtype"]]
        rows.append((m, n, k, int(given["b"]), written, seconds, _LAYOUTS[given["layout"]]))
    return _loaded(rows)


def _grouped(operator: dict[str, object]) -> Loaded:
    rows = []
    for given, share in _rows(operator):
        groups, m, n, k = (int(given[each]) for each in ("ng", "M", "N", "K"))
        seconds = 2 * groups * m * n * k / (_peak(operator) * share)
        kind = _PASSES[given["stage"]]
        # M tokens: dX = dY Wt is (M, N) with (N, K), dW = Xt dY is (K, M) with (M, N).
        sizes = {"forward": (m, n, k), "input": (m, k, n), "weight": (k, n, m)}[kind]
        main = given["main_grad_dtype"] if kind == "weight" else given["out_dtype"]
        rows.append((*sizes, groups, _WRITTEN[given["accumulate"], main], seconds, kind))
    return _loaded(rows)


def _rows(operator: dict[str, object]) -> list[tuple[dict[str, str], float]]:
    factors = operator["accurate_efficient_factor"]
    if not isinstance(factors, dict):
        raise TypeError(f"accurate_efficient_factor is {show(factors)}")
    # Keys are "b=1, m=4096, …".
    return [(dict(re.findall(r"(\w+)=(\w+)", key)), float(share)) for key, share in factors.items()]


def _peak(operator: dict[str, object]) -> float:
    return float(str(operator["tflops"])) * 1e12


def _loaded(rows: list[tuple[int, int, int, int, float, float, str]]) -> Loaded:
    table = np.array([row[:6] for row in rows], float).reshape(-1, 6)
    sizes = np.column_stack([table[:, :3], np.ones(len(rows))])
    return Loaded(sizes, table[:, 3], table[:, 4], table[:, 5], tuple(row[6] for row in rows))


def predicted(gpu: Gpu, rows: Loaded) -> Floats:
    """Return (rows) s under load; those of experts run one after another."""
    transposed = np.array([kind == "weight" for kind in rows.kinds])
    alone, _ = gemm_seconds(gpu, "bf16", rows.sizes, rows.written, power=gpu.power, transposed=transposed)
    found: Floats = alone * rows.count
    return found


def held_out(rows: Loaded) -> NDArray[np.bool_]:
    """Return (rows) which rows are held out of a fit: a fifth, by a hash of their sizes."""
    whole = rows.sizes.astype(np.int64)
    mixed = whole[:, 0] * 73_856_093 ^ whole[:, 1] * 19_349_663 ^ whole[:, 2] * 83_492_791
    found: NDArray[np.bool_] = (mixed >> 5) % 5 == 0
    return found


def fit_demand(gpu: Gpu, limit: float, rows: Loaded) -> Power:
    """Return the power of a device: the demand with which half of the long GEMMs take longer than predicted.

    Args:
        gpu: Whose constants hold at full clocks.
        limit: W.
        rows: Dense GEMMs under load.

    Raises:
        InputError: there is no long GEMM.
    """
    which = (rows.seconds >= LONG) & ~held_out(rows)
    if not which.any():
        raise InputError(f"no GEMM of {LONG * 1e6:g} us or more, from which a demand could be told")
    part = Loaded(
        rows.sizes[which], rows.count[which], rows.written[which], rows.seconds[which],
        tuple(kind for kind, mine in zip(rows.kinds, which.tolist(), strict=True) if mine),
    )  # fmt: skip
    low, high = 0.5, 1.0
    # The share of the clocks under full load is bisected: the median of predicted times falls with it.
    for _ in range(24):
        share = (low + high) / 2
        power = Power(limit, limit / (REST + (1 - REST) * share**VOLTAGE))
        ratio = np.median(part.seconds / predicted(replace(gpu, power=power), part))
        low, high = (low, share) if ratio > 1 else (share, high)
    return power
