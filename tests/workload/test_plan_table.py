"""A table of plans against the formulas of `plan_formulas`."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from math import ceil
from typing import Any

import numpy as np
import pytest

from armillary.trace import CollectiveType, NodeType, Trace
from armillary.trace.grid import AXIS, FURTHER
from armillary.workload.generate import generate
from armillary.workload.layers.of_model import layers_of
from armillary.workload.models import Decoder, load_model, parameters
from armillary.workload.models.schema import Dlrm
from armillary.workload.plan.schema import Plan

from .mixture_formulas import mixture
from .plan_formulas import Moved, Size, add, decoder, operations

HUGE = "1 TB"


def moved(trace: Trace) -> Moved:
    """Count what a trace moves, over all ranks."""
    found: Moved = Counter()
    ranks = np.bincount(trace.rank_graph, minlength=len(trace.graphs)).tolist()
    for graph, many in zip(trace.graphs, ranks, strict=True):
        types, sizes, kinds = graph.types, graph.ints("comm_size", 0), graph.ints("comm_type", 0)
        groups, axes = graph.strings("pg_name"), graph.strings(AXIS)
        for at in range(graph.n_nodes):
            if types[at] == NodeType.COMM_COLL_NODE:
                operation = CollectiveType(int(kinds[at])).name.lower().replace("_", "-")
                # Tasks side by side have communicators of their own of the same ranks.
                axis_set = groups[1][groups[0][at]].partition(FURTHER)[0]
                add(found, operation, axis_set, many, int(sizes[at]))
            elif types[at] == NodeType.COMM_SEND_NODE:
                add(found, "send", axes[1][axes[0][at]], many, int(sizes[at]))
    return found


def counted(trace: Trace) -> int:
    """Return the operations of all ranks; a kernel that is bound by memory says 1."""
    ranks = np.bincount(trace.rank_graph, minlength=len(trace.graphs)).tolist()
    return sum(
        many * int(np.sum(ops[ops > 1]))
        for graph, many in zip(trace.graphs, ranks, strict=True)
        for ops in [graph.ints("num_ops", 0)]
    )


def asked(ranks: int, batch: int, **keys: Any) -> Plan:
    data = {"bucket": HUGE} | keys.pop("data", {})
    return Plan.model_validate({"ranks": ranks, "batch": batch, "data": data, "sequence": 2048, **keys})


def small(name: str, layers: int, **more: Any) -> Decoder:
    model = load_model(name)
    assert isinstance(model, Decoder)
    experts = model.experts and model.experts.model_copy(
        update={"dense_first": min(1, model.experts.dense_first)}
    )
    return model.model_copy(update={"layers": layers, "experts": experts, **more})


GPT, LLAMA, QWEN = small("megatron-22b", 8), small("llama-3-8b", 8), small("llama-2-7b", 4, tied=True)
NORMED = small("qwen3-30b-a3b", 4, experts=None, mlp=LLAMA.mlp)
SP, NO_SP = {"sequence": True}, {"sequence": False}
DENSE = {
    "one rank": (GPT, asked(1, 2)),
    "dp": (GPT, asked(8, 16)),
    "dp, bf16 gradients": (GPT, asked(8, 16, numbers={"gradients": "bf16"})),
    "dp, fp32": (LLAMA, asked(8, 16, numbers={"compute": "fp32"})),
    "zero-1": (LLAMA, asked(8, 32, data={"sharding": "zero-1"})),
    "zero-2": (LLAMA, asked(8, 32, data={"sharding": "zero-2"})),
    "zero-3": (LLAMA, asked(8, 32, data={"sharding": "zero-3"})),
    "fsdp": (LLAMA, asked(8, 32, data={"sharding": "fsdp"})),
    "fsdp x tp": (LLAMA, asked(8, 32, data={"sharding": "fsdp"}, parallel={"tp": 2} | SP)),
    "tp": (GPT, asked(8, 4, parallel={"tp": 8} | NO_SP)),
    "tp, full": (GPT, asked(8, 4, recompute="full", parallel={"tp": 8} | NO_SP)),
    "sp": (GPT, asked(8, 4, parallel={"tp": 8} | SP)),
    "sp, selective": (GPT, asked(8, 4, recompute="selective", attention="unfused", parallel={"tp": 8} | SP)),
    "sp, full": (LLAMA, asked(8, 4, recompute="full", parallel={"tp": 8} | SP)),
    "sp, fp8": (LLAMA, asked(8, 4, numbers={"compute": "fp8"}, parallel={"tp": 8} | SP)),
    "norms of heads, tp": (NORMED, asked(4, 4, parallel={"tp": 4} | NO_SP)),
    "norms of heads, sp": (NORMED, asked(4, 4, parallel={"tp": 4} | SP)),
    "pp": (GPT, asked(4, 8, parallel={"pp": 4})),
    "gpipe": (GPT, asked(4, 8, parallel={"pp": 4}, pipeline={"schedule": "gpipe"})),
    "interleaved": (GPT, asked(4, 8, parallel={"pp": 4}, pipeline={"schedule": "interleaved", "virtual": 2})),
    "interleaved, one rank": (GPT, asked(2, 8, parallel={"tp": 2}, pipeline={"schedule": "interleaved", "virtual": 2})),
    "zero-bubble": (GPT, asked(4, 8, parallel={"pp": 4}, pipeline={"schedule": "zero-bubble"})),
    "zero-bubble, side by side": (
        LLAMA,
        asked(8, 8, parallel={"tp": 2, "pp": 4}, pipeline={"schedule": "zero-bubble", "overlap": True}),
    ),
    "tied, pp": (QWEN, asked(8, 8, parallel={"tp": 2, "pp": 2})),
    "cp ring": (LLAMA, asked(8, 4, parallel={"tp": 2, "cp": 4})),
    "cp ring, full": (LLAMA, asked(8, 4, recompute="full", parallel={"tp": 2, "cp": 4})),
    "cp gather": (LLAMA, asked(8, 4, parallel={"tp": 2, "cp": 4, "context": "all-gather"})),
    "fused loss": (LLAMA, asked(8, 4, loss="fused", parallel={"tp": 4})),
    "cp all-to-all": (LLAMA, asked(8, 4, parallel={"tp": 2, "cp": 4, "context": "all-to-all"})),
    "cp all-to-all, full": (GPT, asked(8, 4, recompute="full", parallel={"cp": 4, "context": "all-to-all"})),
    "all of them": (LLAMA, asked(64, 32, data={"sharding": "zero-1"}, parallel={"tp": 4, "cp": 2, "pp": 4})),
    "window": (small("gpt-oss-120b", 4, experts=None, mlp=LLAMA.mlp), asked(4, 4, parallel={"tp": 4})),
}  # fmt: skip
MIX, DEEP = small("mixtral-8x7b", 4), small("deepseek-v3", 4)
OSS, QMOE = small("gpt-oss-120b", 4), small("qwen3-30b-a3b", 4)
EXPERTS = {
    "ep": (MIX, asked(8, 16, parallel={"ep": 8})),
    "ep, zero-1": (MIX, asked(16, 32, data={"sharding": "zero-1"}, parallel={"ep": 4})),
    "ep x tp, the same tokens": (MIX, asked(8, 8, parallel={"tp": 2, "ep": 4} | NO_SP)),
    "ep x etp": (MIX, asked(16, 16, parallel={"tp": 4, "ep": 4} | SP)),
    "ep, etp 1": (MIX, asked(16, 16, parallel={"tp": 4, "ep": 8, "etp": 1} | SP)),
    "ep, full": (QMOE, asked(8, 16, recompute="full", parallel={"ep": 8})),
    "ep, fp8": (QMOE, asked(8, 16, numbers={"compute": "fp8"}, parallel={"ep": 8})),
    "ep, norms of heads": (QMOE, asked(8, 16, parallel={"tp": 4, "ep": 8, "etp": 1} | SP)),
    "ep, sinks and biases": (OSS, asked(8, 16, parallel={"tp": 2, "ep": 8, "etp": 1} | SP)),
    "latent, experts, shared expert": (DEEP, asked(64, 64, parallel={"tp": 8, "ep": 64, "etp": 1} | SP)),
    "latent, nodes, fp8": (DEEP, asked(64, 64, numbers={"compute": "fp8"}, parallel={"ep": 64}, experts={"domain": 8})),
    "latent, pp": (DEEP, asked(64, 64, parallel={"ep": 16, "pp": 4})),
    "groups of two nodes": (DEEP, asked(64, 64, parallel={"ep": 64}, experts={"domain": 4})),
}  # fmt: skip


def compare(found: Moved, expected: Moved) -> None:
    keys = sorted(set(found) | set(expected))
    table = [(key, found[key], expected[key]) for key in keys if found[key] != expected[key]]
    assert not table, "\n".join(
        f"{key}: {ours:,} but the formula gives {theirs:,}" for key, ours, theirs in table
    )


@pytest.mark.parametrize("name", DENSE)
def test_dense_plans(name: str) -> None:
    model, plan = DENSE[name]
    trace, size = generate(model, plan), Size(model, plan)
    compare(moved(trace), decoder(size))
    assert counted(trace) == operations(size)


@pytest.mark.parametrize("name", EXPERTS)
def test_plans_with_experts(name: str) -> None:
    model, plan = EXPERTS[name]
    trace, size = generate(model, plan), Size(model, plan)
    compare(moved(trace), mixture(size))
    assert counted(trace) == operations(size)


def test_resnet() -> None:
    """25,557,032 parameters and 4,089,184,256 multiply-adds (torchvision's ``resnet50``); of the forward pass."""
    plan = Plan.model_validate({"ranks": 8, "batch": 64, "microbatch": 8, "data": {"bucket": HUGE}})
    trace = generate(load_model("resnet-50"), plan)
    compare(
        moved(trace),
        Counter({("all-reduce", "dp+cp", "calls"): 8, ("all-reduce", "dp+cp", "bytes"): 8 * 4 * 25_557_032}),
    )
    assert counted(trace) == 64 * 6 * 4_089_184_256  # that of the images is counted, as in published sums


@pytest.mark.parametrize("tp", [1, 2])
def test_vision_transformer(tp: int) -> None:
    """86,567,656 parameters (torchvision's ``vit_b_16``), products of 12 layers of 768 on 197 tokens."""
    parallel = {"tp": tp, "sequence": False}
    plan = Plan.model_validate(
        {"ranks": 8, "batch": 64, "microbatch": 8, "data": {"bucket": HUGE}, "parallel": parallel}
    )
    trace = generate(load_model("vit-b-16"), plan)
    found, hidden, tokens = moved(trace), 768, 197
    divided = 12 * (12 * hidden**2 + 3 * hidden + 4 * hidden)  # products with the biases of their columns
    rank = 86_567_656 - divided + divided // tp
    assert found["all-reduce", "dp+cp", "bytes"] == 8 * 4 * rank
    assert found["all-reduce", "tp", "bytes"] == (tp > 1) * 8 * 2 * 12 * 4 * (tokens * 8 * hidden * 2)
    layers = 6 * 64 * 12 * tokens * (12 * hidden**2 + 2 * tokens * hidden)
    assert counted(trace) == layers + 64 * tp * (4 * 196 * hidden * hidden + 6 * hidden * 1000)


def test_recommendation() -> None:
    """Tables are divided over ranks, sums exchanged forward, gradients back; the rest is replicated (1906.00091)."""
    model = load_model("dlrm-mlperf")
    assert isinstance(model, Dlrm)
    plan = Plan.model_validate({"ranks": 8, "batch": 2048, "microbatch": 256, "data": {"bucket": HUGE}})
    trace, found = generate(model, plan), Counter[Any]()
    mlps = [[13, 512, 256, 128], [27 * 26 // 2 + 128, 1024, 1024, 512, 256, 1]]
    weights = sum(a * b for sizes in mlps for a, b in pairwise(sizes))
    biases = sum(sum(sizes[1:]) for sizes in mlps)
    add(found, "all-reduce", "dp+cp", 8, 4 * (weights + biases))
    found["all-to-all", "dp+cp", "calls"], found["all-to-all", "dp+cp", "bytes"] = 16, 2 * 26 * 128 * 2048 * 2
    compare(moved(trace), found)
    assert counted(trace) == 2048 * 6 * (weights + 27 * 27 * 128)
    # Rows are updated as they are looked up: the optimizer step has what is replicated, 8 to clip, 4 + 2 * 12 to update
    # bytes of each, and 4 + 2 to copy.
    (step,) = (each for each in trace.graphs[0].names() if each == "optimizer")
    at = trace.graphs[0].names().index(step)
    assert trace.graphs[0].ints("tensor_size", 0)[at] == 42 * (weights + biases)


@pytest.mark.parametrize(
    ("sharding", "numbers", "norm", "update", "cleared"),
    [
        # fp32: the norm reads, clipping reads and writes, Adam reads the gradient and reads and writes master, momentum
        # and variance, and bf16 weights are copied from masters.
        ("ddp", {}, 4, 8 + 28 + 6, 4),
        ("zero-1", {}, 4, 8 + 28 + 6, 4),
        ("zero-1", {"gradients": "bf16"}, 2 + 4 + 4, 8 + 28 + 6, 2),
        ("zero-1", {"fused": False}, 4, 8 + 28 + 6, 0),
        ("zero-2", {}, 4, 8 + 28 + 6, 0),
        # Shards are masters, cast as they are gathered; no buffer of gradients stays.
        ("fsdp", {}, 4, 8 + 28, 0),
        ("ddp", {"compute": "fp32"}, 4, 8 + 28, 4),
    ],
)
def test_bytes_of_an_optimizer_step(sharding, numbers, norm, update, cleared) -> None:
    model, plan = LLAMA, asked(4, 8, data={"sharding": sharding, "clear": True}, numbers=numbers)
    graph = generate(model, plan).graphs[0]
    whole = parameters(model).total
    owned = whole if sharding == "ddp" else sum(ceil(each / 4) for each in _buckets(model, sharding))
    words = {"gradient norm": norm * owned, "optimizer": update * owned}
    words |= {"optimizer: clear gradients": cleared * whole} if cleared else {}
    found = {
        name: int(size)
        for name, size, kind in zip(graph.names(), graph.ints("tensor_size", 0), graph.types, strict=True)
        if kind == NodeType.COMP_NODE and (name.startswith("optimizer") or name == "gradient norm")
    }
    assert found == words


def test_gradients_are_checked_and_scaled_before_they_are_reduced() -> None:
    """Megatron-LM's defaults: one reads the buffer, the other reads and writes it; FSDP averages as it reduces."""
    weights = parameters(LLAMA).total

    def kernels(ranks: int, sharding: str) -> dict[str, int]:
        data = {"sharding": sharding, "average": "kernel", "check": True}
        graph = generate(LLAMA, asked(ranks, 8, data=data)).graphs[0]
        sizes = zip(graph.names(), graph.ints("tensor_size", 0), strict=True)
        return {name: int(size) for name, size in sizes if name in ("check gradients", "scale gradients")}

    assert kernels(4, "zero-1") == {"check gradients": 4 * weights, "scale gradients": 8 * weights}
    assert kernels(1, "ddp") == {"check gradients": 4 * weights}
    assert not kernels(4, "fsdp")


def _buckets(model: Decoder, sharding: str) -> list[int]:
    """Return the parameters that are sharded together: all with one bucket, each layer with FSDP."""
    if sharding != "fsdp":
        return [parameters(model).total]
    plan = asked(1, 2)
    return [sum(layer.parameters.values()) for layer in layers_of(model, plan)]
