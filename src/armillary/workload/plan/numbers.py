"""Bytes of one parameter in each of its roles."""

from __future__ import annotations

from armillary.workload.plan.schema import ELEMENT, Plan

MOMENTS = {"adam": 2, "momentum": 1, "sgd": 0, "none": 0}
"""fp32 numbers that the optimizer keeps of a weight."""


def weight(plan: Plan) -> int:
    """Return the bytes of a weight as kernels use it; fp8 products work on weights kept in bf16."""
    return ELEMENT["fp32" if plan.numbers.compute == "fp32" else "bf16"]


def dispatch(plan: Plan) -> int:
    """Return the bytes of an element on its way to experts: DeepSeek-V3 sends fp8 there, and bf16 back (§3.3.2)."""
    return min(ELEMENT[plan.experts.dispatch or plan.numbers.compute], weight(plan))


def gradient(plan: Plan) -> int:
    """Return the bytes of a gradient."""
    return ELEMENT[plan.numbers.gradients]


def state(plan: Plan) -> int:
    """Return the bytes of what the optimizer keeps: moments, and an fp32 copy of a weight that is not fp32."""
    if plan.optimizer == "none":
        return 0
    return 4 * (MOMENTS[plan.optimizer] + (plan.numbers.compute != "fp32"))


def traffic(plan: Plan) -> int:
    """Return the bytes that an update moves: it reads the gradient, and reads and writes states and weight."""
    reads_weight = plan.numbers.compute == "fp32"
    return gradient(plan) + 2 * state(plan) + weight(plan) * (1 + reads_weight)
