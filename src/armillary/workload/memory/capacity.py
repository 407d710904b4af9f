"""Whether what a generated workload holds fits into the memory of an NPU."""

from __future__ import annotations

from functools import partial

from armillary.base.units import format_bytes
from armillary.workload.generate import replica_layers
from armillary.workload.memory.advice import advise
from armillary.workload.models import Model
from armillary.workload.plan.schema import Plan


def over_capacity(model: Model, plan: Plan, capacity: int) -> str:
    """Return who needs how much more than `capacity` bytes, and when; empty if it fits.

    Args:
        model: The model.
        plan: How it is run.
        capacity: Bytes of an NPU; 0: not known.
    """
    if not capacity:
        return ""
    found = advise(plan, 2**62, partial(replica_layers, model)).footprint
    if found.needed <= capacity:
        return ""
    return (
        f"{model.name} needs {format_bytes(found.needed)} on ranks of pipeline stage {found.stage} at the peak, in the "
        f"{found.where}: {format_bytes(found.needed - capacity)} more than npu.memory.capacity, "
        f"{format_bytes(capacity)} (`armillary generate memory` proposes changes)"
    )
