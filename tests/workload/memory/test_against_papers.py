"""Footprints of real models against published and measured bytes."""

from __future__ import annotations

import pytest

from armillary.workload.layers.of_model import layers_of
from armillary.workload.memory.advice import advise
from armillary.workload.memory.footprint import Footprint, footprint, worst
from armillary.workload.models import Decoder, load_model
from armillary.workload.pipeline.partition import partition
from armillary.workload.plan.schema import Data, Parallel, Pipeline, Plan

GIB = 2**30


def of_stage(model: Decoder, plan: Plan, stage: int) -> Footprint:
    """Return the footprint of one pipeline stage."""
    return footprint(partition(layers_of(model, plan), plan), plan, stage)


@pytest.mark.parametrize(
    ("name", "ranks", "pp", "batch", "microbatch", "virtual", "states", "none", "selective"),
    [
        ("megatron-22b", 8, 1, 4, 4, 1, 45.56, 59.25, 9.56),
        ("megatron-175b", 64, 8, 64, 1, 3, 45.56, 66.84, 12.35),
        ("megatron-530b", 280, 35, 280, 1, 3, 31.64, 114.02, 23.08),
        ("megatron-1t", 512, 64, 512, 1, 1, 32.96, 131.25, 26.56),
    ],
)
def test_figure_1_of_selective_recomputation(
    name, ranks, pp, batch, microbatch, virtual, states, none, selective
):
    """GiB per GPU in arXiv 2205.05198, figure 1, batches of its table 5.

    "None" is without sequence parallelism. Its states leave out the embedding, so those of an inner stage are compared.
    """
    model = load_model(name)
    schedule = "interleaved" if virtual > 1 else "1f1b"
    for sequence, recompute, activations in ((False, "none", none), (True, "selective", selective)):
        plan = Plan(
            ranks=ranks, batch=batch, microbatch=microbatch, recompute=recompute, attention="unfused",
            dropout=True, parallel=Parallel(tp=8, pp=pp, sequence=sequence),
            pipeline=Pipeline(schedule=schedule, virtual=virtual),
        )  # fmt: skip
        found = of_stage(model, plan, 0).timeline
        assert (found["activations"] + found["logits"]).max() / GIB == pytest.approx(activations, rel=0.04)
        inner = of_stage(model, plan, min(1, pp - 1)).at_peak
        held = inner["weights"] + inner["gradients"] + inner["optimizer"]
        assert held / GIB == pytest.approx(states, rel=0.025)


def deepseek(layers: int) -> Decoder:
    """Return DeepSeek-V3 with few layers and a capacity factor of 1, as SimuMax measures it."""
    model = load_model("deepseek-v3")
    experts = model.experts.model_copy(update={"dense_first": 1, "capacity_factor": 1.0})
    return model.model_copy(update={"layers": layers, "experts": experts})


@pytest.mark.parametrize(
    ("model", "tp", "pp", "ep", "measured"),
    [
        ("llama", 1, 2, 1, 66.55),
        ("llama", 2, 1, 1, 60.68),
        ("llama", 4, 1, 1, 39.07),
        ("llama", 8, 1, 1, 28.29),
        ("deepseek", 1, 1, 8, 104.3),
        ("deepseek", 1, 2, 4, 114.0),
    ],
)
def test_peaks_of_megatron_on_b200(model, tp, pp, ep, measured):
    """GiB allocated on 8 B200 (SimuMax, results of its B200 runs): Llama-3 70B of 12 layers, DeepSeek-V3 of 4.

    Megatron-LM with flash attention, the distributed optimizer, fp32 gradients, 4 microbatches of 4096 tokens.
    """
    llama = load_model("llama-3-70b").model_copy(update={"layers": 12})
    plan = Plan(
        ranks=8, batch=32 // tp // pp, sequence=4096, parallel=Parallel(tp=tp, pp=pp, ep=ep),
        data=Data(sharding="zero-1"), loss="fused",
    )  # fmt: skip
    used = llama if model == "llama" else deepseek(4)
    peak = max(of_stage(used, plan, stage).peak for stage in range(pp))
    assert peak / GIB == pytest.approx(measured, rel=0.01)


@pytest.mark.parametrize(("cp", "measured"), [(1, 83.9), (2, 84.2), (4, 84.0), (8, 84.5)])
def test_peaks_of_torchtitan_on_h100(cp, measured):
    """GiB reserved on 8 H100 (torchtitan, benchmarks of December 2024, table 2): Llama-3.1 8B, full recomputation."""
    model = load_model("llama-3-8b").model_copy(update={"context": 2**18})
    plan = Plan(
        ranks=8, batch=8 // cp, sequence=32768 * cp, parallel=Parallel(cp=cp), data=Data(sharding="fsdp"),
        recompute="full",
    )  # fmt: skip
    found = worst(partition(layers_of(model, plan), plan), plan)
    assert found.reserved / GIB == pytest.approx(measured, rel=0.03)
    assert found.where == "backward of head, microbatch 0"


def test_what_makes_llama_3_70b_fit():
    model = load_model("llama-3-70b")
    plan = Plan(ranks=64, batch=64, parallel=Parallel(tp=8))
    found = advise(plan, 80 * GIB, lambda each: layers_of(model, each))
    assert not found.fits
    fitting = {change.text for change in found.fitting}
    assert {"sharding zero-2", "pp 4"} <= fitting and "recompute full" not in fitting
