"""What hides collectives of a layer in the backward pass: any gradient of a weight, that of the same GEMM, or none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

import armillary
from armillary.engine.common.timeline import KINDS, Timeline
from armillary.platform.files.native import load_platform
from armillary.platform.profiles import with_roofline
from armillary.workload.generate import generate
from armillary.workload.models.decoder_parts import Attention, Mlp
from armillary.workload.models.schema import Decoder
from armillary.workload.plan.schema import Plan

PLATFORM = {
    "network": [{"name": "node", "topology": "Switch", "size": 4, "bandwidth": "30 GB/s", "latency": "1 us"}],
    "npu": {"peak": "312 TFLOP/s", "memory": {"bandwidth": "2039 GB/s"}},
}
TINY = Decoder(
    name="tiny", layers=2, hidden=512, vocabulary=4096, context=128, tied=False, norm="rms", activation="swiglu",
    attention=Attention(heads=8, kv_heads=8), mlp=Mlp(size=2048),
)  # fmt: skip


def run(backward: str, **plan: Any) -> Timeline:
    wish = {"ranks": 4, "batch": 4, "microbatch": 2, "parallel": {"tp": 4, "backward": backward}} | plan
    trace = generate(TINY, Plan.model_validate(wish))
    return armillary.simulate(trace, with_roofline(load_platform(PLATFORM)))


def spans(timeline: Timeline) -> dict[str, list[tuple[str, int, int]]]:
    """Return name, start and end of the nodes of each kind of the first class."""
    start, end = timeline.spans(0)
    table = timeline.table(0)
    found: dict[str, list[tuple[str, int, int]]] = {}
    for i in range(len(start)):
        row = (str(table.name[i]), int(start[i]), int(end[i]))
        found.setdefault(KINDS[table.kind[i]], []).append(row)
    return found


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_serial_takes_the_sum_of_everything(recompute: str) -> None:
    timeline = run("serial", recompute=recompute)
    start, end = timeline.spans(0)
    assert int(np.sum(end - start)) == timeline.total_ticks


def test_in_order_only_gradients_of_the_same_gemm_run_beside_a_collective() -> None:
    found = spans(run("in-order"))
    beside = [
        (kernel, call)
        for call, since, until in found["collective"]
        for kernel, start, end in found["compute"]
        if start < until and since < end
    ]
    assert beside
    for kernel, call in beside:
        assert kernel.rpartition(".")[0] == call.rpartition(".")[0], (kernel, call)


@pytest.mark.parametrize("plan", [{}, {"parallel": {"tp": 2, "pp": 2}}, {"recompute": "full"}])
def test_what_hides_less_is_never_faster_and_works_as_much(plan: dict[str, Any]) -> None:
    parallel = plan.get("parallel", {"tp": 4})
    every = [
        run(way, **plan | {"parallel": {**parallel, "backward": way}})
        for way in ("any", "in-order", "serial")
    ]
    ticks = [each.total_ticks for each in every]
    assert ticks == sorted(ticks)
    kernels = [sorted(name for name, _, _ in spans(each)["compute"]) for each in every]
    assert kernels[0] == kernels[1] == kernels[2]


def test_without_sequence_parallelism_the_reduction_hides_behind_its_own_gradient() -> None:
    parallel = {"tp": 4, "sequence": False}
    ticks = [
        run(way, parallel={**parallel, "backward": way}).total_ticks for way in ("any", "in-order", "serial")
    ]
    assert ticks[0] <= ticks[1] < ticks[2]


@pytest.mark.parametrize(
    "wish",
    [
        {"pipeline": {"schedule": "zero-bubble"}},
        {"data": {"sharding": "parameter-server"}},
        {"serve": {"prompt": 8}},
    ],
)
def test_it_is_refused_where_it_has_no_effect(wish: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=r"parallel\.backward in-order, expected any"):
        Plan.model_validate({"ranks": 4, "batch": 4, "parallel": {"backward": "in-order"}, **wish})


def test_serial_contradicts_gathering_in_pieces() -> None:
    with pytest.raises(ValidationError, match=r"expected any or in-order with parallel\.overlap"):
        Plan.model_validate({"ranks": 4, "batch": 4, "parallel": {"backward": "serial", "overlap": True}})
