"""Footprints against a reference that allocates and frees one block after the other, and sizes by hand."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from armillary.workload.layers.layer import Layer
from armillary.workload.memory.advice import advise
from armillary.workload.memory.footprint import CATEGORIES, WORKSPACE, footprint, server, worst
from armillary.workload.memory.inference import serving
from armillary.workload.memory.outside import NOTHING, Outside, outside
from armillary.workload.memory.states import states
from armillary.workload.pipeline.partition import partition
from armillary.workload.pipeline.tasks import tasks
from armillary.workload.plan.ranks import rank_grid
from armillary.workload.plan.schema import Data, Numbers, Offload, Parallel, Pipeline, Plan

LAYER = Layer("layer", (), parameters={"dp+cp": 1000, "edp": 240}, saved=70, working=30, boundary=8, cache=11)
EMBEDDING = Layer("embedding", (), parameters={"dp+cp": 300}, saved=3, working=5, boundary=8)
HEAD = Layer("head", (), parameters={"dp+cp": 300}, saved=90, working=200)


def model(count: int) -> list[Layer]:
    """Return a small transformer."""
    return [EMBEDDING, *[LAYER] * count, HEAD]


def plan(**values) -> Plan:
    """Return a plan of 8 replicas."""
    return Plan(**{"ranks": 8, "batch": 32} | values)


def held(sharding: str = "ddp", **values) -> tuple[int, int, int]:
    """Return bytes of weights, gradients and optimizer states of a layer of 1000 and 240 parameters."""
    parallel = Parallel(ep=4) if sharding != "hsdp" else Parallel()
    data = Data(sharding=sharding, shard=2 if sharding == "hsdp" else None)
    made = plan(data=data, parallel=parallel, **values)
    found = states(LAYER, made, rank_grid(made))
    return found.weights, found.gradients, found.optimizer


def test_states_by_hand():
    """8 ranks share 1000 parameters, 2 share the 240 of experts under ep 4 (edp 2)."""
    assert held() == (2 * 1240, 4 * 1240, 12 * 1240)
    assert held("zero-1") == (2 * 1240, 4 * 1240, 12 * (125 + 120))
    assert held("zero-2") == (2 * 1240, 4 * 245, 12 * 245)
    assert held("zero-3") == (2 * 245, 4 * 245, 12 * 245)
    assert held("fsdp") == (4 * 245, 4 * 245, 8 * 245)
    assert held("hsdp") == (4 * 620, 4 * 620, 8 * 620)
    assert held("parameter-server") == (2 * 1240, 4 * 1240, 0)
    assert held(numbers=Numbers(compute="fp32")) == (4 * 1240, 4 * 1240, 8 * 1240)
    assert held(numbers=Numbers(gradients="bf16"), optimizer="momentum") == (2 * 1240, 2 * 1240, 8 * 1240)
    assert held(optimizer="sgd", offload=Offload(optimizer=0.75, weights=0.5)) == (1240, 4 * 1240, 1240)


def test_rows_of_tables_keep_no_gradients():
    """They are in no axis set: updated after each microbatch, with the moments of each row."""
    made = plan(numbers=Numbers(compute="fp32"))
    found = states(Layer("tables", (), parameters={"dp+cp": 10, "": 1000}), made, rank_grid(made))
    assert (found.weights, found.gradients, found.optimizer) == (4 * 1010, 4 * 10, 8 * 1010)


def test_gathered_layers_and_shards_of_gradients():
    """FSDP of 8: at most two whole layers, and the gradients of one on their way; shards appear with the first B."""
    made = plan(data=Data(sharding="fsdp"), batch=16)
    found = footprint(partition(model(2), made), made, 0)
    whole, ends = 2 * 1240, 2 * 300
    line = found.timeline["communication"].tolist()
    assert line[:4] == [ends + whole, 2 * whole, whole + ends, ends]
    assert line[4:8] == [
        ends + whole + 6 * 300,
        2 * whole + 6 * 1240,
        whole + ends + 6 * 1240,
        ends + 6 * 300,
    ]
    layer, end = 4 * (125 + 30), 4 * 38
    assert found.timeline["gradients"].tolist()[:9] == [
        0, 0, 0, 0, end, end + layer, end + 2 * layer, 2 * end + 2 * layer, 2 * end + 2 * layer,
    ]  # fmt: skip


@given(
    schedule=st.sampled_from(["gpipe", "1f1b", "interleaved", "zero-bubble"]),
    pp=st.sampled_from([1, 2, 4]),
    virtual=st.integers(1, 3),
    count=st.integers(1, 4),
    data=st.data(),
)
def test_activations_match_a_heap(schedule, pp, virtual, count, data):
    virtual = virtual if schedule == "interleaved" else 1
    made = plan(
        parallel=Parallel(pp=pp, dp=8 // pp),
        batch=8 // pp * count * pp,
        pipeline=Pipeline(schedule=schedule, virtual=virtual),
    )
    stages = partition(model(pp * virtual + data.draw(st.integers(0, 5))), made)
    stage = data.draw(st.integers(0, pp - 1))
    found = footprint(stages, made, stage)
    heap: dict[tuple[int, int, int], int] = {}
    point = 0
    order = tasks(schedule, pp, virtual, count * pp)[stage]
    frees = "W" if schedule == "zero-bubble" else "B"
    moving = found.timeline["activations"] + found.timeline["logits"]
    for index, task in enumerate(order):
        layers = list(enumerate(stages[task.chunk * pp + stage]))
        for place, layer in layers if task.kind == "F" else layers[::-1]:
            block = (task.microbatch, task.chunk, place)
            if task.kind == "F":
                heap[block] = layer.saved
            assert moving[point] == sum(heap.values())
            assert found.task[point] == index and found.layer[point] == layer.name
            assert found.timeline["working"][point] == layer.working
            if task.kind == frees:
                del heap[block]
            point += 1
    assert not heap and moving[point:].tolist() == [0]
    assert found.peak == max(sum(found.timeline[c][i] for c in CATEGORIES) for i in range(point + 1))


def test_the_first_stage_holds_most_unless_the_head_does():
    layers = [EMBEDDING, *[LAYER] * 8, Layer("head", (), parameters={"dp+cp": 300})]
    made = plan(parallel=Parallel(pp=4), batch=16)
    stages = partition(layers, made)
    every = [footprint(stages, made, stage).needed for stage in range(4)]
    assert worst(stages, made).needed == max(every) == every[0]
    stages[-1][-1] = Layer("head", (), parameters={"dp+cp": 300}, working=10**6)
    found = worst(stages, made)
    assert found.stage == 3 and found.where == "forward of head, microbatch 0"


def test_pipedream_stashes_weights():
    made = plan(parallel=Parallel(pp=4), pipeline=Pipeline(schedule="pipedream"), batch=16, iterations=2)
    stages = partition(model(4), made)
    weights = [int(footprint(stages, made, stage).timeline["weights"][0]) for stage in range(4)]
    assert weights == [4 * 2 * 1540, 3 * 2 * 1240, 2 * 2 * 1240, 2 * 1540]


def test_allowances_are_apart():
    made = plan(batch=8)
    found = footprint([model(2)], made, 0, fragmentation=0.1, outside=Outside(10**6, 10**5))
    at = found.at_peak
    assert at["fragmentation"] == -(-found.peak // 10) and (at["context"], at["nccl"]) == (10**6, 10**5)
    assert found.reserved == found.peak + at["fragmentation"]
    assert found.needed == found.reserved + 10**6 + 10**5 == sum(at.values())


def test_communicators_have_buffers():
    """One per set of ranks: of 16 ranks tp, pp, replicas and all; with experts their ranks and their replicas."""
    one = outside(plan(), rank_grid(plan()))
    assert one.context > 0 and one.nccl > 0
    made = plan(ranks=16, parallel=Parallel(tp=2, pp=2))
    assert outside(made, rank_grid(made)).nccl == 4 * one.nccl
    made = plan(ranks=16, parallel=Parallel(tp=2, pp=2, ep=2))
    assert outside(made, rank_grid(made)).nccl == 6 * one.nccl
    alone = plan(ranks=1)
    assert outside(alone, rank_grid(alone)).nccl == 0


def test_each_shape_of_a_weight_has_one_dummy_gradient():
    """In bf16, of the shapes of a rank; none where other kernels add gradients up, and none with FSDP."""
    shaped = [
        Layer("a", (), shapes=frozenset({(10, 20), (20, 10)})),
        Layer("b", (), shapes=frozenset({(10, 20)})),
    ]
    found = footprint([shaped], plan(), 0)
    assert found.at_peak["buffers"] == 2 * WORKSPACE + 2 * (200 + 200)
    assert footprint([shaped], plan(data=Data(sharding="fsdp")), 0).at_peak["buffers"] == WORKSPACE


def test_low_precision_weights_are_kept_as_they_are_and_transposed():
    low = [Layer("a", (), parameters={"dp+cp": 100}, low=80)]
    for compute, each in (("bf16", 0), ("fp8", 2), ("fp4", 1.125)):
        held = footprint([low], plan(numbers=Numbers(compute=compute)), 0).at_peak["weights"]
        assert held == 2 * 100 + each * 80


def test_the_backward_pass_frees_as_it_goes():
    """A layer may need more beyond what it keeps in one pass than in the other."""
    layers = [Layer("layer", (), saved=70, working=30, back=50)]
    line = footprint([layers], plan(batch=8), 0).timeline["working"].tolist()
    assert line == [30, 50, 0]


def test_offloaded_activations_leave_what_is_on_its_way():
    made = plan(batch=32, pipeline=Pipeline(schedule="gpipe"), offload=Offload(activations=1.0))
    found = footprint([model(3)], made, 0)
    assert not found.timeline["activations"].any()
    assert found.timeline["communication"].tolist()[:5] == [73, 140, 140, 160, 160]


def test_serving_holds_weights_and_the_cache():
    made = plan(parallel=Parallel(pp=2))
    found = serving(partition(model(4), made), made, 0, batches=3, fragmentation=0, outside=NOTHING)
    assert found.at_peak == {
        "weights": 2 * (300 + 2 * 1240), "cache": 3 * 2 * 11, "working": 30, "communication": 16,
        "fragmentation": 0, "context": 0, "nccl": 0,
    }  # fmt: skip


def test_parameter_servers():
    """6 workers hold no optimizer; 2 servers share 1540 parameters in fp32, and buckets of 1000 B."""
    data = Data(sharding="parameter-server", servers=2, bucket="1000 B", overlap=False)
    made = plan(data=data, batch=12, parallel=Parallel(dp=6))
    worker = footprint([[EMBEDDING, LAYER]], made, 0)
    assert worker.peak == (2 + 4) * 1540 + 73 + 30 + 1000 + 2 * WORKSPACE and len(worker.tasks) == 4
    found = server([EMBEDDING, LAYER], made)
    assert found.at_peak["weights"] == 4 * 770 and found.at_peak["optimizer"] == 8 * 770
    assert found.peak == (4 + 4 + 8) * 770 + 2 * 500


def test_advice():
    def layers_of(each: Plan) -> list[Layer]:
        saved = {"none": 70, "selective": 60, "full": 10}[each.recompute] * each.microbatch
        tp = each.parallel.tp
        return [Layer("layer", (), parameters={"dp+cp": 1000 // tp}, saved=saved * 10 // tp)] * 4

    made, always = plan(microbatch=4), 2 * WORKSPACE
    assert advise(made, 10**9, layers_of).fits and not advise(made, 10**9, layers_of).changes
    found = advise(made, always + 75_000, layers_of, fragmentation=0, outside=NOTHING)
    assert found.footprint.needed == always + 72_000 + 4 * 2800 and not found.fits
    fitting = {change.text: change.needed - always for change in found.fitting}
    assert fitting["recompute full"] == 72_000 + 4 * 400
    assert fitting["microbatch 1"] == 72_000 + 4 * 700
    assert fitting["tp 2"] == (found.footprint.needed - always) // 2
    assert "microbatch 2" in {change.text for change in found.changes} - set(fitting)
    assert all(change.needed < found.footprint.needed for change in found.changes)
    assert found.fitting[-1].plan != made
    tight = advise(made, 1, layers_of)
    assert not tight.fitting and len(tight.changes) > 5


def test_timeline_is_whole():
    made = plan(batch=8)
    found = footprint([model(1)], made, 0)
    assert tuple(found.timeline) == CATEGORIES and found.name(len(found.total) - 1) == "optimizer step"
    assert found.total.dtype == np.int64
