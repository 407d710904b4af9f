"""Kernels of generated workloads name the GEMMs that their operations are."""

from __future__ import annotations

import pytest

from armillary.trace.gemm import GEMM, to_gemms
from armillary.workload.generate import generate
from armillary.workload.models import Decoder, load_model, preset_names
from armillary.workload.plan.schema import Plan

SMALL = [
    name
    for name in preset_names()
    if name not in ("deepseek-v3", "deepseek-v3.2", "glm-5", "transformer-1t", "megatron-1t", "dlrm-mlperf")
]


@pytest.mark.parametrize("name", SMALL[::2])
def test_gemms_have_the_operations_of_their_kernel(name: str) -> None:
    """Groups of experts are padded to whole rows; so are no others, and without a mask attention is exact, too."""
    model = load_model(name)
    plan: dict[str, object] = {"ranks": 2, "batch": 4, "microbatch": 2}
    if isinstance(model, Decoder):
        plan |= {"sequence": 64, "attention": "unfused", "causal": False}
    graph = generate(model, Plan.model_validate(plan)).graphs[0]
    codes, lists = graph.int_lists(GEMM)
    operations = graph.ints("num_ops", 0)
    named = [sum(each.operations for each in to_gemms(numbers)) for numbers in lists]
    padded = any("expert" in word for word in graph.names())
    assert (codes >= 0).sum() > 3
    for node in range(graph.n_nodes):
        if codes[node] >= 0:
            assert operations[node] <= named[codes[node]] <= operations[node] * (2 if padded else 1), (
                graph.node(node)
            )


def test_gradients_have_the_shapes_of_gradients() -> None:
    """Y = XW of (m, k) (k, n): dX = dY Wᵀ is (m, n) (n, k), dW = Xᵀ dY is (k, m) (m, n)."""
    plan = Plan.model_validate({"ranks": 1, "batch": 2, "microbatch": 2, "sequence": 64})
    graph = generate(load_model("llama-2-7b"), plan).graphs[0]
    codes, lists = graph.int_lists(GEMM)
    found = {name: lists[code] for name, code in zip(graph.names(), codes.tolist(), strict=True) if code >= 0}
    assert found["mlp.down.gemm"] == (1, 1, 128, 4096, 11008)
    assert found["mlp.down.input"] == (1, 1, 128, 11008, 4096)
    assert found["mlp.down.weight"] == (1, 1, 11008, 4096, 128)
