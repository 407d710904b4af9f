"""Fitted constants as the file of a device."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import yaml

from armillary.base.errors import InputError, one_of
from armillary.compute.gpu.device import AttentionFit, GemmFit, Gpu, gpu_names, load_gpu
from armillary.compute.gpu.residuals import Residuals
from armillary.evidence.calibrate.gemm import LEAST_NS, Errors, Fitted

# Constants in seconds; the others are shares, but for `sharp`.
_TIMES = (
    "step", "tile", "launch", "after", "split", "cast", "ramp", "vector", "vector_step", "score",
    "backward_score", "context_launch",
)  # fmt: skip
_NUMBERS = ("sharp", "cached", "part", "other", "backward_other")


def gemm_keys(fit: GemmFit | AttentionFit) -> dict[str, Any]:
    """Return constants as they stand in a file, with units."""
    found: dict[str, Any] = {}
    for each in dataclasses.fields(fit):
        value = getattr(fit, each.name)
        # Casts exist only in precisions whose left operand is converted first.
        if each.name in ("cast", "cast_memory") and not getattr(fit, "cast", 0):
            continue
        if each.name in ("again", "ramp", "part", "vector", "vector_step") and not value:
            continue
        if each.name == "feed":
            found[each.name] = f"{value / 1e9:.4g} GB/s"
        elif each.name in _TIMES:
            found[each.name] = _time(value)
        else:
            found[each.name] = float(f"{value:.4g}") if each.name in _NUMBERS else f"{100 * value:.4g} %"
    return found


def _time(seconds: float) -> str:
    unit, scale = ("ns", 1e9) if seconds < 1e-6 else ("us", 1e6) if seconds < 1e-3 else ("ms", 1e3)
    return f"{seconds * scale:.4g} {unit}"


def residual_keys(residuals: Residuals) -> dict[str, Any]:
    """Return residuals as they stand in a file, in percent."""
    row = len(residuals.n) * len(residuals.k)
    percent = [round(100 * each) for each in residuals.logs]
    return {
        **{name: list(getattr(residuals, name)) for name in "mnk"},
        "percent": [percent[at : at + row] for at in range(0, len(percent), row)],
        **{name: float(f"{getattr(residuals, name):.3g}") for name in ("long", "short")},
    }


def error_keys(fitted: Fitted, source: str) -> dict[str, Any]:
    """Return the source of a fit, and its errors, as they stand in a file."""
    before = {}
    if fitted.before:
        before = {"held out, without residuals": ", below: ".join(_words(each) for each in fitted.before)}
    by_group = {f"without some {name}": _words(each) for name, each in fitted.groups.items()}
    return {
        "source": source,
        "rows": fitted.rows,
        "counted": f"{LEAST_NS / 1e3:g} us and more",
        "in sample": _words(fitted.inside),
        "held out": _words(fitted.outside),
        f"held out, below {LEAST_NS / 1e3:g} us": _words(fitted.short),
        **before,
        **by_group,
    }


def device_text(base: Gpu, title: str, fits: Mapping[str, Fitted], source: str) -> str:
    """Return a device file like `base`, with fitted constants; `source` says what was measured.

    Raises:
        InputError: `base` is of a file that is like no device of the package.
    """
    # A user's file is replaced by the device of the package that it is like.
    like = base.name if base.name in gpu_names() else base.like
    if not like:
        raise InputError(f"base {base.name}: expected {one_of(gpu_names())}, or a file with the key 'like'")
    gemms = {name: each.fit for name, each in fits.items()}
    fitted = {f"gemm {name}": error_keys(each, source) for name, each in fits.items()}
    residuals = {name: residual_keys(each.residuals) for name, each in fits.items() if each.residuals}
    besides = {"residuals": residuals} if residuals else {}
    data = {**like_keys(base, title, like, gemms), **besides, "fitted": fitted}
    return yaml.safe_dump(data, sort_keys=False, width=120)


def like_keys(base: Gpu, title: str, like: str, gemms: Mapping[str, GemmFit]) -> dict[str, Any]:
    """Return the keys of a device that is like one of the package, but for its GEMMs."""
    return {
        "title": title,
        "like": like,
        "sms": base.sms,
        "peak": {name: f"{value / 1e12:g} TFLOP/s" for name, value in base.peaks.items()},
        "memory": {"bandwidth": f"{base.bandwidth / 1e9:g} GB/s", "capacity": f"{base.capacity} B"},
        # Tiles equal to those of the base are left out: `like` brings them.
        **({} if base.tiles == load_gpu(like).tiles else {"tiles": _tiles(base)}),
        "gemm": {name: gemm_keys(fit) for name, fit in gemms.items()},
    }


def whole_keys(gpu: Gpu, title: str) -> dict[str, Any]:
    """Return the keys of a device that is like no other; what it says of power and layouts is left out."""
    memory = {"bandwidth": f"{gpu.bandwidth / 1e9:.4g} GB/s", "share": f"{100 * gpu.share:.4g} %"}
    return {
        "title": title,
        "sms": gpu.sms,
        "peak": {name: f"{value / 1e12:.4g} TFLOP/s" for name, value in gpu.peaks.items()},
        "memory": memory | ({"capacity": f"{gpu.capacity} B"} if gpu.capacity else {}),
        "launch": _time(gpu.launch),
        "depth": gpu.depth,
        "load": gpu.load,
        "tiles": _tiles(gpu),
        "gemm": {name: gemm_keys(fit) for name, fit in gpu.gemm.items()},
        "attention": {name: gemm_keys(fit) for name, fit in gpu.attention.items()},
    }


def _tiles(gpu: Gpu) -> list[str]:
    """Return tiles, of two that differ by their direction the first."""
    # Tiles come in both directions; one of the two says both.
    found = [tile for tile in gpu.tiles if tile[0] >= tile[1] or (tile[1], tile[0], tile[2]) not in gpu.tiles]
    return [f"{rows}x{columns}" + f"/{share}" * (share > 1) for rows, columns, share in found]


def _words(each: Errors) -> str:
    # With no rows the mean is NaN.
    if not each.count:
        return "no rows"
    return f"{100 * each.mean:.1f} % mean, {100 * each.worst:.1f} % at nine of ten ({each.count} rows)"
