"""A made-up sweep of a large language model: 405B parameters on 16,384 NPUs, with what such a sweep rejects."""

from __future__ import annotations

import itertools
import random
from types import SimpleNamespace

from armillary.explore.sweep.point import Row
from armillary.explore.views.columns import Axis, Objective

AXES = (
    Axis("tp", (1, 2, 4, 8, 16)),
    Axis("pp", (1, 2, 4, 8, 16, 32)),
    Axis("microbatch", (1, 2, 4)),
    Axis("virtual", (1, 2, 4)),
    Axis("schedule", ("1f1b", "interleaved", "zero-bubble")),
    Axis("sharding", ("zero-1", "zero-3")),
    Axis("bandwidth", ("50 GB/s", "100 GB/s", "200 GB/s", "400 GB/s")),
    Axis("recompute", ("none", "selective")),
)
OBJECTIVES = (Objective("step_time", "less"), Objective("headroom", "more"))
NPUS, PARAMETERS, CAPACITY, TOKENS = 16_384, 405e9, 80 * 2**30, 2048 * 8192


def sweep(objectives: int = 1, axes: tuple[Axis, ...] = AXES) -> SimpleNamespace:
    """Return what views ask of a sweep."""
    return SimpleNamespace(
        space=SimpleNamespace(axes=axes), objectives=OBJECTIVES[:objectives], path="405b.yaml"
    )


def rows(count: int = 20_000, seed: int = 1) -> list[Row]:
    """Return `count` rows, at most the 11,520 of the space, the same for the same seed."""
    chance = random.Random(seed)
    every = list(itertools.product(*(axis.values for axis in AXES)))
    every = [point for point in every if point[1] > 1 or point[3] == 1]  # virtual: when pp > 1
    chosen = sorted(chance.sample(range(len(every)), min(count, len(every))))
    return [_row(number, every[which], chance) for number, which in enumerate(chosen)]


def _row(number: int, point: tuple, chance: random.Random) -> Row:
    tp, pp, microbatch, virtual, schedule, sharding, bandwidth, recompute = point
    values = {axis.name: value for axis, value in zip(AXES, point, strict=True)}
    if pp == 1:
        del values["virtual"]
    key = f"{number:032x}"

    def rejected(reason: str, **measures: float) -> Row:
        return Row(number, values, key, "rejected", reason, measures, 0.001)

    dp = NPUS // tp // pp
    microbatches = 2048 // dp // microbatch
    if microbatches < 1:
        return rejected(f"batch 2048 is less than {dp} replicas of {microbatch} samples")
    if virtual > 1 and schedule == "zero-bubble":
        return rejected("schedule zero-bubble has no virtual stages")
    if virtual * pp > 126:
        return rejected(f"126 layers are not {virtual * pp} stages")
    share = PARAMETERS / tp / pp
    states = (
        16 * share / (dp if sharding == "zero-3" else 1)
        if sharding != "zero-1"
        else 4 * share + 12 * share / dp
    )
    kept = {"none": 34, "selective": 10, "full": 2}[recompute]
    memory = states + kept * 8192 * 16384 * microbatch * 126 / pp / tp * min(pp, microbatches)
    if memory > CAPACITY:
        text = f"memory: {memory / 2**30:.1f} GiB needed, an NPU has 80 GiB"
        return rejected(text, memory=memory, headroom=CAPACITY - memory)
    if chance.random() < 0.002:
        return Row(number, values, key, "failed", f"ranks 0 to {tp - 1} wait for rank {tp}", {}, 0.4)
    if chance.random() < 0.001:
        return Row(number, values, key, "timeout", "more than 60 s", {}, 60.0)
    compute = 6 * PARAMETERS * TOKENS / NPUS / 989e12 / (0.62 if microbatch > 1 else 0.55)
    compute *= {"none": 1.0, "selective": 1.03, "full": 1.3}[recompute] * (1 + 0.02 * tp)
    gigabytes = float(str(bandwidth).split()[0])
    slow = 900 if tp <= 8 else gigabytes
    communication = 126 / pp * 8 * microbatches * microbatch * 8192 * 16384 * 2 * (tp - 1) / tp / (slow * 1e9)
    communication += (3 if sharding == "zero-3" else 2) * 2 * share / (gigabytes * 1e9) * 0.5
    bubble = (pp - 1) / (microbatches * virtual) * (0.4 if schedule == "zero-bubble" else 1)
    idle = bubble * compute
    waiting = compute * 0.01 * chance.random()
    step = compute + communication + idle + waiting
    price = NPUS * (30_000 + 12 * gigabytes)
    hour = price / 4 / 8760
    return Row(
        number,
        values,
        key,
        "ok",
        "",
        {
            "step_time": step,
            "tokens_per_second": TOKENS / step,
            "samples_per_second": 2048 / step,
            "flops_per_npu": 6 * PARAMETERS * TOKENS / NPUS / step,
            "mfu": 6 * PARAMETERS * TOKENS / NPUS / step / 989e12,
            "npus": NPUS,
            "memory": memory,
            "headroom": CAPACITY - memory,
            "compute": compute,
            "communication": communication,
            "waiting": waiting,
            "idle": idle,
            "price": price,
            "price_per_hour": hour,
            "cost_per_token": hour / 3600 * step / TOKENS,
        },
        0.02,
    )
