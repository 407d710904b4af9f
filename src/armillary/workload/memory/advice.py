"""Whether a plan fits into the memory of an NPU, and changes that would make it fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from armillary.base.errors import InputError
from armillary.workload.layers.layer import Layer
from armillary.workload.memory.footprint import FRAGMENTATION, Footprint, worst
from armillary.workload.memory.inference import worst_serving
from armillary.workload.memory.outside import Outside
from armillary.workload.pipeline.partition import partition
from armillary.workload.plan.ranks import microbatches
from armillary.workload.plan.schema import Plan

# By growing cost in communication, so the first that fits is the cheapest.
_STRONGER = {
    "ddp": ("zero-1", "zero-2", "zero-3"),
    "parameter-server": ("zero-1", "zero-2", "zero-3"),
    "zero-1": ("zero-2", "zero-3"),
    "zero-2": ("zero-3",),
    "hsdp": ("fsdp",),
}


@dataclass(frozen=True)
class Change:
    """A plan with one change.

    Attributes:
        text: The change, for people.
        plan: The changed plan.
        needed: Bytes that its largest rank needs.
    """

    text: str
    plan: Plan
    needed: int


@dataclass(frozen=True)
class Advice:
    """Whether a plan fits, and what to change.

    Attributes:
        footprint: Footprint of the rank that needs most.
        capacity: Bytes of an NPU.
        changes: Changes that need less memory, cheapest first; none if the plan fits.
    """

    footprint: Footprint
    capacity: int
    changes: tuple[Change, ...]

    @property
    def fits(self) -> bool:
        """Whether the plan fits as it is."""
        return self.footprint.needed <= self.capacity

    @property
    def fitting(self) -> list[Change]:
        """The changes after which it fits."""
        return [change for change in self.changes if change.needed <= self.capacity]


def advise(
    plan: Plan,
    capacity: int,
    layers_of: Callable[[Plan], Sequence[Layer]],
    *,
    fragmentation: float = FRAGMENTATION,
    outside: Outside | None = None,
) -> Advice:
    """Compare the needs of a plan with the memory of an NPU; if it does not fit, try single changes.

    Args:
        plan: How the model is run.
        capacity: Bytes of an NPU.
        layers_of: Makes the layers of the model under a plan.
        fragmentation: As in `footprint`.
        outside: As in `footprint`.

    Raises:
        InputError: the plan is impossible.
    """

    def evaluate(each: Plan) -> Footprint:
        stages = partition(layers_of(each), each)
        most = worst_serving if each.serve else worst
        return most(stages, each, fragmentation=fragmentation, outside=outside)

    found = evaluate(plan)
    changes: list[Change] = []
    if found.needed > capacity:
        for steps in _candidates(plan):
            for text, changed in steps:
                try:
                    needed = evaluate(changed).needed
                # The model or the ranks do not allow this change, such as tp above the number of heads.
                except InputError:
                    continue
                if needed < found.needed:
                    changes.append(Change(text, changed, needed))
                # A stronger change of the same kind fits as well, but costs more.
                if needed <= capacity:
                    break
    return Advice(found, capacity, tuple(changes))


def _candidates(plan: Plan) -> Iterator[Iterator[tuple[str, Plan]]]:
    """Yield kinds of changes; of each the smallest that fits is enough."""
    # From free to costly: flash attention costs nothing, recomputation time, sharding communication; a
    # different tp, pp or ep changes the whole run.
    yield _one(plan, "attention", "flash")
    if plan.serve:
        yield _fewer(plan)
        yield _smaller(plan)
        for axis in ("tp", "pp", "ep"):
            yield _doubled(plan, axis)
        return
    yield _one(plan, "recompute", "selective", "full")
    yield _sharding(plan)
    if plan.parallel.tp > 1 and not plan.parallel.sequence:
        yield iter([("sequence parallel", _with(plan, "parallel", sequence=True))])
    if plan.pipeline.schedule != "1f1b" and plan.parallel.pp > 1:
        yield iter([("schedule 1f1b", _with(plan, "pipeline", schedule="1f1b", virtual=1, layers=None))])
    yield _smaller(plan)
    for axis in ("tp", "pp", "ep"):
        yield _doubled(plan, axis)
    if plan.offload.optimizer is None and plan.optimizer != "none":
        yield iter([("offload the optimizer states", _with(plan, "offload", optimizer=1.0))])
    if plan.offload.activations is None:
        yield iter([("offload the activations", _with(plan, "offload", activations=1.0))])


def _one(plan: Plan, key: str, *values: str) -> Iterator[tuple[str, Plan]]:
    now = getattr(plan, key)
    for value in values[values.index(now) + 1 :] if now in values else values:
        yield f"{key} {value}", plan.model_copy(update={key: value})


def _sharding(plan: Plan) -> Iterator[tuple[str, Plan]]:
    for sharding in _STRONGER.get(plan.data.sharding, ()):
        yield f"sharding {sharding}", _with(plan, "data", sharding=sharding, shard=None)


def _smaller(plan: Plan) -> Iterator[tuple[str, Plan]]:
    size = plan.microbatch
    for microbatch in range(size - 1, 0, -1):
        if size % microbatch == 0:
            yield f"microbatch {microbatch}", plan.model_copy(update={"microbatch": microbatch})


def _fewer(plan: Plan) -> Iterator[tuple[str, Plan]]:
    count = microbatches(plan)
    unit = plan.batch // count
    while count := count // 2:
        yield f"batch {count * unit}", plan.model_copy(update={"batch": count * unit})


def _doubled(plan: Plan, axis: str) -> Iterator[tuple[str, Plan]]:
    own = plan.parallel
    size, dp = getattr(own, axis), own.dp
    while (size := 2 * size) <= plan.ranks:
        values: dict[str, Any] = {axis: size}
        if dp is not None and axis != "ep":
            # tp x cp x pp x dp must remain the number of ranks, and ep divides replicas without changing it.
            if dp % 2:
                return
            dp //= 2
            values["dp"] = dp
        changed = _with(plan, "parallel", **values)
        # Counts of layers that were given fit the old number of stages only.
        yield f"{axis} {size}", _with(changed, "pipeline", layers=None) if axis == "pp" else changed


def _with(plan: Plan, part: str, **values: Any) -> Plan:
    return plan.model_copy(update={part: getattr(plan, part).model_copy(update=values)})
