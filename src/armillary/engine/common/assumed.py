"""What a result assumes that its input does not say: it stands in the headline."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.base.units import format_count
from armillary.platform.kernels import Kernels

if TYPE_CHECKING:
    from armillary.engine.common.lowered import Simulated
    from armillary.platform.model import Platform


def assumptions(
    lowered: Simulated, platform: Platform, profile: str, about: dict[str, Any]
) -> dict[str, Any]:
    """Return what a timeline says of nodes that name work and have no time, and of precisions that no model knows.

    ``assumptions`` has a sentence for each thing that is assumed of them, ``free_nodes`` is how many take no time,
    ``assumed_nodes`` those and the ones that the roofline timed unasked.
    `about` is what the trace says of itself.
    """
    sizes = np.bincount(lowered.classes, minlength=len(lowered.views)).tolist()
    total: dict[str, int] = dict.fromkeys(("free", "idle", "untimed", "unmoved"), 0)
    for view, ranks in zip(lowered.views, sizes, strict=True):
        for name in total:
            total[name] += getattr(view.nodes, name, 0) * ranks
    free, idle, untimed, unmoved = total.values()
    found = []
    if untimed:
        found.append(f"the roofline times {_nodes(untimed)} without a recorded time")
    if unmoved:
        found.append(f"bytes of {_nodes(unmoved)} cost no time: npu.memory.bandwidth is not given")
    if free and platform.system.replay_only:
        found.append(f"{_nodes(free)} with bytes and no recorded time take none")
    elif free and profile == "astra-sim":
        why = "num_ops without tensor_size" if platform.system.roofline else "no duration, roofline off"
        found.append(f"{_nodes(free)} with operations or bytes take no time, as in ASTRA-sim ({why})")
    if idle:
        found.append(f"{_nodes(idle)} of CPUs with operations or bytes and no recorded time take none")
    kept, model = about.get("precision"), platform.kernel_model.name
    if kept and platform.system.roofline and model in ("gpu", "table", "systolic"):
        other = [
            f"{name} in {kept[key]}"
            for key, name, usual in (
                ("weights", "weights", kept["compute"]),
                ("cache", "keys and values", "bf16"),
            )
            if kept[key] != usual
        ]
        if other:
            found.append(f"compute model {model} takes the precision of products for {' and '.join(other)}")
    return {"assumptions": found, "free_nodes": free + idle, "assumed_nodes": free + idle + untimed}


def unused_efficiency(platform: Platform, info: dict[str, Any]) -> list[str]:
    """Return a warning where an efficiency or overhead of kernels was given and no kernel was timed by the roofline."""
    kernels, source = platform.physical.kernels, platform.source or "platform"
    if platform.system.roofline or "roofline" in info or replace(kernels, peaks={}) == Kernels():
        return []
    if any(
        each.efficiency is not None or each.factor is not None for each in platform.kernel_model.overrides
    ):
        return []
    return [
        f"{source}: compute.efficiency and compute.kernel_overhead have no effect: every compute node takes its "
        "recorded time; compute.roofline: true times them"
    ]


def _nodes(count: int) -> str:
    return f"{format_count(count)} node{'s' * (count != 1)}"
