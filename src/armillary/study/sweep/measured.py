"""The measures of a study: what is known before it runs, and what its timeline says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.report.flop_rate import flops
from armillary.report.lower_bound import bound
from armillary.report.ranks import nanoseconds, slowest
from armillary.report.time_breakdown import breakdown
from armillary.study.sweep.prepared import Prepared
from armillary.study.sweep.sweep import Sweep
from armillary.workload import models
from armillary.study.sweep.memory import needed

if TYPE_CHECKING:
    from armillary.engine.timeline import Timeline


def before_run(prepared: Prepared, sweep: Sweep) -> dict[str, float]:
    """Return what is known of a study before it is simulated.

    Raises:
        InputError: the workload is impossible.
    """
    found: dict[str, float] = {"npus": prepared.study.platform.npus}
    if prepared.model and prepared.plan:
        found["memory"] = needed(prepared.model, prepared.plan)
        capacity = prepared.study.platform.physical.memory.capacity
        if capacity:
            found["headroom"] = capacity - found["memory"]
    return found


def of_run(prepared: Prepared, timeline: Timeline, sweep: Sweep) -> dict[str, float]:
    """Return what a timeline says of its study; times of several iterations are those of one."""
    plan = prepared.plan
    steps = plan.iterations if plan else 1

    def seconds(ticks: float) -> float:
        return float(nanoseconds(timeline, ticks)) / 1e9 / steps

    found: dict[str, float] = {
        "step_time": seconds(timeline.total_ticks),
        "bound": seconds(bound(timeline).ticks),
    }
    cls = slowest(timeline)
    if cls is not None:
        parts = breakdown(timeline, cls)
        found |= {
            "compute": seconds(parts.compute),
            "communication": seconds(parts.communication),
            "waiting": seconds(parts.waiting),
            "idle": seconds(parts.idle),
        }
    if rate := flops(timeline):
        found["flops_per_npu"] = rate.rate_per_npu
        if rate.utilisation is not None:
            found["mfu"] = rate.utilisation
    if plan and prepared.model and found["step_time"]:
        found["samples_per_second"] = plan.batch / found["step_time"]
        sequence = plan.sequence or models.default_sequence(prepared.model)
        if sequence and not plan.serve:
            found["tokens_per_second"] = found["samples_per_second"] * sequence
    return found
