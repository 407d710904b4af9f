"""Fitted constants as the file of a device."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import yaml

from armillary.base.errors import InputError, one_of
from armillary.compute.gpu.device import GemmFit, Gpu, gpu_names, load_gpu
from armillary.evidence.calibrate.gemm import LEAST_NS, Errors, Fitted

# Constants in seconds; the others are shares, but for `sharp`.
_TIMES = ("step", "tile", "launch", "after", "split", "cast")
_NUMBERS = ("sharp", "cached")


def gemm_keys(fit: GemmFit) -> dict[str, Any]:
    """Return constants as they stand in a file, with units."""
    found: dict[str, Any] = {}
    for each in dataclasses.fields(GemmFit):
        value = getattr(fit, each.name)
        # Casts exist only in precisions whose left operand is converted first.
        if each.name in ("cast", "cast_memory") and not fit.cast:
            continue
        if each.name == "feed":
            found[each.name] = f"{value / 1e9:.4g} GB/s"
        elif each.name in _TIMES:
            unit, scale = ("ns", 1e9) if value < 1e-6 else ("us", 1e6) if value < 1e-3 else ("ms", 1e3)
            found[each.name] = f"{value * scale:.4g} {unit}"
        else:
            found[each.name] = float(f"{value:.4g}") if each.name in _NUMBERS else f"{100 * value:.4g} %"
    return found


def error_keys(fitted: Fitted, source: str) -> dict[str, Any]:
    """Return the source of a fit, and its errors, as they stand in a file."""
    by_group = {f"without some {name}": _words(each) for name, each in fitted.groups.items()}
    return {
        "source": source,
        "rows": fitted.rows,
        "counted": f"{LEAST_NS / 1e3:g} us and more",
        "in sample": _words(fitted.inside),
        "held out": _words(fitted.outside),
        f"held out, below {LEAST_NS / 1e3:g} us": _words(fitted.short),
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
    data = {
        "title": title,
        "like": like,
        "sms": base.sms,
        "peak": {name: f"{value / 1e12:g} TFLOP/s" for name, value in base.peaks.items()},
        "memory": {"bandwidth": f"{base.bandwidth / 1e9:g} GB/s", "capacity": f"{base.capacity} B"},
        # Tiles equal to those of the base are left out: `like` brings them.
        **({} if base.tiles == load_gpu(like).tiles else {"tiles": _tiles(base)}),
        "gemm": {name: gemm_keys(each.fit) for name, each in fits.items()},
        "fitted": {f"gemm {name}": error_keys(each, source) for name, each in fits.items()},
    }
    return yaml.safe_dump(data, sort_keys=False, width=120)


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
