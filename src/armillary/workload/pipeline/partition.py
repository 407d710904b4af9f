"""Division of a model into pipeline stages."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from armillary.base.errors import InputError
from armillary.workload.layers.layer import Layer
from armillary.workload.layers.shard import divisors
from armillary.workload.plan.schema import Plan

EMBEDDING = "embedding"
HEAD = "head"


def partition(layers: Sequence[Layer], plan: Plan) -> list[list[Layer]]:
    """Divide a model into virtual stages, pp x virtual of them in its order; stage k runs on pipeline rank k % pp.

    An embedding goes with the first stage and a head with the last; ``pipeline.layers`` counts the layers between.
    Without it such a model is divided by count: where there is a remainder, the last stage, then the first, then the
    second last and so on have one layer fewer, for they have head and embedding besides (Llama 3, arXiv 2407.21783,
    §3.3.2, takes one layer off both ends). A model with neither is divided so that the most FLOPs of a stage are as
    few as they can be.

    Raises:
        InputError: the counts are not as many as the stages, do not add up to the model's layers, or leave a stage
            empty; or there are more stages than layers.
    """
    first = int(layers[0].name == EMBEDDING)
    last = len(layers) - int(layers[-1].name == HEAD)
    body = layers[first:last]
    stages = plan.parallel.pp * plan.pipeline.virtual
    if plan.pipeline.layers is not None:
        counts = _given(plan.pipeline.layers, len(body), plan)
    elif len(body) < stages:
        raise InputError(_too_many(len(body), plan))
    # With embedding or head, count decides: layers of a transformer weigh the same, and the ends have more to do.
    elif len(body) < len(layers):
        counts = even(len(body), stages)
    else:
        counts = balanced([layer.flops for layer in body], stages)
    ends = list(accumulate(counts, initial=0))
    found = [list(body[a:b]) for a, b in pairwise(ends)]
    found[0] = [*layers[:first], *found[0]]
    found[-1] += layers[last:]
    if [] in found:
        raise InputError(
            f"pipeline.layers: stage {found.index([])} has none, expected at least 1 (nearest: "
            f"{_filled_up(counts, [not stage for stage in found])})"
        )
    return found


def _filled_up(counts: list[int], empty: list[bool]) -> list[int]:
    """Return the counts with one more layer in each empty stage, taken from the largest stages."""
    found = [count + lacks for count, lacks in zip(counts, empty, strict=True)]
    for _ in range(sum(empty)):
        found[found.index(max(found))] -= 1
    return found


def even(layers: int, stages: int) -> list[int]:
    """Return counts as equal as possible, the smaller ones at both ends, starting with the last stage."""
    least, extra = divmod(layers, stages)
    if not extra:
        return [least] * stages
    short = stages - extra
    front, back = short // 2, short - short // 2
    return [least] * front + [least + 1] * extra + [least] * back


def balanced(weights: Sequence[int], stages: int) -> list[int]:
    """Return counts of consecutive layers, at least one per stage, that minimise the largest sum of weights."""
    if not any(weights):
        weights = [1] * len(weights)
    # Bisection on the limit: a greedy filling shows whether one works, and more room never hurts.
    low, high = max(weights), sum(weights)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _filled(weights, stages, middle) else (middle + 1, high)
    counts = _filled(weights, stages, low)
    assert counts is not None
    return counts


def _filled(weights: Sequence[int], stages: int, limit: int) -> list[int] | None:
    """Return counts whose sums of weights stay within the limit, or None."""
    counts = [0]
    room = limit
    for index, weight in enumerate(weights):
        # As many layers are left as stages without one: each must begin a stage, or some stay empty.
        must = len(weights) - index == stages - len(counts)
        if counts[-1] and (must or weight > room):
            counts.append(0)
            room = limit
        counts[-1] += 1
        room -= weight
    return counts if len(counts) == stages and room >= 0 else None


def _given(counts: list[int], layers: int, plan: Plan) -> list[int]:
    pp, virtual = plan.parallel.pp, plan.pipeline.virtual
    if len(counts) != pp * virtual:
        raise InputError(
            f"pipeline.layers: {len(counts)} counts, expected {pp * virtual} (pp {pp} x virtual {virtual})"
        )
    if over := sum(counts) - layers:
        # Proposes a change of one stage only: less in the largest, or more in the last.
        at = max(range(len(counts)), key=counts.__getitem__) if over > 0 else len(counts) - 1
        hint = f" (nearest: {counts[at] - over} instead of {counts[at]} in stage {at})"
        raise InputError(
            f"pipeline.layers: a sum of {sum(counts)}, expected the model's {layers} layers"
            f"{hint if counts[at] >= over else ''}"
        )
    return counts


def _too_many(layers: int, plan: Plan) -> str:
    pp, virtual = plan.parallel.pp, plan.pipeline.virtual
    text = (
        f"pp {pp} x virtual {virtual} = {pp * virtual} stages: expected at most the model's {layers} layers"
    )
    if virtual > 1 and layers >= pp:
        return f"{text} (nearest virtual: {layers // pp})"
    return f"{text} (nearest pp: {max(d for d in divisors(pp) if d == 1 or d * virtual <= layers)})"
