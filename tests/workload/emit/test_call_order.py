"""Members of a group call it in one order, however fast each of them is."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from armillary.base.errors import InputError
from armillary.engine import simulate
from armillary.platform.files.native import load_platform
from armillary.trace import NodeType, Trace
from armillary.trace.axis_sets import AxisSets
from armillary.trace.expand import expand
from armillary.trace.reach import ancestors
from armillary.trace.structure import issue_order
from armillary.workload.generate import generate
from armillary.workload.models import load_model
from armillary.workload.plan.schema import Plan

DENSE = load_model("llama-2-7b").model_copy(update={"layers": 4})
EXPERTS = load_model("qwen3-30b-a3b").model_copy(update={"layers": 4})


@st.composite
def traces(draw: st.DrawFn, *, overlap: bool | None = None) -> Trace:
    def of(*values: Any) -> Any:
        return draw(st.sampled_from(values))

    tp, cp, dp, pp, experts = of(1, 2, 4), of(1, 2), of(1, 2), of(1, 2, 4), of(False, True)
    schedule = of("gpipe", "1f1b", "interleaved", "zero-bubble", "dualpipe")
    parallel = {"tp": tp, "cp": cp, "pp": pp, "sequence": tp > 1 and (experts or of(False, True))}
    # Experts over the ranks of tp, of dp, or of both: their groups may be those of dense layers.
    parallel |= {"ep": of(*(n for n in (1, 2, 4) if tp * cp * dp % n == 0)), "etp": 1} if experts else {}
    pipeline = {"schedule": schedule, "overlap": of(False, True) if overlap is None else overlap}
    pipeline |= {"virtual": 2} if schedule == "interleaved" else {}
    wish = {"ranks": tp * cp * dp * pp, "batch": dp * of(1, 2, 4), "sequence": 512, "parallel": parallel}
    wish |= {
        "data": {"sharding": of("ddp", "zero-1", "zero-2", "zero-3", "fsdp")},
        "recompute": of("none", "full"),
    }
    wish |= {"pipeline": pipeline | {"scatter": of(False, True)}, "numbers": {"compute": of("bf16", "fp8")}}
    try:
        return generate(EXPERTS if experts else DENSE, Plan.model_validate(wish))
    except (InputError, ValidationError):
        assume(False)
        raise


def ordered(graph: Any, before: int, after: int) -> bool:
    """Return whether a node is issued before another whatever takes how long: `after` waits for it, or for more."""
    mark = np.zeros(graph.n_nodes, np.bool_)
    mark[after] = True
    waited = ancestors(graph, mark)
    ptr, parent = graph.parents()
    return bool(waited[before] or (waited[parent[ptr[before] : ptr[before + 1]]].all() and before < after))


@settings(max_examples=25, deadline=None)
@given(traces())
def test_calls_of_an_axis_set_have_one_order(trace: Trace) -> None:
    """Sets of other axes that happen to have the same ranks (dp and ep, say) are other communicators in frameworks."""
    axis_sets = AxisSets(trace)
    for graph in trace.graphs[:2]:
        calls = issue_order(graph)
        calls = calls[(graph.types == NodeType.COMM_COLL_NODE)[calls]]
        codes, names = graph.strings("pg_name")
        for code, name in enumerate(names):
            # The first calls are enough: later tasks repeat them.
            mine = calls[codes[calls] == code][:40].tolist()
            if axis_sets.all[axis_sets.find(name)].members.shape[1] > 1:
                assert all(ordered(graph, *pair) for pair in pairwise(mine)), name


@settings(max_examples=8, deadline=None)
@given(
    traces(overlap=True), st.dictionaries(st.integers(0, 63), st.sampled_from([0.5, 0.9, 0.999]), min_size=1)
)
def test_tasks_side_by_side_end_with_slow_ranks(trace: Trace, speed: dict[int, float]) -> None:
    assume(sum(graph.n_nodes for graph in trace.graphs) < 4000)
    assert ticks(trace, {rank % trace.n_ranks: value for rank, value in speed.items()}) > 0


def ticks(trace: Trace, speed: dict[int, float], ranks: int = 0) -> int:
    size = ranks or trace.n_ranks
    link = {"name": "node", "topology": "Switch", "size": size, "bandwidth": "50 GB/s", "latency": "1 us"}
    npu = {"peak": "300 TFLOP/s", "memory": {"bandwidth": "2 TB/s"}, "speed": speed}
    platform = load_platform({"network": [link], "npu": npu, "compute": {"roofline": True}})
    return simulate(trace, platform).total_ticks


@pytest.fixture(scope="module")
def reported() -> Trace:
    """The plan with which calls of two tasks on one communicator were first seen to meet in two orders."""
    parallel = {"tp": 2, "pp": 4}
    plan = {"ranks": 64, "batch": 64, "sequence": 512, "parallel": parallel, "pipeline": {"overlap": True}}
    return generate(load_model("llama-2-7b"), Plan.model_validate(plan))


def test_one_slow_rank(reported: Trace) -> None:
    slow, fast = ticks(reported, {3: 0.9}), ticks(reported, {})
    assert fast < slow < fast / 0.9


def test_tasks_side_by_side_have_communicators_of_their_own(reported: Trace) -> None:
    names = set(reported.graphs[0].strings("pg_name")[1])
    assert {"tp#1", "tp#2", "dp+cp"} <= names
    axis_sets = AxisSets(reported)
    one, other = (axis_sets.all[axis_sets.find(name)] for name in ("tp#1", "tp#2"))
    assert one.base != other.base
    np.testing.assert_array_equal(one.members, other.members)


def test_every_rank_written_out_behaves_the_same() -> None:
    plan = {
        "ranks": 8,
        "batch": 8,
        "sequence": 512,
        "parallel": {"tp": 2, "pp": 2},
        "pipeline": {"overlap": True},
    }
    trace = generate(DENSE, Plan.model_validate(plan))
    assert ticks(expand(trace), {3: 0.9}) == ticks(trace, {3: 0.9})
