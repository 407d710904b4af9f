"""What layers keep and have: activations of the papers, parameters of the models, caches."""

from __future__ import annotations

import pytest

from armillary.workload.layers.layer import Layer
from armillary.workload.layers.of_model import inference_layers, layers_of
from armillary.workload.models import Decoder, load_model, parameters, preset_names
from armillary.workload.plan.schema import Plan

SEQUENCE = 2048


def layers(name: str, ranks: int, **changes: object) -> list[Layer]:
    microbatch = changes.get("microbatch", 1)
    assert isinstance(microbatch, int)
    data = {"ranks": ranks, "batch": microbatch * ranks} | changes
    return layers_of(load_model(name), Plan.model_validate(data))


@pytest.mark.parametrize("sequence", [False, True])
def test_activations_of_a_layer(sequence: bool) -> None:
    """The formulas of arXiv 2205.05198, table 2, exactly; s, b, h, a, t as there."""
    s, b, h, a, t = SEQUENCE, 2, 6144, 64, 8
    sbh, scores = s * b * h, 5 * a * s * s * b
    plan: dict[str, object] = {"attention": "unfused", "dropout": True, "microbatch": b}
    plan["parallel"] = {"tp": t, "sequence": sequence}

    def saved(recompute: str) -> int:
        return layers("megatron-22b", t, recompute=recompute, **plan)[1].saved

    if sequence:
        assert saved("none") == (34 * sbh + scores) // t
        assert saved("selective") == 34 * sbh // t
        assert saved("full") == 2 * sbh // t
    else:
        assert saved("none") == 10 * sbh + (24 * sbh + scores) // t
        assert saved("selective") == 10 * sbh + 24 * sbh // t
        assert saved("full") == 2 * sbh


@pytest.mark.parametrize(
    ("name", "pp", "interleaved", "microbatch", "none", "selective"),
    [
        ("megatron-22b", 1, 1, 4, 59.25, 9.56),
        ("megatron-175b", 8, 3, 1, 66.84, 12.35),
        ("megatron-530b", 35, 3, 1, 114.02, 23.08),
        ("megatron-1t", 64, 1, 1, 131.25, 26.56),
    ],
)
def test_activations_of_the_first_stage(
    name: str, pp: int, interleaved: int, microbatch: int, none: float, selective: float
) -> None:
    """Figure 1 of arXiv 2205.05198 in GiB, as Calculon's validation has it; in flight L·(1 + (p−1)/(p·m)) layers."""
    model = load_model(name)
    assert isinstance(model, Decoder)
    in_flight = model.layers * (1 + (pp - 1) / (pp * interleaved) if interleaved > 1 else 1)
    plan: dict[str, object] = {"attention": "unfused", "dropout": True, "microbatch": microbatch}
    for sequence, recompute, wanted in ((False, "none", none), (True, "selective", selective)):
        parallel = {"tp": 8, "pp": pp, "sequence": sequence}
        one = layers(name, 8 * pp, recompute=recompute, parallel=parallel, **plan)[1]
        assert one.saved * in_flight / 2**30 == pytest.approx(wanted, abs=0.01)


def test_fused_attention_keeps_no_scores() -> None:
    one = layers("megatron-22b", 8, parallel={"tp": 8})[1]
    sbh, statistics = SEQUENCE * 6144, SEQUENCE * 64 * 4
    assert one.saved == (32 * sbh + statistics) // 8  # without two masks of sbh
    again = layers("megatron-22b", 8, parallel={"tp": 8}, recompute="selective")[1]
    assert (again.saved, again.flops) == (one.saved, one.flops)


def test_recomputation_needs_the_layer_at_work() -> None:
    none, full = (layers("llama-3-8b", 1, recompute=each)[1] for each in ("none", "full"))
    assert full.working == none.working + none.saved
    assert full.saved == full.boundary == 8192 * 4096 * 2


def test_head_keeps_probabilities_in_fp32() -> None:
    last = layers("megatron-22b", 8, parallel={"tp": 8})[-1]
    assert last.saved == SEQUENCE * (2 * 2 * 6144 + 4 * 51200) // 8  # section 4.3: norm, GEMM, loss


# Of sparse attention only inference is modelled.
UNTRAINED = ("dlrm", "gnmt", "resnet", "deepseek-v3.2", "glm-5")


@pytest.mark.parametrize("name", [n for n in preset_names() if not n.startswith(UNTRAINED)])
def test_parameters_of_one_rank_are_those_of_the_model(name: str) -> None:
    made = layers(name, 1)
    assert sum(sum(layer.parameters.values()) for layer in made) == parameters(load_model(name)).total


def test_parameters_of_all_ranks() -> None:
    """Norms, biases of row-parallel GEMMs, routers and positions are on every rank of tp."""
    count = parameters(load_model("llama-3-70b"))
    made = layers("llama-3-70b", 8, parallel={"tp": 8}, sequence=4096)
    norms = count.norms
    assert sum(8 * n for layer in made for n in layer.parameters.values()) == count.total + 7 * norms

    model = load_model("qwen3-30b-a3b")
    count = parameters(model)
    made = layers("qwen3-30b-a3b", 16, parallel={"tp": 4, "ep": 8, "etp": 2}, sequence=4096)
    dense = sum(4 * layer.parameters.get("dp+cp", 0) for layer in made)
    assert dense == count.total - count.experts + 3 * (count.norms + count.router)
    assert sum(16 * layer.parameters.get("edp", 0) for layer in made) == count.experts


def test_tied_head_has_a_copy_on_another_stage() -> None:
    table = 51200 * 6144 // 8
    alone, apart = (layers("megatron-22b", 8 * pp, parallel={"tp": 8, "pp": pp})[-1] for pp in (1, 2))
    assert apart.parameters["dp+cp"] - alone.parameters["dp+cp"] == table


@pytest.mark.parametrize(
    ("name", "token"),
    [("llama-3-8b", 2 * 8 // 2 * 128), ("gpt-3-175b", 2 * 96 // 2 * 128), ("deepseek-v3", 512 + 64)],
)
def test_cache(name: str, token: int) -> None:
    plan = Plan.model_validate({"ranks": 2, "batch": 2, "parallel": {"tp": 2}})
    made = inference_layers(load_model(name), plan, tokens=1, context=1000, batch=3)
    assert made[5].cache == 3 * 1000 * token * 2
    assert made[0].cache == made[-1].cache == 0


def test_bytes_of_numbers() -> None:
    """A GEMM reads one byte per operand in fp8 and four in fp32; its output is bf16 or fp32."""
    x, w, y = 8192 * 4096, 4096 * 2 * 14336, 8192 * 2 * 14336
    for compute, operand, element in (("fp8", 1, 2), ("bf16", 2, 2), ("fp32", 4, 4)):
        one = layers("llama-3-8b", 1, numbers={"compute": compute})[1]
        steps = {step.name: step for step in (*one.forward, *one.backward, *one.weight)}
        assert steps["mlp.up.gemm"].bytes == (x + w) * operand + y * element
        assert steps["mlp.up.input"].bytes == (y + w) * operand + x * element
        assert steps["mlp.up.weight"].bytes == (x + y) * operand + 2 * 4 * w
        assert steps["mlp.up.gemm"].precision == compute
        assert steps["core.attend"].precision == ("fp32" if compute == "fp32" else "bf16")
