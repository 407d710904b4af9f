"""Times of tokens: by hand, and by closed forms of what kernels read and compute."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import armillary
from armillary.engine.common.timeline import Timeline
from armillary.platform.kernels import Compute
from armillary.platform.memory import LocalMemory
from armillary.platform.model import Npu, Platform
from armillary.platform.network import Dimension
from armillary.report import ServingTimes, serving_times, to_json
from armillary.report.serving import serving_lines
from armillary.workload.emit.serving import FIRST, NEXT
from armillary.workload.generate import generate
from armillary.workload.models import flops, parameters
from armillary.workload.models.decoder_parts import Attention, Mlp
from armillary.workload.models.schema import Decoder
from armillary.workload.plan.schema import Parallel, Plan, Serve

DENSE = Decoder(
    name="dense", layers=4, hidden=512, vocabulary=4096, context=4096, tied=False, norm="rms", activation="swiglu",
    attention=Attention(heads=8, kv_heads=4), mlp=Mlp(size=1408),
)  # fmt: skip
CACHED = DENSE.layers * 2 * 4 * 64 * 2
"""Bytes of the keys and values of a token: 4 heads of 64 elements in bf16."""
BIG = 1e30


def machine(npus: int, *, peak: float = BIG, memory: float = BIG, bandwidth: float = 1e12) -> Platform:
    """One switch without latency; operations and bytes per second of an NPU."""
    npu = Npu(peak, LocalMemory(memory / 1e9))
    network = (Dimension("switch", "Switch", npus, bandwidth, 0.0),) if npus > 1 else ()
    return Platform(network, npu, Compute("roofline"))


def times(plan: Plan, platform: Platform, model: Decoder = DENSE) -> ServingTimes:
    found = serving_times(armillary.simulate(generate(model, plan), platform))
    assert found is not None
    return found


def one(prompt: int, outputs: int = 1, batch: int = 1, **serve: str) -> Plan:
    """A plan for one NPU and one microbatch."""
    return Plan(ranks=1, batch=batch, microbatch=batch, serve=Serve(prompt=prompt, outputs=outputs, **serve))


@pytest.mark.parametrize("batch", [1, 4])
def test_decode_reads_weights_and_cache(batch: int) -> None:
    """All but the table of tokens, of which only rows are read; activations of a few tokens come on top."""
    found = times(one(1000, 3, batch, phase="decode"), machine(1, memory=1e9))
    weights = 2 * (parameters(DENSE).total - DENSE.vocabulary * DENSE.hidden)
    read = weights + batch * CACHED * 1002
    assert read < found.last < read * (1 + 0.01 * batch)
    more = times(one(2000, 3, batch, phase="decode"), machine(1, memory=1e9))
    assert more.last - found.last == batch * CACHED * 1000
    assert found.decode is not None and found.decode.memory == 1 == found.decode.memory_kernels
    assert found.first is None is found.prefill and found.rate == pytest.approx(
        batch * 1e9 / found.last, rel=0.001
    )


def test_the_first_token_takes_the_operations_of_the_prompt() -> None:
    """A little more than linear: attention's share is quadratic; the head works on one token."""
    took = {}
    for prompt in (64, 128):
        found = times(one(prompt, phase="prefill"), machine(1, peak=1e9))
        parts = flops(DENSE, 1, prompt).parts
        operations = sum(parts.values()) - parts["head"] * (prompt - 1) // prompt
        assert found.first is not None and found.prefill is not None
        assert found.first == pytest.approx((operations,) * 3, rel=1e-6)
        assert found.each is None is found.decode
        assert found.prefill.compute > 0.999
        assert found.prompt_rate == pytest.approx(prompt / (found.first[0] / 1e9))
        took[prompt] = found.first[0]
    assert 1.95 < took[128] / took[64] < 2.05


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_as_many_microbatches_as_stages_keep_them_busy(count: int) -> None:
    small = DENSE.model_copy(update={"vocabulary": 8})
    plan = Plan(
        ranks=4, batch=count, parallel=Parallel(pp=4), serve=Serve(prompt=8, outputs=64, phase="decode")
    )
    found = times(plan, machine(4, memory=1e9), small)
    alone = times(one(8, 64, phase="decode"), machine(1, memory=1e9), small)
    busy = min(1, count / 4)
    assert found.decode is not None
    assert found.decode.memory == pytest.approx(busy, abs=0.03)
    assert found.decode.others == pytest.approx(1 - busy, abs=0.03)
    assert found.last == pytest.approx(alone.last * max(1, count / 4), rel=0.03)
    assert found.rate == pytest.approx(alone.rate * min(4, count), rel=0.05)


