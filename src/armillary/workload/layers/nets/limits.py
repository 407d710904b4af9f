"""What of a plan these models cannot do."""

from __future__ import annotations

from armillary.base.errors import InputError
from armillary.workload.models.operations import flops
from armillary.workload.models.schema import Model
from armillary.workload.plan.schema import Plan


def check_plan(model: Model, plan: Plan, divided: tuple[str, ...] = ()) -> None:
    """Check the parts of a plan that depend on the kind of model.

    Args:
        model: The model.
        plan: The plan.
        divided: Those of tp, cp and ep that divide this kind of model.

    Raises:
        InputError: another of them is more than 1, or a sequence, causal mask or selective recomputation is asked of
            a model that has none.
    """
    works = " and ".join(["dp, pp" if divided else "dp", *(divided or ["pp"])])
    for axis in ("tp", "cp", "ep"):
        size = getattr(plan.parallel, axis)
        if size > 1 and axis not in divided:
            raise InputError(
                f"{axis} {size}: expected 1, '{model.name}' of kind '{model.kind}' is divided by {works} only"
            )
    flops(model, plan.microbatch, plan.sequence, recomputation=plan.recompute, causal=plan.causal)
