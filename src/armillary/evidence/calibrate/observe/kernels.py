"""A device whose GEMMs were observed: constants that move from those of a known device, or from none."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from math import hypot
from typing import Any

import numpy as np

from armillary.base.errors import InputError
from armillary.base.units import format_time
from armillary.compute.gpu.device import AttentionFit, GemmFit, Gpu, gpu_names
from armillary.compute.gpu.spread import FURTHER, SHORT_NS, UNKNOWN, own_spread
from armillary.compute.model import Floats
from armillary.compute.table_file import Measured
from armillary.evidence.calibrate.device_file import like_keys, whole_keys
from armillary.evidence.calibrate.gemm import WIDTHS, few, predicted_ns
from armillary.evidence.calibrate.observe.read import Gemms
from armillary.evidence.calibrate.priors import WEIGHT, folds, pooled

PLAIN = {"rate": 1.0, "launch": 1.0, "memory": 1.0}
"""Constants of a device that is like no other, and how far they may be from where they start, as logarithms."""
REACHED = 0.9
"""Share of its peak that the fastest GEMM of such a device is taken to reach."""
BALANCE = 20.0
"""FLOP for each byte of its memory that such a device is taken to do: what processors with a few channels of memory do;
GEMMs that move more bytes than that tell better."""
_TILE = (16, 16, 1)


@dataclass(frozen=True)
class Fit:
    """What was found of one precision.

    Attributes:
        shapes: How many were measured.
        rows: Their times.
        free: Constants that the shapes decided.
        mean: Mean absolute error of shapes that were held out; nan: too few.
        spread: Class of kernels -> standard deviation of ln(measured / predicted).
    """

    shapes: int
    rows: int
    free: tuple[str, ...]
    mean: float
    spread: Mapping[str, float]


@dataclass(frozen=True)
class Kernels:
    """An observed device.

    Attributes:
        gpu: The device.
        fits: By precision.
        keys: Of its file.
    """

    gpu: Gpu
    fits: Mapping[str, Fit]
    keys: Mapping[str, Any]


def fit_kernels(base: Gpu | None, gemms: Mapping[str, Gemms], title: str, sources: str) -> Kernels:
    """Return the device whose GEMMs take as long as was observed.

    Args:
        base: The device that it is like; None: like no other.
        gemms: By precision, at least one.
        title: For people.
        sources: Files that GEMMs are from.

    Raises:
        InputError: the device has no peak of a precision.
    """
    start, widths = (base, WIDTHS) if base else (plain(gemms), PLAIN)
    # What is not measured has no peak to take shares of.
    known = {name: each for name, each in gemms.items() if name in start.peaks}
    if base:
        for name, each in known.items():
            _check_rates(base, name, each.measured)
    found: dict[str, GemmFit] = {}
    fits: dict[str, Fit] = {}
    for name, each in known.items():
        found[name], free = few(start, name, each.measured, each.loaded, widths)
        fits[name] = _errors(start, name, each, widths, free)
    if not base:
        # Other precisions take the constants of bf16, so that one must be there.
        found.setdefault("bf16", next(iter(found.values())))
    gpu = dataclasses.replace(start, gemm={**start.gemm, **found})
    if not base:
        gpu = _alike(gpu, found["bf16"])
    spread = {name: value for fit in fits.values() for name, value in fit.spread.items()}
    # Classes of which nothing was measured are those of another device.
    further = FURTHER["sibling"] if base else FURTHER["derived"]
    kept = {
        name: round(hypot(value, further), 4) for name, value in start.spread.items() if name not in spread
    }
    basis = {"basis": "measured"}
    # A user's device has constants of its own, which its sibling in the package does not bring.
    own = base is not None and base.name in gpu_names()
    like = "" if base is None else base.name if own else base.like
    keys = like_keys(gpu, title, like, found if own else gpu.gemm) if like else whole_keys(gpu, title)
    said = {f"gemm {name}": _said(fit, sources) for name, fit in fits.items()}
    rounded = {name: round(value, 4) for name, value in spread.items()}
    return Kernels(gpu, fits, {**keys, **basis, "spread": {**kept, **rounded}, "fitted": said})


def _check_rates(base: Gpu, precision: str, measured: Measured) -> None:
    """Refuse GEMMs that are faster than any can be: their times are in another unit, or of another device."""
    rates = 2 * measured.sizes.astype(float).prod(axis=1) / measured.ns * 1e9
    worst = int(rates.argmax())
    if rates[worst] > base.peaks[precision]:
        shape = "x".join(str(each) for each in measured.sizes[worst].tolist())
        raise InputError(
            f"GEMM {shape} in {precision}: {format_time(measured.ns[worst])} are {rates[worst] / 1e12:,.4g} TFLOP/s, "
            f"expected at most the peak of {base.title}, {base.peaks[precision] / 1e12:,.4g} TFLOP/s: times in the "
            "unit of --unit, of that device, in that precision"
        )


def plain(gemms: Mapping[str, Gemms]) -> Gpu:
    """Return a device of which nothing but some GEMMs is known: one processor that computes, moves bytes and starts."""
    peaks, starts = {}, {}
    for name, each in gemms.items():
        flops = 2 * each.measured.sizes.astype(float).prod(axis=1)
        peaks[name] = float((flops / each.measured.ns).max() * 1e9 / REACHED)
        starts[name] = float(each.measured.ns.min()) * 1e-9 / 2
    peaks.setdefault("bf16", next(iter(peaks.values())))
    # Without a latency, a tile or drops of clocks: what these constants mean belongs to GPUs.
    fit = GemmFit(REACHED, 1e15, 0.0, 0.0, min(starts.values()), 0.8, 3.0, 0.0, 1e-3, 0.0)
    attention = AttentionFit(0.5, 0.0, 0.0, fit.launch, 0.8, 3.0, 0.5, 0.0)
    bandwidth = max(peaks.values()) / BALANCE
    return Gpu(
        "observed", "observed", peaks, bandwidth, 0, 1, (_TILE,), 64, {"bf16": fit}, {"bf16": attention}, {}, 0.8,
        fit.launch,
    )  # fmt: skip


def _alike(gpu: Gpu, fit: GemmFit) -> Gpu:
    """Return a plain device whose other kernels start and move bytes as its GEMMs do."""
    attention = {
        name: dataclasses.replace(
            each, launch=fit.launch, memory=fit.memory, rate=fit.rate, backward_rate=fit.rate
        )
        for name, each in gpu.attention.items()
    }
    return dataclasses.replace(gpu, attention=attention, share=fit.memory, launch=fit.launch)


def _errors(
    start: Gpu, precision: str, gemms: Gemms, widths: Mapping[str, float], free: tuple[str, ...]
) -> Fit:
    """Return the errors of shapes by constants that have not seen them."""
    measured = gemms.measured
    count = len(measured.ns)
    predicted: Floats = np.full(count, np.nan)
    # By size, so that each fold has small and large ones.
    order = np.argsort(measured.sizes.astype(float).prod(axis=1), kind="stable")
    for fold in folds(count) if count > 1 else ():
        out = np.zeros(count, bool)
        out[order[fold]] = True
        rest = dataclasses.replace(measured, sizes=measured.sizes[~out], ns=measured.ns[~out])
        fit, _ = few(start, precision, rest, gemms.loaded[~out], widths)
        predicted[out] = predicted_ns(start, precision, measured.sizes[out], fit, gemms.loaded[out])
    mean = float(np.mean(np.abs(predicted / measured.ns - 1))) if count > 1 else float("nan")
    spread = {}
    for length in ("short", "long"):
        mine = [at for at in range(count) if (predicted[at] < SHORT_NS) == (length == "short")]
        offs = [float(np.log(ns / predicted[at])) for at in mine for ns in gemms.rows[at] if count > 1]
        if offs:
            before = own_spread(start, "gemm", precision, 0.0 if length == "short" else None)
            further = FURTHER["sibling"] if start.spread else UNKNOWN
            spread[f"gemm {precision} {length}"] = pooled(offs, len(mine), hypot(before, further))
    return Fit(count, sum(map(len, gemms.rows)), free, mean, spread)


def _said(fit: Fit, sources: str) -> dict[str, Any]:
    return {
        "source": sources,
        "shapes": fit.shapes,
        "rows": fit.rows,
        "decided by them": ", ".join(fit.free) or "no constant",
        "prior": f"the other constants, and {WEIGHT:g} shapes of the spread, are those of the device it is like",
        "held out": "no rows" if np.isnan(fit.mean) else f"{100 * fit.mean:.1f} % mean",
    }
