"""What the CPU does in a step: it issues kernels ahead of the device, and waits for it where it needs a result."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

import armillary
from armillary.engine.common.timeline import KINDS, Timeline
from armillary.platform.files.native import load_platform
from armillary.platform.profiles import with_roofline
from armillary.trace import nodes_of
from armillary.workload.generate import generate, in_other_times
from armillary.workload.models.decoder_parts import Attention, Experts, Mlp
from armillary.workload.models.schema import Decoder
from armillary.workload.plan.schema import Plan

FAST = {
    "network": [
        {"name": "node", "topology": "Switch", "size": 4, "bandwidth": "900 GB/s", "latency": "0 ns"}
    ],
    "npu": {"peak": "1000000 TFLOP/s", "memory": {"bandwidth": "1000000 GB/s"}},
}
SLOW = FAST | {"npu": {"peak": "1 TFLOP/s", "memory": {"bandwidth": "10 GB/s"}}}
COMMON: dict[str, Any] = {
    "layers": 3, "hidden": 512, "vocabulary": 4096, "context": 128, "tied": False, "norm": "rms",
    "activation": "swiglu", "attention": Attention(heads=8, kv_heads=8),
}  # fmt: skip
DENSE = Decoder(name="dense", mlp=Mlp(size=2048), **COMMON)
SPARSE = Decoder(name="sparse", experts=Experts(count=16, top_k=2, size=256), **COMMON)


def run(model: Decoder, platform: dict[str, Any], host: dict[str, Any], **plan: Any) -> Timeline:
    wish = {"ranks": 4, "batch": 8, "microbatch": 2, "optimizer": "none"} | plan
    trace = generate(model, Plan.model_validate(wish | {"host": host}))
    return armillary.simulate(trace, with_roofline(load_platform(platform)))


def of_cpu(timeline: Timeline, word: str) -> int:
    """Return the number of nodes of the CPU whose name begins with a word, of the first class."""
    table = timeline.table(0)
    cpu = table.kind == KINDS.index("cpu")
    return int(np.sum(cpu & np.char.startswith(table.name, word)))


def test_small_kernels_take_what_the_cpu_takes() -> None:
    timeline = run(DENSE, FAST, {"issue": "20 us"})
    # Gradients are reduced when the last kernel is done.
    assert timeline.total_ticks == pytest.approx(of_cpu(timeline, "issue") * 20_000, rel=0.05)


def test_it_runs_ahead_of_large_kernels() -> None:
    plain, issued = (run(DENSE, SLOW, host) for host in ({}, {"issue": "5 us"}))
    # Kernels take longer than the CPU: only the first one waits for it.
    assert plain.total_ticks < issued.total_ticks <= plain.total_ticks + 10_000


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_it_waits_once_in_every_layer_of_experts(recompute: str) -> None:
    ep = {"parallel": {"ep": 4}, "recompute": recompute}
    plain, waits = (run(SPARSE, SLOW, host, **ep) for host in ({}, {"synchronise": "3 ms"}))
    passes = 2 if recompute == "full" else 1
    # 2 samples of each of 4 replicas are one microbatch.
    assert of_cpu(waits, "synchronise") == SPARSE.layers * passes
    assert waits.total_ticks == plain.total_ticks + SPARSE.layers * passes * 3_000_000


@pytest.mark.parametrize("model", [DENSE, SPARSE])
def test_a_graph_is_issued_once(model: Decoder) -> None:
    plain, some, most = (
        run(model, FAST, {"issue": "20 us", "graphs": graphs})
        for graphs in ([], ["attention"], ["attention", "router"])
    )
    # Forward: norm, projection, positions, core, output projection, residual; backward five of these, and then the
    # gradients of two weights. One graph remains of each.
    assert of_cpu(plain, "issue") - of_cpu(some, "issue") == model.layers * (6 + 5 + 2 - 3)
    # Forward norm, router and permutation.
    assert of_cpu(some, "issue") - of_cpu(most, "issue") >= model.layers * (0 if model is DENSE else 2)
    assert most.total_ticks <= some.total_ticks < plain.total_ticks


def test_loops_over_experts_cost_the_cpu_and_the_device_each_kernel() -> None:
    kernels = SPARSE.layers * 16 * 6  # two weights of 16 experts in three passes
    plain, issued = (run(SPARSE, FAST, {"issue": "20 us", "issue_each": each}) for each in ("0 us", "5 us"))
    assert issued.total_ticks - plain.total_ticks == pytest.approx(kernels * 5_000, rel=0.02)
    # Many kernels that the device has not begun hide what the CPU takes, not what the device does.
    free, lost = (run(SPARSE, SLOW, {"gap": gap}) for gap in ("0 us", "4 us"))
    assert lost.total_ticks - free.total_ticks == kernels * 4_000
    # The CPU issues a loop as a whole.
    both = run(SPARSE, FAST, {"issue": "20 us", "issue_each": "5 us", "gap": "4 us"})
    assert of_cpu(both, "issue") == of_cpu(issued, "issue")
    dense = [run(DENSE, SLOW, {"gap": gap}).total_ticks for gap in ("0 us", "4 us")]
    assert dense[0] == dense[1]


def test_what_waits_is_folded_exactly() -> None:
    wish = {
        "ranks": 4,
        "batch": 8,
        "parallel": {"ep": 2, "pp": 2},
        "host": {"issue": "8 us", "issue_each": "1 us", "gap": "2 us", "synchronise": "30 us"},
    }
    trace, platform = generate(SPARSE, Plan.model_validate(wish)), with_roofline(load_platform(FAST))
    folded, plain = (armillary.simulate(trace, platform, fold=fold) for fold in (True, False))
    assert folded.finish_ticks.tolist() == plain.finish_ticks.tolist()


def test_nothing_is_emitted_unless_it_takes_time() -> None:
    assert of_cpu(run(SPARSE, FAST, {}), "") == 0


@pytest.mark.parametrize("wish", [{"serve": {"prompt": 8}}, {"data": {"sharding": "parameter-server"}}])
def test_it_is_refused_where_it_has_no_effect(wish: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=r"got host\.issue 5000 ns, expected none"):
        Plan.model_validate({"ranks": 4, "batch": 4, "host": {"issue": "5 us"}, **wish})


TIMES = st.lists(st.integers(1, 10_000), min_size=5, max_size=5)


@settings(deadline=None, max_examples=40)
@given(
    st.sampled_from([DENSE, SPARSE]), TIMES, TIMES, st.lists(st.booleans(), min_size=5, max_size=5),
    st.sampled_from([1, 2]), st.sampled_from([[], ["attention", "router"]]), st.sampled_from(["none", "full"]),
)  # fmt: skip
def test_a_trace_in_other_times_is_that_of_a_plan_with_these(
    model: Decoder, one: list[int], other: list[int], used: list[bool], pp: int, graphs: list[Any], again: str
) -> None:
    def plan(times: list[int]) -> Plan:
        *host, handshake = (time * use for time, use in zip(times, used, strict=True))
        named = dict(zip(("issue", "issue_each", "gap", "synchronise"), host, strict=True))
        keys: dict[str, Any] = {"ranks": 4, "batch": 16, "microbatch": 2, "recompute": again}
        keys["parallel"] = {"pp": pp, "ep": 2} if model is SPARSE else {"pp": pp}
        keys["host"] = {name: f"{time} ns" for name, time in named.items()} | {"graphs": graphs}
        return Plan.model_validate(keys | {"pipeline": {"handshake": f"{handshake} ns"}})

    made = in_other_times(generate(model, plan(one)), model, plan(other))
    anew = generate(model, plan(other))
    assert made.about == anew.about
    for mine, yours in zip(made.graphs, anew.graphs, strict=True):
        assert nodes_of(mine) == nodes_of(yours)
        assert mine.ints("duration_ns", -1).tolist() == yours.ints("duration_ns", -1).tolist()