def test_waiting_for_prompts_of_others_counts() -> None:
    """On one NPU prompts follow each other, so token 2 of the first microbatch comes after all of them."""
    plan = Plan(ranks=1, batch=3, serve=Serve(prompt=256, outputs=2))
    found, platform = times(plan, machine(1, peak=1e9)), machine(1, peak=1e9)
    prompt = times(one(256, phase="prefill"), platform).first
    token = times(one(256, 2, phase="decode"), platform).last
    assert prompt is not None and token is not None
    assert found.first == pytest.approx([prompt[0] * each for each in (1, 2, 3)], rel=1e-3)
    assert found.each == pytest.approx(
        np.mean([2 * prompt[0] + token, prompt[0] + 2 * token, 3 * token]), rel=1e-3
    )


def by_hand(build, phase: str = "both") -> Timeline:
    """Two microbatches and three tokens of each on 1 + 3 ranks, of which the others are later, and a first stage."""
    classes = []
    for late in (0, 10):
        ends = [100 + late, 200 + late, 230 + late, 260 + late, 280 + late, 320 + late]
        nodes, before = [], 0
        for number, end in enumerate(ends):
            name = FIRST if number < 2 and phase == "both" else NEXT
            work = {"flops": 10} if number < 2 else {"flops": 1}
            nodes.append({"kind": "compute", "name": "gemm", "start": before, "end": end - 5, **work})
            nodes.append({"kind": "compute", "name": name, "start": end - 5, "end": end, "flops": 0})
            before = end
        classes.append({"nodes": nodes})
    classes.append({"nodes": [{"kind": "compute", "name": "gemm", "start": 0, "end": 50}]})
    serving = {"batch": 8, "microbatches": 2, "prompt": 64, "phase": phase, "tokens": 3}
    known = {"serving": serving, "peak_flops_per_ns": 1.0, "memory_bytes_per_ns": 1.0}
    roofline = {"compute_efficiency": 0.5, "memory_efficiency": 0.5, "kernel_overhead_ns": 0}
    made: Timeline = build(classes, rank_class=[0, 1, 1, 1, 2], npus=5, roofline=roofline, **known)
    graphs = [replace(each, moved=np.full(len(each.kind), 5)) for each in made.graphs]
    return replace(made, graphs=graphs)


def test_times_by_hand(build) -> None:
    found = serving_times(by_hand(build))
    assert found is not None
    # First tokens at 100 and 200 of one rank, 110 and 210 of three.
    assert found.first == (100, 110, 210)
    # 100 230 280 and 200 260 320.
    assert found.each == pytest.approx((180 / 2 + 120 / 2) / 2)
    assert found.last == pytest.approx((50 + 60) / 2)
    assert found.rate == pytest.approx(8 * 3 / 330e-9) and found.rate_per_npu == pytest.approx(found.rate / 5)
    assert found.prompt_rate == pytest.approx(8 * 64 / 210e-9)
    assert found.prefill is not None and found.decode is not None
    assert found.prefill.compute == pytest.approx(200 / 210) and found.prefill.memory == pytest.approx(
        10 / 210
    )
    assert found.decode.memory == 1 and found.decode.memory_kernels == 1
    assert (
        serving_lines(by_hand(build))[0]
        == "Time to first token 100 ns (first microbatch), 110 ns (median), 210 ns (last)"
    )
    assert to_json(by_hand(build))["serving"]["time_per_output_token"]["last_ns"] == found.last


def test_decode_alone_by_hand(build) -> None:
    found = serving_times(by_hand(build, "decode"))
    assert found is not None and found.first is None and found.prompt_rate is None
    assert found.last == pytest.approx(55) and found.each == pytest.approx(75)


def test_what_is_no_inference_has_no_times(build, timeline) -> None:
    assert serving_times(timeline) is None and serving_lines(timeline) == []
    assert to_json(timeline)["serving"] is None
    run = by_hand(build)
    other = replace(run, info={**run.info, "serving": {**run.info["serving"], "tokens": 4}})
    assert serving_times(other) is None
    silent = {name: value for name, value in run.info.items() if name != "roofline"}
    found = serving_times(replace(run, info=silent))
    assert found is not None and found.decode is None and found.first is not None
