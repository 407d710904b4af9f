"""What a study knows better of some kernels than the model does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

import numpy as np

from armillary.compute.model import Device, Times, Work
from armillary.compute.roofline import Roofline
from armillary.platform.kernels import Override


def find_override(work: Work, at: int, overrides: Sequence[Override]) -> Override | None:
    """Return the first that fits a kernel."""
    # First match wins, as in a list of rules.
    for each in overrides:
        if fnmatchcase(work.names[at], each.name) and each.kind in ("", work.kind(at)):
            return each
    return None


def overridden(work: Work, times: Times, overrides: Sequence[Override], device: Device) -> Times:
    """Return the times with overrides.

    A factor of a kernel that no model knows is one of its recorded duration; an efficiency needs operations or bytes,
    and leaves others as they are.
    """
    ns = times.ns.copy()
    bound = list(times.bound or [""] * len(work))
    # Copied: the model's arrays are its own.
    beyond = np.ones(len(work)) if times.beyond is None else times.beyond.copy()
    for at in range(len(work)):
        found = find_override(work, at, overrides)
        if found is None:
            continue
        if found.duration is not None:
            value = found.duration
        elif found.factor is not None:
            value = found.factor * float(work.recorded[at] if np.isnan(ns[at]) else ns[at])
        else:
            assert found.efficiency is not None
            # One efficiency stands for both limits of the roofline.
            kernels = replace(device.kernels, compute=found.efficiency, memory=found.efficiency)
            value = float(Roofline(replace(device, kernels=kernels)).durations(_one(work, at)).ns[0])
        if not np.isnan(value):
            ns[at], bound[at] = value, "override"
            # A factor keeps the doubt of what it multiplies; a time or an efficiency replaces it.
            beyond[at] = beyond[at] if found.factor is not None else 1.0
    return replace(times, ns=ns, bound=tuple(bound), beyond=beyond)


def idle(work: Work, overrides: Sequence[Override]) -> list[str]:
    """Return notes on overrides that time no kernel."""
    used = {find_override(work, at, overrides) for at in range(len(work))}
    return [
        f"override {number} ({_text(each)}) fits no kernel"
        for number, each in enumerate(overrides, 1)
        if each not in used
    ]


def _one(work: Work, at: int) -> Work:
    part = slice(at, at + 1)
    return Work(
        work.names[part], work.operations[part], work.size[part], work.precisions[part], work.gemms[part],
        work.recorded[part],
    )  # fmt: skip


def _text(override: Override) -> str:
    return f"name '{override.name}'" + (f", kind {override.kind}" if override.kind else "")
