"""What recomputation keeps, and of which layers; kernels that are not fused."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from armillary.base.errors import InputError
from armillary.workload.generate import generate
from armillary.workload.layers.layer import Layer, Step
from armillary.workload.layers.of_model import layers_of
from armillary.workload.models import load_model
from armillary.workload.plan.schema import Plan

NAMES = ("q", "k", "v", "attention", "out", "gate", "up", "down")


def layer(name: str = "llama-3-8b", **changes: object) -> Layer:
    data: dict[str, object] = {"ranks": 2, "batch": 2, "sequence": 1024, "causal": True}
    return layers_of(load_model(name), Plan.model_validate(data | changes))[2]


def again(made: Layer) -> Sequence[Step]:
    return [step for step in made.backward if step.name.startswith("again.")]


@given(st.sets(st.sampled_from(NAMES)), st.sampled_from(["llama-3-8b", "mixtral-8x7b"]), st.booleans())
def test_kept_results_are_not_made_again(kept: set[str], name: str, narrow: bool) -> None:
    """Operations by hand: 2 of each weight and token, and the scores."""
    plan: dict[str, object] = {"recompute": "full", "early_stop": narrow}
    if narrow:
        plan |= {"parallel": {"tp": 2}}
    whole, some = layer(name, **plan), layer(name, **plan, keep=sorted(kept))
    done = {step.name.removeprefix("again."): step.flops for step in again(whole)}
    shares = {
        "q": ("qkv", 4096),
        "k": ("qkv", 1024),
        "v": ("qkv", 1024),
        "out": ("out", 1),
        "attention": ("core", 1),
    }
    expected = 0
    for block, flops in done.items():
        first = (
            block.partition(".")[0] if not block.startswith(("mlp", "experts")) else block.rpartition(".")[0]
        )
        sizes = {key: share for key, (mine, share) in shares.items() if mine == first}
        if first.endswith(".up"):
            sizes = {"gate": 1, "up": 1}
        elif first.endswith(".down"):
            sizes = {"down": 1}
        left = sum(share for key, share in sizes.items() if key not in kept)
        expected += flops * left // sum(sizes.values()) if sizes else flops
    assert sum(step.flops for step in again(some)) == expected
    # What the backward pass does not need is not kept either: recomputation that stops early never makes it.
    needed = kept - {"down"} if narrow and name == "llama-3-8b" else kept
    assert (some.saved > whole.saved) == bool(needed)
    assert some.forward == whole.forward and some.weight == whole.weight


def test_nothing_kept_is_full_recomputation() -> None:
    assert layer(recompute="full", keep=[]).backward == layer(recompute="full").backward


def test_bytes_of_kept_results() -> None:
    """1024 tokens, 32 heads of queries and 8 of keys and values, each 128 elements of 2 bytes."""
    base = layer(recompute="full").saved
    assert layer(recompute="full", keep=["q"]).saved - base == 1024 * 4096 * 2
    assert layer(recompute="full", keep=["k"]).saved - base == 1024 * 1024 * 2
    assert layer(recompute="full", keep=["gate"]).saved - base == 1024 * 14336 * 2
    assert layer(recompute="full", keep=["attention"]).saved - base == 1024 * (4096 * 2 + 32 * 4)


def test_every_second_layer() -> None:
    plan = Plan.model_validate(
        {"ranks": 1, "batch": 1, "sequence": 1024, "recompute": "full", "recompute_every": 2}
    )
    found = layers_of(load_model("llama-3-8b"), plan)[1:-1]
    assert [bool(again(each)) for each in found] == [False, True] * 16
    assert found[0].saved == layer().saved and found[1].saved == layer(recompute="full").saved


def test_kernels_that_are_not_fused() -> None:
    fused, eager = layer(), layer(compiled=False)
    for one, other in ((fused.forward, eager.forward), (fused.backward, eager.backward)):
        assert sum(step.flops for step in one) == sum(step.flops for step in other)
        assert sum(step.bytes for step in one) < sum(step.bytes for step in other)
        assert len(one) < len(other)
    # Layer norms and GeLU are kernels of PyTorch.
    assert layer("gpt-3-175b", compiled=False).forward == layer("gpt-3-175b").forward


def test_whole_traces_are_made() -> None:
    plan = {"ranks": 2, "batch": 2, "sequence": 512, "recompute": "full", "recompute_every": 2, "keep": ["q"],
            "compiled": False, "data": {"sharding": "fsdp"}}  # fmt: skip
    assert generate(load_model("llama-3-8b"), Plan.model_validate(plan)).n_ranks == 2


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"keep": ["q"]}, "got keep q with recompute none, expected recompute full"),
        ({"recompute": "full", "keep": ["attention"], "attention": "eager"}, "expected attention flash"),
        ({"recompute_every": 2}, "got recompute_every 2 without recompute"),
        ({"compiled": False, "serve": {"prompt": 2}}, "expected it in training only"),
    ],
)
def test_keys_without_effect_are_refused(keys: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Plan.model_validate({"ranks": 1, "batch": 1, **keys})


@pytest.mark.parametrize("name", ["resnet-50", "vit-b-16"])
def test_other_models_refuse_them(name: str) -> None:
    plan = Plan.model_validate({"ranks": 1, "batch": 1, "recompute": "full", "recompute_every": 2})
    with pytest.raises(InputError, match="recompute_every"):
        generate(load_model(name), plan)


MODULES = {
    "core_attn": {"core"},
    "layernorm": {"attention.norm", "mlp.norm"},
    "mlp": {"mlp.up", "mlp.activation"},
    "moe_act": {"experts.activation"},
    "moe": {"router", "dispatch", "experts.up", "experts.activation", "experts.down", "combine"},
    "mla_up_proj": {"q.up", "kv.up", "positions"},
}


def block_of(step: Step) -> str:
    return step.name.removeprefix("again.").rpartition(".")[0]


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("name", ["llama-3-8b", "mixtral-8x7b", "deepseek-v3"])
def test_modules_run_again_once(module: str, name: str) -> None:
    at = {"deepseek-v3": 10}.get(name, 2)
    data = {"ranks": 1, "batch": 1, "sequence": 1024, "causal": True, "parallel": {"backward": "in-order"}}

    def made(**changes: object) -> Layer:
        return layers_of(load_model(name), Plan.model_validate(data | changes))[at]

    whole, some = made(), made(recompute="selective", recompute_modules=[module])
    forward = [step for step in some.forward if block_of(step) in MODULES[module]]
    for steps in (some.backward, some.in_order):
        rerun = [step for step in steps if step.name.startswith("again.")]
        assert sorted(step.name.removeprefix("again.") for step in rerun) == sorted(
            step.name for step in forward
        )
        assert sum(step.bytes for step in rerun) == sum(step.bytes for step in forward)
        # Before whatever of the backward pass reads it; putting results together again reads nothing that is kept.
        assert (
            not rerun
            or module == "moe"
            or "again." in next(step.name for step in steps if block_of(step) in MODULES[module])
        )
    assert some.saved <= whole.saved
    # Fused attention keeps next to nothing of its core beside its inputs.
    assert bool(forward) == (some.saved < whole.saved) or module == "core_attn"


def test_all_modules_together_keep_least() -> None:
    data = {"ranks": 1, "batch": 1, "sequence": 1024, "causal": True}
    kept = []
    for modules in ([], ["moe_act"], ["moe_act", "moe"], ["moe_act", "moe", "layernorm"]):
        plan = {"recompute": "selective", "recompute_modules": modules} if modules else {}
        kept.append(layers_of(load_model("mixtral-8x7b"), Plan.model_validate(data | plan))[2].saved)
    assert kept == sorted(set(kept), reverse=True)


def test_modules_are_of_selective_recomputation() -> None:
    with pytest.raises(ValidationError, match="expected recompute selective"):
        Plan.model_validate({"ranks": 1, "batch": 1, "recompute": "full", "recompute_modules": ["moe"]})


def test_separate_projections_are_gemms_of_their_own_whose_gradients_are_added_up() -> None:
    """1024 tokens of 4096 elements; 4096 columns of queries, 1024 of keys and of values, 14336 of gate and of up."""
    one, many = layer(compiled=False), layer(compiled=False, projections="separate")
    held = 1024 * 4096 * 2
    for name, widths in (("qkv", (4096, 1024, 1024)), ("mlp.up", (14336, 14336))):
        for steps in ("forward", "backward", "weight"):
            old, new = (
                next(step for step in getattr(made, steps) if step.name.startswith(f"{name}.") and step.gemms)
                for made in (one, many)
            )
            assert len(old.gemms) == 1 and len(new.gemms) == len(widths)
            assert new.flops == old.flops == sum(each.operations for each in new.gemms)
            assert new.bytes - old.bytes == (len(widths) - 1) * held
        assert [each.n for each in next(s for s in many.forward if s.name == f"{name}.gemm").gemms] == [
            *widths
        ]
        added = next(step for step in many.backward if step.name == f"{name}.sum")
        assert added.bytes == 3 * (len(widths) - 1) * held
    kept = layer(projections="separate", recompute="full", keep=["q", "v", "gate"])
    made = {step.name: [each.n for each in step.gemms] for step in again(kept) if step.gemms}
    assert made["again.qkv.gemm"] == [1024] and made["again.mlp.up.gemm"] == [14336]
    # Read once more by the norm's gradient where kernels are fused.
    fused = next(step for step in layer(projections="separate").backward if step.name == "qkv.sum")
    assert fused.bytes == 2 * held


def test_gradients_of_weights_are_written_as_they_are_where_copies_widen_them() -> None:
    data: dict[str, object] = {"sharding": "fsdp", "copies": True}
    sizes = []
    for more in ({}, {"reshard": False}):
        made = layer(data=data | more)
        sizes.append(next(step.bytes for step in made.weight if step.name == "out.weight"))
    # 2 bytes of each of 4096 x 4096 in place of 4 that are read and written.
    assert sizes[1] - sizes[0] == 4096**2 * (8 - 2)


def test_pytorchs_context_parallelism_attends_rank_after_rank() -> None:
    plan: dict[str, object] = {"ranks": 4, "parallel": {"cp": 4, "context": "all-gather-steps"}}
    whole = layer(ranks=4, parallel={"cp": 4, "context": "all-gather"})
    made = layer(**plan)
    for one, other in ((whole.forward, made.forward), (whole.backward, made.backward)):
        assert sum(step.flops for step in one) == sum(step.flops for step in other)
        attends = [step for step in other if ".attend" in step.name]
        assert [step.name for step in attends] == [f"core.attend {at}" for at in range(4)]
        # A rank's own keys and queries, then half of the queries and the keys of another.
        shapes = [step.attention for step in attends if step.attention]
        assert [shape.queries for shape in shapes] == [256, 128, 128, 128]
        assert {(shape.kv_heads, shape.keys) for shape in shapes} == {(32, 256)}
    # Keys and values of all heads of queries are gathered; sums of their gradients pass round in fp32.
    gathers = [step for step in (*made.forward, *made.backward) if step.name == "core.gather"]
    assert [step.size for step in gathers] == 2 * [256 * 2 * 4096 * 2]
    passes = [step.size for step in made.backward if step.name.startswith("core.pass")]
    assert passes == 4 * [256 * 2 * 4096 * 4]
    merges = [step.bytes for step in made.forward if ".merge" in step.name]
    assert merges == 3 * [256 * 4096 * 38]


def test_an_eager_loss_is_a_kernel_for_each_operation() -> None:
    """1024 tokens, a vocabulary of 128,256 in 2 and 4 bytes."""
    logits = 1024 * 128256
    for tp, first, last in ((1, 6 + 8, 4 + 12 + 6), (2, 6 + 32, 4 + 8 + 12 + 8 + 6)):
        plan = {"ranks": tp, "batch": 1, "sequence": 1024, "loss": "eager", "parallel": {"tp": tp}}
        head = layers_of(load_model("llama-3-8b"), Plan.model_validate(plan))[-1]
        for steps, each in ((head.forward, first), (head.backward, last)):
            found = [step for step in steps if step.name.startswith("loss.") and not step.collective]
            assert sum(step.bytes for step in found) == each * logits // tp
