"""Adapters beside frozen weights: parameters, operations, collectives and memory, by formulas written down here."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.trace import CollectiveType, NodeType
from armillary.trace.grid import RankGrid
from armillary.workload.generate import generate, memory_of
from armillary.workload.layers.layer import Layer
from armillary.workload.layers.lora import adapter_parameters
from armillary.workload.layers.of_model import layers_of
from armillary.workload.memory.states import states
from armillary.workload.models import load_model, parameters, read_model
from armillary.workload.models.schema import Decoder
from armillary.workload.plan.ranks import rank_grid
from armillary.workload.plan.schema import Plan

TARGETS = ("qkv", "out", "up", "down")
HIDDEN, INNER, HEADS, KV, SIZE, LAYERS, SEQUENCE = 256, 768, 8, 4, 32, 4, 64


def model() -> Decoder:
    found = read_model(
        {
            "kind": "decoder", "name": "small", "layers": LAYERS, "hidden": HIDDEN, "vocabulary": 512,
            "context": SEQUENCE, "attention": {"heads": HEADS, "kv_heads": KV}, "mlp": {"size": INNER},
            "activation": "swiglu", "tied": False, "norm": "rms",
        }
    )  # fmt: skip
    assert isinstance(found, Decoder)
    return found


def plan(**keys: Any) -> Plan:
    return Plan.model_validate({"ranks": 8, "batch": 8, "sequence": SEQUENCE, **keys})


def ends(tp: int) -> dict[str, tuple[int, int]]:
    """Return inputs and outputs of each target on a rank."""
    width = (HEADS + 2 * KV) * SIZE
    return {
        "qkv": (HIDDEN, width // tp), "out": (HEADS * SIZE // tp, HIDDEN),
        "up": (HIDDEN, 2 * INNER // tp), "down": (INNER // tp, HIDDEN),
    }  # fmt: skip


def trained(layers: list[Layer]) -> int:
    return sum(sum(layer.parameters.values()) for layer in layers)


@given(st.integers(1, 32), st.sets(st.sampled_from(TARGETS), min_size=1), st.sampled_from([1, 2, 4]))
def test_parameters_and_operations(rank: int, targets: set[str], tp: int) -> None:
    own = {"parallel": {"tp": tp}}
    base, found = (layers_of(model(), plan(**own, **more)) for more in (
        {}, {"lora": {"rank": rank, "targets": sorted(targets)}}
    ))  # fmt: skip
    sides = ends(tp)
    assert trained(found) == LAYERS * sum(rank * sum(sides[each]) for each in targets)
    assert sum(sum(layer.frozen.values()) for layer in found) == trained(base)
    if tp == 1:
        assert trained(found) == adapter_parameters(
            model(), plan(lora={"rank": rank, "targets": sorted(targets)}).lora
        )
    # Every rank has A of a GEMM by columns, and B of one by rows, and makes a part of its gradient.
    whole = {"qkv": HIDDEN, "out": HIDDEN, "up": HIDDEN, "down": HIDDEN}
    parts = sum(rank * whole[each] for each in targets) if tp > 1 else 0
    tokens = SEQUENCE
    for before, after in zip(base[1:-1], found[1:-1], strict=True):
        weights = sum(step.flops for step in before.weight)
        # A and B, each forward and for both gradients, 2 operations a multiply-add.
        assert after.flops == before.flops - weights + sum(
            6 * tokens * rank * sum(sides[each]) for each in targets
        )
        assert after.partial == parts
        # Adapters have no collectives; what was gathered for gradients of frozen weights alone is not.
        here, there = (
            Counter(s.collective for s in (*x.forward, *x.backward) if s.collective) for x in (before, after)
        )
        gone = sum(each not in targets for each in ("qkv", "up")) if tp > 1 else 0
        assert here - there == Counter({CollectiveType.ALL_GATHER: gone} if gone else {}) and not there - here
    head = found[-1]
    assert head.flops == base[-1].flops - sum(step.flops for step in base[-1].weight)
    assert not found[0].backward and not found[0].weight


def bytes_of(made: Plan) -> Counter[tuple[str, int]]:
    """Return the bytes of collectives of rank 0 over replicas and, of gradients, over tp, by type and members."""
    trace = generate(model(), made)
    graph, found = trace.graph(0), Counter[tuple[str, int]]()
    names, kinds, sizes = graph.names(), graph.ints("comm_type", -1), graph.ints("comm_size", 0)
    for node in range(graph.n_nodes):
        if graph.types[node] == NodeType.COMM_COLL_NODE and (
            "gradients" in names[node] or "weights" in names[node]
        ):
            found[CollectiveType(int(kinds[node])).name, "partial" in names[node]] += int(sizes[node])
    return found


@pytest.mark.parametrize("tp", (1, 2))
@pytest.mark.parametrize("sharding", ("ddp", "zero-1", "fsdp"))
def test_bytes_of_every_collective(sharding: str, tp: int) -> None:
    made = plan(batch=8 // tp, parallel={"tp": tp}, data={"sharding": sharding}, lora={"rank": 4})
    layers, replicas = layers_of(model(), made), 8 // tp
    own, held = trained(layers), sum(sum(layer.held.values()) for layer in layers)
    part = sum(layer.partial for layer in layers)
    expected = {
        "ddp": {("ALL_REDUCE", False): 4 * own},
        "zero-1": {("REDUCE_SCATTER", False): 4 * own, ("ALL_GATHER", False): 2 * own // replicas},
        # Twice, forward and backward; the last layer is used for both in a row. Nothing of frozen weights is reduced.
        "fsdp": {
            ("REDUCE_SCATTER", False): 4 * own,
            ("ALL_GATHER", False): 2 * (2 * held - sum(layers[-1].held.values())) // replicas,
        },
    }[sharding]
    if tp > 1:
        expected["ALL_REDUCE", True] = 4 * part
    assert bytes_of(made) == expected


@pytest.mark.parametrize("sharding", ("ddp", "zero-1", "fsdp"))
def test_memory(sharding: str) -> None:
    made = plan(data={"sharding": sharding}, lora={"rank": 4})
    grid: RankGrid = rank_grid(made)
    layer = layers_of(model(), made)[1]
    own, cold = sum(layer.parameters.values()), sum(layer.frozen.values())
    found = states(layer, made, grid)
    if sharding == "fsdp":
        # Shards: frozen ones in bf16, trained ones in fp32, which are the master copy.
        assert (found.weights, found.gradients, found.optimizer) == (
            (2 * cold + 4 * own) // 8,
            4 * own // 8,
            8 * own // 8,
        )
        assert (found.gathered, found.reduced) == (2 * (cold + own), 6 * own)
    else:
        shards = 8 if sharding == "zero-1" else 1
        assert (found.weights, found.gradients, found.optimizer) == (
            2 * (cold + own),
            4 * own,
            12 * own // shards,
        )
    whole = layers_of(model(), plan(data={"sharding": sharding}))[1]
    # Operands of adapters are kept, in bf16: X as before, X·A besides.
    assert layer.saved == whole.saved + 4 * 2 * SEQUENCE * 4
    less = layers_of(model(), plan(data={"sharding": sharding}, lora={"rank": 4, "targets": ["out"]}))[1]
    assert less.saved == whole.saved + 2 * SEQUENCE * (4 - HIDDEN - HIDDEN - INNER)


def test_a_model_fits_that_does_not_otherwise() -> None:
    keys = {"ranks": 8, "batch": 8, "parallel": {"tp": 4}, "data": {"sharding": "zero-1"}}
    llama = load_model("llama-2-70b")
    whole = memory_of(llama, Plan.model_validate(keys))["allocated_bytes"]
    less = memory_of(llama, Plan.model_validate({**keys, "lora": {"rank": 16}}))["allocated_bytes"]
    # 2 bytes of weights of 69 G parameters on 4 ranks remain of 6, and the optimizer's 12 on 8.
    cold = parameters(llama).total / 4
    assert 2 * cold < less < whole - (4 + 6) * 0.9 * cold


@pytest.mark.parametrize(
    ("name", "targets", "message"),
    (
        ("mixtral-8x7b", ["up"], "has experts, expected qkv or out"),
        ("deepseek-v3", ["qkv"], "has latent attention, expected out"),
        ("resnet-50", ["out"], "expected a model of kind 'decoder'"),
    ),
)
def test_models_without_the_targets_are_refused(name: str, targets: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        layers_of(
            load_model(name),
            Plan.model_validate({"ranks": 1, "batch": 1, "lora": {"rank": 4, "targets": targets}}),
        )


@pytest.mark.parametrize(
    "keys",
    (
        {"data": {"sharding": "parameter-server"}}, {"parallel": {"tp": 2, "overlap": True}}, {"serve": {"prompt": 8}},
        {"lora": {"rank": 4, "targets": []}},
    ),
)  # fmt: skip
def test_plans_without_adapters_are_refused(keys: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"lora|at least 1"):
        plan(**{"lora": {"rank": 4}, **keys})


@pytest.mark.parametrize("schedule", ("1f1b", "interleaved", "zero-bubble"))
def test_every_schedule_runs(schedule: str) -> None:
    virtual = 2 if schedule == "interleaved" else 1
    made = plan(
        parallel={"pp": 2},
        pipeline={"schedule": schedule, "virtual": virtual},
        lora={"rank": 4},
        microbatch=1,
    )
    assert generate(model(), made).graph(0).n_nodes > 0
