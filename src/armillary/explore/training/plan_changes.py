"""What of a plan may be changed on its own: other sizes, schedules, recomputation, precision, sharding."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from armillary.workload.models import Model
from armillary.workload.models.schema import Decoder
from armillary.workload.plan.schema import Plan


def plan_changes(model: Model, plan: Plan) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield single changes of a plan in words, and the keys that they set.

    Not all of them are possible: what a model or a machine forbids is refused where it is predicted.
    """
    own = plan.parallel
    experts = isinstance(model, Decoder) and model.experts
    for axis in ("tp", "pp", "cp", "ep") if experts else ("tp", "pp", "cp"):
        size = getattr(own, axis)
        for other in (size * 2, size // 2):
            if other >= 1:
                # Virtual stages are those of a number of stages.
                more = {"pipeline": {"virtual": 1, "schedule": "1f1b"}} if axis == "pp" else {}
                yield f"{axis} {other} instead of {size}", {"parallel": {axis: other}, **more}
    for micro in (plan.microbatch * 2, plan.microbatch // 2):
        if micro:
            yield f"microbatch {micro} instead of {plan.microbatch}", {"microbatch": micro}
    if own.pp > 1:
        now = plan.pipeline.virtual
        for virtual in (now * 2, 1):
            if virtual != now:
                schedule = "interleaved" if virtual > 1 else "1f1b"
                yield (
                    f"virtual stages: {virtual} instead of {now}",
                    {"pipeline": {"virtual": virtual, "schedule": schedule}},
                )
    for how in ("none", "selective", "full"):
        if how != plan.recompute:
            yield f"recomputation {how} instead of {plan.recompute}", {"recompute": how}
    if own.tp > 1 and not own.overlap and own.sequence:
        yield "communication of tp beside its GEMMs (--overlap-tp)", {"parallel": {"overlap": True}}
    if plan.numbers.compute == "bf16":
        yield "GEMMs in fp8", {"numbers": {"compute": "fp8"}}
    for sharding in ("ddp", "zero-1", "fsdp"):
        if sharding != plan.data.sharding:
            yield f"sharding {sharding} instead of {plan.data.sharding}", {"data": {"sharding": sharding}}
