"""Fitted constants as the keys of a study, to be put beside its network and its model."""

from __future__ import annotations

from math import exp
from typing import Any

from armillary.base.errors import InputError
from armillary.compute.gpu.device import load_gpu
from armillary.explore.training.constants import Constants
from armillary.explore.training.fitted import NORMAL, constants_of

_NEUTRAL = Constants()


def study_keys(software: str, device: str) -> dict[str, Any]:
    """Return the keys of a study that let steps take as long as measured ones of a software on a device.

    Args:
        software: Name of a software, or the path of a file of ``armillary calibrate training``.
        device: Name of a GPU, or the path of its file.

    Raises:
        InputError: there is no such software or device, or none of its constants are known.
    """
    # For its errors: an unknown device is reported before unknown constants.
    load_gpu(device)
    found = constants_of(software, device)
    if found.constants == _NEUTRAL:
        raise InputError(
            f"{software} on {device}: no constants are known, expected a device that it was fitted to"
        )
    neutral = _NEUTRAL.platform(device)
    keys = found.constants.platform(device)
    # Neutral values are left out, so that the keys show what the software adds.
    keys["terms"] = {name: value for name, value in keys["terms"].items() if value != neutral["terms"][name]}
    keys["compute"] = {
        name: value for name, value in keys["compute"].items()
        # Model and device are needed even where they are neutral.
        if name in ("model", "device") or value != neutral["compute"][name]
    }  # fmt: skip
    if device in found.on:
        # Of a dense step that exposes nothing: of others `armillary train` says more.
        wide = exp(NORMAL * found.spread.step)
        of = f"held-out rows of {software}"
        keys["compute"]["uncertainty"] = {"low": round(1 / wide, 4), "high": round(wide, 4), "of": of}
    study: dict[str, Any] = {"platform": {name: part for name, part in keys.items() if part}}
    if plan := found.constants.plan({}):
        study["workload"] = {"generate": plan}
    return study
