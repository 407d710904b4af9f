"""The measures of a study: those known before it runs, and those of its timeline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.explore.cost.measures import measures_of
from armillary.explore.cost.use import per_step, use_of
from armillary.explore.sweep.memory import needed
from armillary.explore.sweep.prepared import Prepared
from armillary.explore.sweep.sweep import Sweep
from armillary.report.flop_rate import flops
from armillary.report.lower_bound import quick_bound
from armillary.report.plain import nanoseconds, slowest
from armillary.report.time_breakdown import breakdown
from armillary.workload import models
from armillary.workload.emit.serving import rounds

if TYPE_CHECKING:
    from armillary.engine.common.timeline import Timeline


def before_run(prepared: Prepared, sweep: Sweep) -> dict[str, float]:
    """Return the measures of a study that are known before simulation.

    Raises:
        InputError: the workload is impossible.
    """
    platform = prepared.study.platform
    found: dict[str, float] = {"npus": platform.npus}
    if prepared.model and prepared.plan:
        found["memory"] = needed(prepared.model, prepared.plan)
        capacity = platform.npu.memory.capacity
        if capacity:
            found["headroom"] = capacity - found["memory"]
            found["fits"] = float(found["headroom"] >= 0)
    if sweep.costs:
        found |= measures_of(None, platform, sweep.costs)
    return found


def of_run(prepared: Prepared, timeline: Timeline, sweep: Sweep) -> dict[str, float]:
    """Return the measures of a simulated study; times are per iteration."""
    plan = prepared.plan
    steps = plan.iterations if plan else 1

    def seconds(ticks: int) -> float:
        # The timeline may have several iterations; measures are those of one. Multiplied as in other results, so that
        # a row has the very time of a run of its study.
        return float(nanoseconds(timeline, ticks)) * 1e-9 / steps

    found: dict[str, float] = {
        "step_time": seconds(timeline.total_ticks),
        "bound": seconds(quick_bound(timeline)),
    }
    if assumed := timeline.info.get("assumed_nodes"):
        found["assumed_nodes"] = assumed
    if (used := timeline.info.get("roofline")) and "compute_model" not in timeline.info:
        found["roofline"] = used["compute_efficiency"]
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
        if rate.mfu is not None:
            found["mfu"] = rate.mfu
    tokens = _tokens(prepared)
    if plan and found["step_time"]:
        found["samples_per_second"] = plan.batch / found["step_time"]
        if tokens:
            found["tokens_per_second"] = tokens / found["step_time"]
    if sweep.costs or sweep.tokens:
        use = per_step(use_of(timeline), steps)
        found |= measures_of(
            use, prepared.study.platform, sweep.costs, tokens=tokens, run_tokens=sweep.tokens
        )
    return found


def _tokens(prepared: Prepared) -> int | None:
    """Return the tokens of a step: those read in training, those generated in inference; None if unknown."""
    plan = prepared.plan
    if not plan or not prepared.model:
        return None
    # A round answers with one token per sequence.
    if plan.serve:
        return plan.batch * len(rounds(plan.serve))
    sequence = plan.sequence or models.default_sequence(prepared.model)
    return plan.batch * sequence if sequence else None
