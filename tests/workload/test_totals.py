"""What a trace amounts to, against sums over every rank."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.trace import GraphBuilder, NodeType, Trace
from armillary.workload.generate import generate
from armillary.workload.models import flops, read_model
from armillary.workload.plan.schema import Data, Parallel, Plan
from armillary.workload.totals import totals

MODEL = {
    "kind": "decoder", "name": "small", "source": ["a test"], "layers": 4, "hidden": 64, "vocabulary": 512,
    "context": 32, "tied": False, "norm": "rms", "activation": "swiglu", "attention": {"heads": 8},
    "mlp": {"size": 256},
}  # fmt: skip


@settings(deadline=None, max_examples=20)
@given(
    st.sampled_from([(1, 1), (2, 1), (1, 2), (4, 2)]),
    st.sampled_from(["ddp", "zero-1", "fsdp"]),
    st.integers(1, 3),
)
def test_totals_are_sums_over_ranks(shape: tuple[int, int], sharding: str, steps: int) -> None:
    tp, pp = shape
    model = read_model(MODEL)
    data = Data.model_validate({"sharding": sharding})
    plan = Plan(ranks=16, batch=32, iterations=steps, parallel=Parallel(tp=tp, pp=pp), data=data)
    trace = generate(model, plan)
    found = totals(trace, steps)
    assert found.flops == flops(model, 32).training
    assert sum(ranks for ranks, _ in found.classes) == found.ranks == 16
    moved: Counter[str] = Counter()
    for rank in range(16):
        graph = trace.graph(rank)
        for node_type, name in ((NodeType.COMM_COLL_NODE, "collective"), (NodeType.COMM_SEND_NODE, "send")):
            moved[name] += int(graph.ints("comm_size")[graph.types == node_type].sum())
    assert round(steps * sum(row.total for row in found.traffic if row.operation == "send")) == moved["send"]
    rest = sum(row.total for row in found.traffic if row.operation != "send")
    assert round(steps * rest) == moved["collective"]


def test_sums_may_be_above_64_bits() -> None:
    b = GraphBuilder()
    for _ in range(4):
        b.compute("k", flops=2**62 + 1)
    b.compute("norm", flops=1, bytes=10)
    b.all_reduce("sum", 2**40)
    found = totals(Trace.replicate(b.graph(), ranks=1))
    assert found.flops == found.busiest == float(4 * (2**62 + 1))
    (row,) = found.traffic
    assert (row.operation, row.axes, row.ranks, row.calls, row.size) == ("all-reduce", "", None, 1, 2**40)
