"""Generated traces: operations and bytes by closed forms, checks of all ranks, bubbles of the schedules."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import armillary
from armillary.base.errors import InputError
from armillary.engine.common.timeline import Timeline
from armillary.platform.kernels import Compute
from armillary.platform.memory import LocalMemory, RemoteMemory
from armillary.platform.model import Npu, Platform
from armillary.platform.network import Dimension
from armillary.trace import CollectiveType, NodeType, Trace
from armillary.trace.check_ranks import check_trace
from armillary.trace.expand import expand
from armillary.workload.emit.serving import FIRST, NEXT
from armillary.workload.generate import generate
from armillary.workload.models import flops, load_model
from armillary.workload.models.decoder_parts import Attention, Experts, Mlp
from armillary.workload.models.schema import Decoder, Gemm, Model, Stack, StackLayer
from armillary.workload.plan.schema import (
    Data,
    ExpertLoad,
    Offload,
    Parallel,
    Pipeline,
    Plan,
    Serve,
)

TINY = Decoder(
    name="tiny", layers=4, hidden=64, vocabulary=512, context=32, tied=True, norm="rms", activation="swiglu",
    attention=Attention(heads=8, kv_heads=4), mlp=Mlp(size=128),
)  # fmt: skip
MIXED = TINY.model_copy(update={"experts": Experts(count=8, top_k=2, size=32, dense_first=1)})


def machine(npus: int, bandwidth: float = 1e12) -> Platform:
    """One switch of this many bytes per ns without latency, and memory outside; without limit for local memory."""
    npu = Npu(1e12, LocalMemory(1e21))
    memory = RemoteMemory("per-npu", bandwidth=100)
    network = (Dimension("switch", "Switch", npus, bandwidth, 0.0),) if npus > 1 else ()
    return Platform(network, npu, Compute("roofline"), remote_memory=memory)


def operations(trace: Trace) -> int:
    """Operations of all GEMMs of all ranks; kernels without have 1."""
    counts = np.bincount(trace.rank_graph, minlength=len(trace.graphs)).tolist()
    totals = [graph.ints("num_ops")[graph.ints("num_ops") > 1].sum() for graph in trace.graphs]
    return sum(int(total) * count for total, count in zip(totals, counts, strict=True))


PLANS: dict[str, tuple[Model, Plan]] = {
    "ddp": (TINY, Plan(ranks=4, batch=8)),
    "tp": (TINY, Plan(ranks=4, batch=8, parallel=Parallel(tp=4))),
    "tp without sequence": (TINY, Plan(ranks=4, batch=8, parallel=Parallel(tp=2, sequence=False))),
    "ring": (TINY, Plan(ranks=8, batch=4, parallel=Parallel(cp=4, tp=2), iterations=2)),
    "gathered context": (TINY, Plan(ranks=8, batch=4, parallel=Parallel(cp=4, context="all-gather"))),
    "pipeline": (TINY, Plan(ranks=8, batch=16, microbatch=2, parallel=Parallel(pp=4), recompute="full")),
    "interleaved": (
        TINY,
        Plan(ranks=4, batch=8, parallel=Parallel(pp=2), pipeline=Pipeline(schedule="interleaved", virtual=2)),
    ),
    "zero bubble": (
        TINY,
        Plan(ranks=4, batch=8, parallel=Parallel(pp=4), pipeline=Pipeline(schedule="zero-bubble")),
    ),
    "gpipe": (
        TINY,
        Plan(ranks=8, batch=8, parallel=Parallel(pp=4, tp=2), pipeline=Pipeline(schedule="gpipe"), iterations=2),
    ),
    "pipedream": (
        TINY,
        Plan(ranks=4, batch=8, parallel=Parallel(pp=2), pipeline=Pipeline(schedule="pipedream"), iterations=3),
    ),
    "zero-1": (TINY, Plan(ranks=8, batch=8, parallel=Parallel(tp=2), data=Data(sharding="zero-1"), iterations=2)),
    "zero-2": (TINY, Plan(ranks=4, batch=8, data=Data(sharding="zero-2"))),
    "zero-3": (TINY, Plan(ranks=4, batch=8, data=Data(sharding="zero-3"))),
    "fsdp": (TINY, Plan(ranks=8, batch=16, data=Data(sharding="fsdp"), parallel=Parallel(tp=2), iterations=2)),
    "held": (TINY, Plan(ranks=8, batch=8, parallel=Parallel(pp=2), data=Data(sharding="fsdp", reshard=False))),
    "hsdp": (TINY, Plan(ranks=8, batch=16, data=Data(sharding="hsdp", shard=4))),
    "experts": (MIXED, Plan(ranks=8, batch=8, parallel=Parallel(tp=2, ep=4, etp=1), data=Data(sharding="zero-1"))),
    "experts over tp": (MIXED, Plan(ranks=16, batch=16, parallel=Parallel(tp=2, ep=4, pp=2))),
    "uneven experts": (MIXED, Plan(ranks=8, batch=8, parallel=Parallel(ep=4), experts=ExpertLoad(skew=0.7))),
    "other order": (
        TINY,
        Plan(ranks=16, batch=16, parallel=Parallel(tp=2, pp=2, cp=2, order="pp-dp-ep-cp-tp")),
    ),
    "offload": (
        TINY,
        Plan(ranks=4, batch=8, offload=Offload(optimizer=1.0, weights=0.5, activations=0.5)),
    ),
    "fp8": (TINY, Plan(ranks=4, batch=8, parallel=Parallel(tp=2), numbers={"compute": "fp8"})),
    "resnet": (load_model("resnet-50"), Plan(ranks=4, batch=8, recompute="full")),
    "gnmt": (load_model("gnmt"), Plan(ranks=4, batch=8, parallel=Parallel(pp=2))),
    "dlrm": (load_model("dlrm-libra"), Plan(ranks=4, batch=8)),
    "parameter server": (
        load_model("resnet-50"),
        Plan(ranks=5, batch=8, data=Data(sharding="parameter-server")),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANS)
def test_operations_are_those_of_the_closed_form(name: str) -> None:
    model, plan = PLANS[name]
    wanted = flops(model, plan.batch, plan.sequence, recomputation=plan.recompute).training * plan.iterations
    assert operations(generate(model, plan)) == wanted


@pytest.mark.parametrize("name", PLANS)
def test_all_ranks_pass_the_checks(name: str) -> None:
    found = check_trace(expand(generate(*PLANS[name])))
    assert not [each for each in found.all if each.severity == "error"]


@pytest.mark.parametrize("name", PLANS)
def test_folded_ranks_take_as_long_as_each_on_its_own(name: str) -> None:
    trace = generate(*PLANS[name])
    platform = machine(trace.n_ranks, bandwidth=0.05)
    folded = armillary.simulate(trace, platform)
    alone = armillary.simulate(expand(trace), platform, fold=False)
    assert folded.finish[folded.rank_class].tolist() == alone.finish[alone.rank_class].tolist()


def equal_stages(stages: int) -> Stack:
    return Stack(name="equal", layers=[StackLayer(repeat=stages, gemm=Gemm(m=1000, n=1000, k=1000))])


def busy(result: Timeline) -> float:
    """Share of the step in which a stage computes, of the least busy one."""
    total = int(result.finish.max())
    shares = []
    for c, graph in enumerate(result.class_graph.tolist()):
        span = slice(int(result.node_ptr[c]), int(result.node_ptr[c + 1]))
        took = result.node_end[span] - result.node_start[span]
        shares.append(float(took[result.graphs[graph].kind == 1].sum()) / total)
    return min(shares)


@pytest.mark.parametrize(
    ("schedule", "stages", "microbatches", "virtual"),
    [
        ("gpipe", 4, 8, 1), ("gpipe", 3, 3, 1), ("1f1b", 4, 8, 1), ("1f1b", 3, 3, 1), ("1f1b", 4, 2, 1),
        ("interleaved", 4, 8, 2), ("interleaved", 2, 6, 4),
    ],
)  # fmt: skip
def test_bubbles_are_those_of_the_textbook(
    schedule: str, stages: int, microbatches: int, virtual: int
) -> None:
    plan = Plan(
        ranks=stages, batch=microbatches, parallel=Parallel(pp=stages), optimizer="none",
        pipeline=Pipeline(schedule=schedule, virtual=virtual),
    )  # fmt: skip
    result = armillary.simulate(generate(equal_stages(stages * virtual), plan), machine(stages))
    bubble = (stages - 1) / (virtual * microbatches + stages - 1)
    assert 1 - busy(result) == pytest.approx(bubble, abs=0.002)


def test_zero_bubble_and_pipedream_waste_less() -> None:
    times = {}
    for schedule in ("1f1b", "zero-bubble", "pipedream"):
        plan = Plan(
            ranks=4, batch=8, iterations=4, parallel=Parallel(pp=4), optimizer="none",
            pipeline=Pipeline(schedule=schedule),
        )  # fmt: skip
        times[schedule] = int(armillary.simulate(generate(equal_stages(4), plan), machine(4)).finish.max())
    # A step of 1F1B takes 11 forward and backward times; PipeDream fills all steps but the first.
    assert times["pipedream"] < times["zero-bubble"] < times["1f1b"]
    assert times["1f1b"] / times["pipedream"] == pytest.approx(4 * 11 / (4 * 8 + 3), rel=0.01)


def moved(trace: Trace, axis_set: str) -> Counter[str]:
    """Bytes of the collectives of an axis set by type, of the first class of ranks."""
    graph, total = trace.graphs[0], Counter[str]()
    codes, names = graph.strings("pg_name")
    for at in np.flatnonzero(graph.types == NodeType.COMM_COLL_NODE).tolist():
        if names[codes[at]] == axis_set:
            total[CollectiveType(int(graph.ints("comm_type")[at])).name] += int(graph.ints("comm_size")[at])
    return total


def test_tensor_parallel_bytes_follow_the_sharding() -> None:
    tokens, tp, element = 2 * 32, 4, 2
    plan = Plan(ranks=4, batch=2, microbatch=2, parallel=Parallel(tp=tp), optimizer="none")
    found = moved(generate(TINY, plan), "tp")
    whole = tokens * TINY.hidden * element
    # Per layer two gathers and two scatters forward, the same backward, and two gathers for gradients of weights;
    # the embedding scatters and its gradient is gathered; the head gathers, once more for its weights, and scatters.
    assert found["REDUCE_SCATTER"] == (4 * TINY.layers + 2) * whole
    assert found["ALL_GATHER"] == (6 * TINY.layers + 3) * whole // tp


def test_serving_reads_the_prompt_and_makes_tokens() -> None:
    plan = Plan(ranks=4, batch=4, parallel=Parallel(tp=2, pp=2), serve=Serve(prompt=16, outputs=5))
    trace = generate(TINY, plan)
    assert not [each for each in check_trace(expand(trace)).all if each.severity == "error"]
    names = Counter(trace.graphs[1].names())
    assert (names[FIRST], names[NEXT]) == (4, 16)
    parts = flops(TINY, 4, 16).parts
    prefill = generate(TINY, plan.model_copy(update={"serve": Serve(prompt=16, phase="prefill")}))
    head = 4 * 2 * TINY.hidden * TINY.vocabulary
    assert operations(prefill) == sum(parts.values()) - parts["head"] + head


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ranks": 16, "parallel": {"tp": 5}}, r"tp 5: expected a divisor of heads 32 \(nearest: 4\)"),
        (
            {"parallel": {"ep": 2, "etp": 16}},
            r"etp 16: expected etp 16 x ep 2 to divide .* = 8 \(nearest etp: 4\)",
        ),
        ({"parallel": {"ep": 3}}, r"ep 3: expected a divisor of experts 8 \(nearest: 2\)"),
        ({"ranks": 2_000_000_000}, r"ranks 2000000000: expected at most 16777216"),
        ({"batch": 2**31 - 8}, r"268435455 microbatches and .* \(nearest: \d+ microbatches\)"),
        ({"iterations": 10**9}, r"iterations 1000000000 make .* \(nearest: \d+ iterations\)"),
    ],
)
def test_impossible_plans_name_the_nearest_that_works(changes: dict[str, Any], message: str) -> None:
    plan = Plan.model_validate({"ranks": 8, "batch": 8} | changes)
    with pytest.raises(InputError, match=message):
        generate(load_model("mixtral-8x7b"), plan)


def test_what_has_no_effect_is_said_of_the_trace_and_of_its_run() -> None:
    experts = {"experts": {"dispatcher": "deepep"}, "sequence": 128}
    wish = {"ranks": 2, "batch": 8} | experts
    alone = generate(load_model("mixtral-8x7b"), Plan.model_validate(wish))
    (said,) = alone.about["without_effect"]
    assert said.startswith("experts.dispatcher deepep has no effect")
    network = [{"topology": "Switch", "size": 2, "bandwidth": "100 GB/s", "latency": "1 us"}]
    npu = {"peak": "1 TFLOP/s", "memory": {"bandwidth": "1 TB/s"}}
    platform = {"platform": {"network": network, "npu": npu, "compute": {"roofline": True}}}
    assert said in armillary.simulate(alone, platform).info["warnings"]
    shared = generate(load_model("mixtral-8x7b"), Plan.model_validate(wish | {"parallel": {"ep": 2}}))
    assert "without_effect" not in shared.about
