"""Graphs of a stage: what replicas communicate, by the algebra of each way to shard, and in which order."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from armillary.trace import CollectiveType, Graph, check
from armillary.workload.emit.training import Pieces, Stage
from armillary.workload.generate import generate
from armillary.workload.layers.layer import Layer, Step
from armillary.workload.models import load_model
from armillary.workload.pipeline.tasks import tasks
from armillary.workload.plan.ranks import rank_grid
from armillary.workload.plan.schema import Data, Offload, Parallel, Pipeline, Plan
from armillary.workload.totals import totals

PARAMETERS = 1001
LAYERS, MICROBATCHES, DP = 3, 4, 8


def layer(name: str, parameters: int = PARAMETERS, partial: int = 0) -> Layer:
    forward = (Step("up", 10, 5), Step("gather", collective=CollectiveType.ALL_GATHER, axes="tp", size=7))
    backward = (
        Step("d up", 10, 5),
        Step("scatter", collective=CollectiveType.REDUCE_SCATTER, axes="tp", size=7),
    )
    weight = (Step("w up", 10, 5, after=("d up",)),)
    return Layer(name, forward, backward, weight, {"dp+cp": parameters}, partial, saved=64, boundary=32)


def graph(
    sharding: str = "ddp",
    schedule: str = "1f1b",
    stages: int = 1,
    stage: int = 0,
    partial: int = 0,
    **more: object,
) -> Graph:
    pipeline = more.pop("pipeline", Pipeline(schedule=schedule))
    data = more.pop("data", Data(sharding=sharding, bucket="10 MB", shard=4 if sharding == "hsdp" else None))
    plan = Plan(
        ranks=2 * stages * DP, batch=MICROBATCHES * DP, parallel=Parallel(tp=2, pp=stages),
        pipeline=pipeline, data=data, **more,
    )  # fmt: skip
    count = MICROBATCHES * (plan.iterations if schedule == "pipedream" else 1)
    chunk = list(enumerate([layer(f"layer {number}", partial=partial) for number in range(LAYERS)]))
    order = tasks(schedule, stages, 1, count)[stage]
    return Stage(plan, rank_grid(plan), [chunk], order, stage, Pieces(), [32] * stages, 0).graph()


def moved(found: Graph, axis_set: str) -> Counter[str]:
    codes, names = found.strings("pg_name")
    total: Counter[str] = Counter()
    for at in (codes == names.index(axis_set)).nonzero()[0].tolist() if axis_set in names else ():
        kind = CollectiveType(int(found.ints("comm_type")[at])).name
        total[kind] += int(found.ints("comm_size")[at])
        total[f"{kind} calls"] += 1
    return total


def test_replicas_add_up_every_gradient_once() -> None:
    assert moved(graph(), "dp+cp") == {"ALL_REDUCE": 4 * LAYERS * PARAMETERS, "ALL_REDUCE calls": 1}


def test_buckets_divide_the_gradients() -> None:
    found = moved(graph(data=Data(bucket=f"{4 * PARAMETERS} B")), "dp+cp")
    assert found == {"ALL_REDUCE": 4 * LAYERS * PARAMETERS, "ALL_REDUCE calls": LAYERS}


@pytest.mark.parametrize(("sharding", "times"), [("zero-1", 1), ("zero-2", MICROBATCHES)])
def test_sharded_optimizers_scatter_gradients_and_gather_weights(sharding: str, times: int) -> None:
    part = -(-LAYERS * PARAMETERS // DP)
    found = moved(graph(sharding), "dp+cp")
    assert found["REDUCE_SCATTER"] == times * part * DP * 4
    assert found["ALL_GATHER"] == part * 2
    assert "ALL_REDUCE" not in found


def test_sharded_weights_are_gathered_for_each_use() -> None:
    found = moved(graph("fsdp"), "dp+cp")
    part = -(-PARAMETERS // DP)
    # The last layer is used twice in a row, by the forward and the backward pass; it and the first stay gathered.
    uses = MICROBATCHES * (2 * LAYERS - 1) - (MICROBATCHES - 1)
    assert found["ALL_GATHER"] == uses * part * 2
    assert found["REDUCE_SCATTER"] == MICROBATCHES * LAYERS * part * DP * 4


def test_sharded_weights_may_be_held_for_a_step() -> None:
    found = moved(graph("fsdp", data=Data(sharding="fsdp", reshard=False), iterations=2), "dp+cp")
    part = -(-PARAMETERS // DP)
    assert found["ALL_GATHER"] == 2 * LAYERS * part * 2
    assert found["REDUCE_SCATTER"] == 2 * LAYERS * part * DP * 4


@pytest.mark.parametrize("reshard", [False, True])
def test_copies_stand_between_each_gather_and_its_use_and_before_each_reduction(reshard: bool) -> None:
    plain, found = (
        graph("fsdp", data=Data(sharding="fsdp", reshard=reshard, copies=copies)) for copies in (False, True)
    )
    names = found.names()
    assert names.count("copy weights") == names.count("weights") == plain.names().count("weights")
    assert names.count("copy gradients") == names.count("gradients") == plain.names().count("gradients")
    ptr, parent = found.parents()
    for at, name in enumerate(names):
        before = {names[each] for each in parent[ptr[at] : ptr[at + 1]].tolist()}
        assert name != "copy weights" or "weights" in before
        assert name != "gradients" or "copy gradients" in before
    # A shard is cast to bf16 and put into a buffer, and all of it copied out; gradients are read as bf16, kept as fp32.
    part, size = -(-PARAMETERS // DP), found.ints("tensor_size")
    sizes = {name: {int(size[at]) for at, each in enumerate(names) if each == name} for name in set(names)}
    assert sizes["copy weights"] == {part * 10 + PARAMETERS * 4} and sizes["copy gradients"] == {
        PARAMETERS * 6
    }


def test_hybrid_shards_are_added_up_by_replicas() -> None:
    found = graph("hsdp")
    own = moved(found, "fsdp")["REDUCE_SCATTER"] // 4
    assert moved(found, "replicate")["ALL_REDUCE"] == own
    assert not moved(found, "dp+cp")


@pytest.mark.parametrize("prefetch", [0, 1, 2])
def test_gathers_run_ahead_as_far_as_told(prefetch: int) -> None:
    found = graph("fsdp", data=Data(sharding="fsdp", prefetch=prefetch, limit=3))
    names = found.names()
    gathers = [at for at, name in enumerate(names) if name == "weights"]
    ptr, parent = found.parents()
    kernels = [at for at in range(found.n_nodes) if names[at] == "up"]
    before = [
        max((p for p in parent[ptr[g] : ptr[g + 1]].tolist() if names[p] == "up"), default=-1)
        for g in gathers
    ]
    # The gather for the third forward use waits for the kernel `prefetch + 1` uses earlier.
    assert before[2] == (kernels[1 - prefetch] if prefetch < 2 else -1)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zero-bubble", "pipedream"])
@pytest.mark.parametrize("stage", [0, 1, 2])
def test_kernels_keep_the_order_of_the_schedule(schedule: str, stage: int) -> None:
    found = graph(schedule=schedule, stages=3, stage=stage, iterations=2)
    assert [each for each in check(found) if "peer" not in each.message] == []
    names = found.names()
    micro = found.ints("micro_batch")
    kernels = [at for at, name in enumerate(names) if name in ("up", "d up", "w up")]
    ptr, parent = found.parents()
    # Of different microbatches, a kernel follows the one before it, directly or by way of others.
    for one, two in pairwise(kernels):
        if micro[one] != micro[two]:
            assert max(parent[ptr[two] : ptr[two + 1]].tolist()) >= one or names[two] == "w up"


def ancestors(found: Graph, last: int) -> set[int]:
    ptr, parent = found.parents()
    seen, todo = set(), [last]
    while todo:
        for each in parent[ptr[node := todo.pop()] : ptr[node + 1]].tolist():
            if each not in seen:
                seen.add(each)
                todo.append(each)
    return seen


@pytest.mark.parametrize("sharding", ["ddp", "zero-1", "zero-2", "fsdp", "hsdp"])
@pytest.mark.parametrize("schedule", ["1f1b", "zero-bubble"])
@pytest.mark.parametrize("overlap", [False, True])
def test_the_optimizer_waits_for_all_gradients(sharding: str, schedule: str, overlap: bool) -> None:
    found = graph(sharding, schedule, pipeline=Pipeline(schedule=schedule, overlap=overlap))
    names = found.names()
    before = ancestors(found, names.index("optimizer"))
    assert {at for at, name in enumerate(names) if name == "w up"} <= before


@pytest.mark.parametrize("overlap", [False, True])
def test_weights_wait_for_the_gradients_they_are_made_from(overlap: bool) -> None:
    found = graph(stages=3, pipeline=Pipeline(schedule="zero-bubble", overlap=overlap))
    names, micro, layers = found.names(), found.ints("micro_batch"), found.ints("layer")
    made = {(micro[at], layers[at]): at for at, name in enumerate(names) if name == "d up"}
    for at, name in enumerate(names):
        if name == "w up":
            assert made[micro[at], layers[at]] in ancestors(found, at)


PARTIAL = 17


@pytest.mark.parametrize(
    ("sharding", "calls", "times"),
    [("ddp", 1, 1), ("zero-1", 1, 1), ("zero-2", 1, 1), ("fsdp", LAYERS * MICROBATCHES, MICROBATCHES)],
)
def test_partial_gradients_are_summed_over_tp(sharding: str, calls: int, times: int) -> None:
    found = graph(sharding, partial=PARTIAL)
    total = moved(found, "tp")
    assert total["ALL_REDUCE"] == 4 * LAYERS * PARTIAL * times
    assert total["ALL_REDUCE calls"] == calls
    sums = {at for at, name in enumerate(found.names()) if name == "partial gradients"}
    assert sums <= ancestors(found, found.names().index("optimizer"))


def test_virtual_stages_of_one_rank_hand_on_without_messages() -> None:
    model = load_model("megatron-22b").model_copy(update={"layers": 4})
    wish = {"ranks": 2, "batch": 4, "sequence": 2048, "parallel": {"tp": 2}}
    one, two = (
        generate(
            model, Plan.model_validate(wish | {"pipeline": {"schedule": "interleaved", "virtual": virtual}})
        )
        for virtual in (1, 2)
    )
    assert [problem for found in two.graphs for problem in check(found)] == []
    assert not any("send" in name for name in two.graphs[0].names())
    assert totals(one).flops == totals(two).flops
    for a, b in (
        (ancestors(each.graphs[0], each.graphs[0].names().index("optimizer")) for each in (one, two)),
    ):
        assert len(a) == len(b)


def test_messages_between_stages_have_partners() -> None:
    ends = Counter()
    for stage in range(3):
        found = graph(stages=3, stage=stage)
        for at, name in enumerate(found.names()):
            if name.startswith(("send", "receive")):
                source, destination = found.ints("comm_src", 0)[at], found.ints("comm_dst", 0)[at]
                key = ((stage + source) % 3, (stage + destination) % 3, int(found.ints("comm_tag")[at]))
                ends[key] += 1 if name.startswith("send") else -1
    assert len(ends) == 4
    assert not any(ends.values())


def test_optimizer_states_come_from_memory_outside() -> None:
    found = graph(offload=Offload(optimizer=0.5, activations=1.0))
    sizes = dict(zip(found.names(), found.ints("tensor_size").tolist(), strict=True))
    assert sizes["optimizer states"] == LAYERS * PARAMETERS * 12 // 2
    assert Counter(found.names())["load activations"] == LAYERS * MICROBATCHES
