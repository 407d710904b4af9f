"""A generated step with a fit and all terms: folding is exact, and host time counts for each iteration."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import armillary
from armillary.base.errors import InputError
from armillary.engine.multi_job import simulate_jobs
from armillary.explore.term_costs import term_costs, with_terms
from armillary.platform.files.native import load_platform
from armillary.platform.kernels import Terms
from armillary.platform.model import Platform
from armillary.platform.profiles import with_roofline
from armillary.trace import Trace
from armillary.trace.compose import PlacedJob
from armillary.workload.generate import generate
from armillary.workload.models.decoder_parts import Attention, Mlp
from armillary.workload.models.schema import Decoder
from armillary.workload.plan.schema import Plan

PLATFORM = {
    "network": [
        {"name": "pair", "topology": "FullyConnected", "size": 2, "bandwidth": "300 GB/s", "latency": "1 us"},
        {"name": "node", "topology": "Switch", "size": 4, "bandwidth": "300 GB/s", "latency": "1 us"},
        {"name": "rail", "topology": "Switch", "size": 2, "bandwidth": "25 GB/s", "latency": "5 us"},
    ],
    "npu": {"peak": "312 TFLOP/s", "memory": {"bandwidth": "2039 GB/s"}},
    "collectives": {"fit": "h100-sxm", "node": "node", "host": {"bandwidth": "25 GB/s"}},
    "terms": {
        "overlap": {"compute": "15 %", "communication": "30 %", "processors": 20, "traffic": 2.5},
        "communication": {"inside": "5 %", "between": "40 %"}, "launch": "5 us",
        "straggler": "2 %", "step": {"time": "2 ms", "share": "1 %"},
    },
}  # fmt: skip


TINY = Decoder(
    name="tiny", layers=12, hidden=512, vocabulary=4096, context=128, tied=False, norm="rms", activation="swiglu",
    attention=Attention(heads=8, kv_heads=8), mlp=Mlp(size=2048),
)  # fmt: skip


def step(parallel: dict[str, Any], **plan: Any) -> tuple[Trace, Platform]:
    wish = Plan.model_validate({"ranks": 16, "batch": 32, "parallel": parallel, **plan})
    return generate(TINY, wish), with_roofline(load_platform(PLATFORM))


@pytest.mark.parametrize(
    ("parallel", "plan"),
    [
        ({"tp": 2, "pp": 2}, {}),
        ({"tp": 8}, {"data": {"sharding": "zero-1"}}),
        ({}, {"data": {"sharding": "fsdp"}}),
        ({"tp": 4, "pp": 4}, {"pipeline": {"schedule": "interleaved", "virtual": 3}}),
        ({"tp": 4, "backward": "in-order"}, {"data": {"overlap": False}}),
    ],
)
def test_folded_is_unfolded(parallel: dict[str, Any], plan: dict[str, Any]) -> None:
    trace, platform = step(parallel, **plan)
    folded, plain = (armillary.simulate(trace, platform, fold=fold) for fold in (True, False))
    assert len(folded.finish) < len(plain.finish)
    assert folded.finish_ticks.tolist() == plain.finish_ticks.tolist()


def test_host_time_counts_for_each_iteration() -> None:
    trace, platform = step({"tp": 2}, iterations=3)
    plain = armillary.simulate(trace, with_terms(platform, Terms())).total_ticks
    assert (
        armillary.simulate(trace, with_terms(platform, Terms(step_time=1e6))).total_ticks == plain + 3 * 10**6
    )


def test_costs_of_terms_add_up_with_what_several_cost() -> None:
    trace, platform = step({"tp": 2, "pp": 2})
    costs = term_costs(platform, lambda machine: armillary.simulate(trace, machine))
    assert costs.with_all == armillary.simulate(trace, platform).total_ticks > costs.without
    texts = [each.text for each in costs.each]
    assert texts[1:3] == ["overlap processors 20", "overlap traffic 2.5"]
    assert texts[4:7] == ["communication inside 5 %", "communication between 40 %", "launch 5 µs"]
    assert all(each.ticks >= 0 for each in costs.each)


def test_several_jobs_have_no_common_step() -> None:
    trace, platform = step({"tp": 2})
    with pytest.raises(InputError, match=r"terms\.step: several jobs"):
        simulate_jobs([PlacedJob("a", trace, range(16))], platform)
    alone = replace(platform.terms, step_time=0.0, step_share=0.0)
    assert simulate_jobs([PlacedJob("a", trace, range(16))], with_terms(platform, alone)).timeline.total_ticks
