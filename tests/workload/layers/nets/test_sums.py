"""Layers of all presets against the closed forms: operations, parameters, all-to-all bytes; and what is refused."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.trace import CollectiveType
from armillary.workload.layers.layer import Layer
from armillary.workload.layers.nets.dlrm import dlrm_layers, table_shares
from armillary.workload.layers.nets.gnmt import gnmt_layers
from armillary.workload.layers.nets.resnet import resnet_layers
from armillary.workload.layers.nets.stack import stack_layers
from armillary.workload.layers.nets.tables import shares
from armillary.workload.models import Dlrm, Model, flops, load_model, parameters, preset_names, read_model
from armillary.workload.models.schema import Stack
from armillary.workload.plan.schema import Numbers, Parallel, Plan

MAKERS = {"resnet": resnet_layers, "gnmt": gnmt_layers, "dlrm": dlrm_layers, "stack": stack_layers}
STACK = read_model(
    {
        "kind": "stack",
        "name": "a stack",
        "layers": [
            {"name": "wide", "repeat": 3, "gemm": {"m": 5, "n": 24, "k": 11, "bias": True}},
            {"gemm": {"n": 8, "k": 24}},
            {"name": "wide", "gemm": {"n": 16, "k": 8}},
            {"name": "head", "gemm": {"n": 4, "k": 16}},
        ],
    }
)
IMAGES = read_model(
    {
        "kind": "stack",
        "name": "images",
        "layers": [
            {
                "conv2d": {
                    "inputs": 4,
                    "outputs": 6,
                    "height": 9,
                    "width": 8,
                    "kernel": 3,
                    "groups": 2,
                    "bias": True,
                }
            },
            {"gemm": {"n": 8, "k": 24}},
        ],
    }
)
PRESETS = [load_model(name) for name in preset_names()]
MODELS = [model for model in PRESETS if model.kind in MAKERS] + [STACK, IMAGES]


def plan(ranks: int = 1, **other: object) -> Plan:
    return Plan.model_validate({"ranks": ranks, "batch": 840 * ranks, "microbatch": 4, **other})


def layers_of(model: Model, plan: Plan) -> list[Layer]:
    return MAKERS[model.kind](model, plan)  # type: ignore[operator, no-any-return]


def test_presets_are_there():
    assert {model.kind for model in MODELS} == set(MAKERS)


@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_sums_are_the_closed_forms(model, recompute):
    layers = layers_of(model, plan(recompute=recompute))
    work = flops(model, 4, recomputation=recompute)
    assert sum(step.flops for layer in layers for step in layer.forward) == work.forward
    assert sum(step.flops for layer in layers for step in layer.weight) <= work.forward
    assert sum(layer.flops for layer in layers) == work.training
    assert sum(sum(layer.parameters.values()) for layer in layers) == parameters(model).total


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_layers_are_well_formed(model):
    layers = layers_of(model, plan(ranks=2, recompute="full"))
    assert len({layer.name for layer in layers}) == len({id(layer) for layer in layers})
    for layer in layers:
        for steps, known in ((layer.forward, ()), (layer.backward, ()), (layer.weight, layer.backward)):
            seen = {"", *(step.name for step in known)}
            for step in steps:
                assert step.name not in seen
                assert set(step.after or ()) <= seen
                seen.add(step.name)
                assert step.bytes > 0 or step.collective is not None


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_halved_numbers_halve_the_bytes(model):
    """Activations and weights of 2 instead of 4 bytes; all else has a size of its own."""
    half, full = (layers_of(model, plan(numbers=Numbers(compute=kind))) for kind in ("bf16", "fp32"))
    for small, large in zip(half, full, strict=True):
        assert large.boundary == 2 * small.boundary
        assert large.working == 2 * small.working
        for one, other in zip(small.forward, large.forward, strict=True):
            assert one.name == "lookup" or other.bytes == 2 * one.bytes


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_recomputation_trades_saved_for_working(model):
    kept, again = layers_of(model, plan()), layers_of(model, plan(recompute="full"))
    for one, other in zip(kept, again, strict=True):
        assert 0 <= other.saved <= one.saved
        assert other.saved + other.working >= one.saved
        assert other.boundary == one.boundary
    if model.kind in ("resnet", "gnmt"):
        assert sum(layer.saved for layer in again) < sum(layer.saved for layer in kept) / 2


def test_alike_blocks_are_one_object():
    layers = resnet_layers(load_model("resnet-152"), plan())
    times = Counter(layer.name for layer in layers if layer.name.endswith("block 2"))
    assert times == {
        f"stage {stage} block 2": n - 1 for stage, n in zip((1, 2, 3, 4), (3, 8, 36, 3), strict=True)
    }
    assert len(layers) == 1 + 50 + 1
    assert len({id(layer) for layer in layers}) == 1 + 8 + 1


def test_resnet_sizes():
    """arXiv 1512.03385, table 1: 56 x 56 x 256 to 7 x 7 x 2048; 4 samples of 2-byte elements."""
    layers = resnet_layers(load_model("resnet-50"), plan())
    sides = [56] * 4 + [28] * 4 + [14] * 6 + [7] * 3
    channels = [64] + [256] * 3 + [512] * 4 + [1024] * 6 + [2048] * 3
    assert [layer.boundary for layer in layers[:-1]] == [
        4 * 2 * side**2 * channel for side, channel in zip(sides, channels, strict=True)
    ]
    stem = {step.name: step.bytes for step in layers[0].forward}
    assert stem["convolution"] == 2 * (4 * 224**2 * 3 + 49 * 3 * 64 + 4 * 112**2 * 64)
    assert stem["convolution norm"] == 2 * 3 * 4 * 112**2 * 64


def test_what_the_translator_sends():
    """Per token and hidden unit: output and embedded target in the encoder, output and context in the decoder."""
    layers = gnmt_layers(load_model("gnmt"), plan(sequence=30))
    unit = 4 * 30 * 1024 * 2
    assert [layer.boundary // unit for layer in layers[:-1]] == [2, 3, 2, 2, 2, 2, 2, 2, 1]
    assert [layer.name for layer in layers][3:6] == ["encoder", "encoder", "first decoder"]
    assert layers[3] is layers[4]


def test_selective_recomputation_of_the_translator():
    model = load_model("gnmt")
    layers = gnmt_layers(model, plan(recompute="selective"))
    assert sum(layer.flops for layer in layers) == flops(model, 4, recomputation="selective").training
    assert layers[5].saved == gnmt_layers(model, plan())[5].saved - 2 * 4 * 50 * 50


def test_dropout_keeps_masks():
    less, more = (gnmt_layers(load_model("gnmt"), plan(dropout=on)) for on in (False, True))
    assert more[3].saved - less[3].saved == 4 * 50 * 1024


@pytest.mark.parametrize("ranks", [1, 2, 8, 13, 26, 27, 128, 26 * 128])
@pytest.mark.parametrize("name", ["dlrm-mlperf", "dlrm-libra", "dlrm-astra-sim-1"])
def test_tables_are_divided_whole(name, ranks):
    model = load_model(name)
    if ranks > sum(t.count for t in model.tables) * model.tables[0].size:
        with pytest.raises(InputError, match=rf"dp {ranks}: expected at most .* \(nearest: "):
            shares(model, ranks)
        return
    found = shares(model, ranks)
    assert sum(share.columns for share in found) == sum(t.count * t.size for t in model.tables)
    assert sum(share.elements for share in found) == sum(t.count * t.size * t.pooling for t in model.tables)
    assert sum(share.parameters for share in found) == parameters(model).parts.get("embedding", 0)
    assert min(share.columns for share in found) > 0
    # No more apart than the largest piece: the last one given to the fullest rank went to the emptiest one.
    cuts = -(-ranks // sum(t.count for t in model.tables))
    largest = max(-(-t.size // cuts) * t.pooling for t in model.tables)
    loads = [share.elements for share in found]
    assert max(loads) - min(loads) <= largest


@pytest.mark.parametrize(("ranks", "even"), [(2, True), (8, False), (13, True), (64, False)])
def test_exchanged_bytes(ranks, even):
    """Every rank receives the sums of its 4 samples; what all send is what all receive."""
    model = load_model("dlrm-mlperf")
    all_columns = 26 * 128
    sent, returned = [], []
    for rank, share in enumerate(table_shares(model, plan(ranks))):
        layer = dlrm_layers(model, plan(ranks), rank)[0]
        there, back = (
            next(step for step in steps if step.collective is CollectiveType.ALL_TO_ALL)
            for steps in (layer.forward, layer.backward)
        )
        assert there.axes == back.axes == "dp+cp"
        assert bool(there.splits) == bool(back.splits) == (not even)
        assert there.size == ranks * 4 * share.columns * 2
        assert back.size == 4 * all_columns * 2
        sent.append(there.splits or (there.size // ranks,) * ranks)
        returned.append(back.splits or (back.size // ranks,) * ranks)
        assert sum(sent[-1]) == there.size and sum(returned[-1]) == back.size
    assert [tuple(column) for column in zip(*sent, strict=True)] == returned


def test_the_exchange_overlaps_the_bottom_mlp():
    layer = dlrm_layers(load_model("dlrm-mlperf"), plan(2))[0]
    after = {step.name: step.after for step in (*layer.forward, *layer.backward, *layer.weight)}
    assert after["bottom 1"] == ("",)
    assert after["interaction"] == ("exchange", "bottom 3 relu")
    assert after["bottom 3 relu backward"] == after["exchange backward"] == ("interaction backward",)
    assert after["table update"] == ("exchange backward",)


def test_ranks_with_equal_shares_have_equal_layers():
    model, ranks = load_model("dlrm-libra"), 8
    assert len(set(table_shares(model, plan(ranks)))) == 1
    one, other = (dlrm_layers(model, plan(ranks), rank) for rank in (0, 7))
    assert [layer.forward for layer in one] == [layer.forward for layer in other]
    assert [layer.parameters for layer in one] == [layer.parameters for layer in other]


def test_table_update_grows_with_the_optimizer():
    updates = [
        dlrm_layers(load_model("dlrm-mlperf"), plan(2, optimizer=optimizer))[0].weight[0]
        for optimizer in ("sgd", "adam")
    ]
    assert updates[0].name == "table update"
    # 2 x 4 samples, 13 tables of 128 columns, two states of 4 bytes that are read and written
    assert updates[1].bytes - updates[0].bytes == 8 * 13 * 128 * 2 * 2 * 4


@given(st.sampled_from([1, 2, 4]), st.sampled_from(["none", "full"]))
def test_columns_of_a_stack_are_divided(tp, recompute):
    given = plan(ranks=tp, recompute=recompute, parallel=Parallel(tp=tp))
    layers = stack_layers(STACK, given)
    assert sum(tp * layer.flops for layer in layers) == flops(STACK, 4, recomputation=recompute).training
    assert sum(tp * layer.parameters["dp+cp"] for layer in layers) == parameters(STACK).total
    if tp > 1:
        gather, reduce = layers[0].forward[-1], layers[0].backward[-1]
        assert (gather.collective, gather.size) == (CollectiveType.ALL_GATHER, 4 * 5 * 24 // tp * 2)
        assert (reduce.collective, reduce.size) == (CollectiveType.ALL_REDUCE, 4 * 5 * 11 * 2)
        assert layers[0].boundary == tp * gather.size


def test_layers_of_a_stack():
    assert isinstance(STACK, Stack)
    names = [layer.name for layer in stack_layers(STACK, plan())]
    assert names == ["wide", "wide", "wide", "layer 1", "wide (2)", "head"]


@pytest.mark.parametrize(
    ("model", "changes", "message"),
    [
        ("resnet-50", {"parallel": Parallel(tp=2)}, "tp 2: .* 'resnet' is divided by dp and pp only"),
        ("gnmt", {"parallel": Parallel(cp=2)}, "cp 2: expected 1"),
        ("dlrm-mlperf", {"parallel": Parallel(ep=2)}, "ep 2: expected 1"),
        ("resnet-50", {"recompute": "selective"}, "selective recomputation of 'ResNet-50'"),
        ("dlrm-mlperf", {"sequence": 7}, "sequence 7"),
        ("gnmt", {"causal": True}, "causal"),
    ],
)  # fmt: skip
def test_refused(model, changes, message):
    found = load_model(model)
    with pytest.raises(InputError, match=message):
        layers_of(found, plan(ranks=2, **changes))


def test_refused_widths_and_coordinates():
    with pytest.raises(
        InputError, match=r"tp 3: expected a divisor of n 8 of layer 'layer 1' \(nearest: 2\)"
    ):
        stack_layers(STACK, plan(3, parallel=Parallel(tp=3)))
    with pytest.raises(InputError, match="tp 2: expected 1, layer 'layer 0' is a convolution"):
        stack_layers(IMAGES, plan(2, parallel=Parallel(tp=2)))
    with pytest.raises(InputError, match="rank 2: expected a coordinate along dp, 0 to 1"):
        dlrm_layers(load_model("dlrm-mlperf"), plan(2), 2)


def test_dlrm_bytes_of_products():
    """A reference: every product of the MLPs reads two operands and writes one."""
    model = load_model("dlrm-mlperf")
    assert isinstance(model, Dlrm)
    layer = dlrm_layers(model, plan())[0]
    products = [step for step in layer.forward if step.name.startswith("bottom") and step.flops]
    sizes = list(pairwise([13, 512, 256, 128]))
    assert [step.bytes for step in products] == [2 * (4 * k + k * n + 4 * n) for k, n in sizes]
    weights = [step for step in reversed(layer.weight) if step.name.startswith("bottom")]
    assert [step.bytes for step in weights] == [2 * (4 * k + 4 * n) + 2 * 4 * k * n for k, n in sizes]
