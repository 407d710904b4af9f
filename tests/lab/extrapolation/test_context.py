"""Sequences over more or fewer ranks, by rings and by all-gathers, against generated runs, node by node."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_runs import MIXED, run, same_nodes, same_step, written

from armillary.base.errors import InputError
from armillary.lab.extrapolation import extrapolate, recognise
from armillary.lab.extrapolation.edit import with_dependencies
from armillary.lab.extrapolation.kernels import Nodes
from armillary.lab.extrapolation.rings import with_rounds
from armillary.trace import Trace
from armillary.trace.expand import expand
from armillary.trace.grid import AXIS

KINDS = ("ring", "all-gather")
SHARDINGS = ("ddp", "zero-1", "fsdp")


def of(cp: int, kind: str, tp: int = 1, pp: int = 1, dp: int = 2, **more: Any) -> Trace:
    """Generate a run whose sequences go over `cp` ranks."""
    parallel = {"cp": cp, "context": kind, **more.pop("parallel", {})}
    return run(tp, pp, dp, **more, parallel=parallel)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(
    ("sharding", "shape"), [("ddp", (2, 2, 2)), ("zero-1", (1, 1, 1)), ("fsdp", (2, 1, 1))]
)
def test_more_and_fewer_ranks(kind: str, causal: bool, sharding: str, shape: tuple[int, int, int]) -> None:
    more: dict[str, Any] = {"causal": causal, "data": {"sharding": sharding}}
    for old, new in ((2, 8), (4, 2)):
        made = extrapolate(written(of(old, kind, *shape, **more)), {"cp": new}).trace
        truth = of(new, kind, *shape, **more)
        same_nodes(made, truth)
        same_step(made, truth)
        for ours, theirs in zip(made.graphs, truth.graphs, strict=True):
            assert [each.tolist() for each in ours.parents()] == [each.tolist() for each in theirs.parents()]
            assert ours.names() == theirs.names()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "more",
    [
        {"recompute": "full"},
        {"pp": 2, "pipeline": {"schedule": "zero-bubble"}},
        {"pp": 2, "batches": 8, "pipeline": {"schedule": "interleaved", "virtual": 2}},
        {"model": MIXED},
    ],
    ids=str,
)
def test_kinds_of_runs(kind: str, more: dict[str, Any]) -> None:
    same_nodes(extrapolate(written(of(2, kind, **more)), {"cp": 4}).trace, of(4, kind, **more))


@pytest.mark.parametrize("kind", KINDS)
def test_with_other_axes(kind: str) -> None:
    data = {"sharding": "fsdp"}
    made = extrapolate(written(of(2, kind, 2, 2, 2, data=data)), {"cp": 4, "pp": 4, "dp": 8}).trace
    same_nodes(made, of(4, kind, 2, 4, 8, data=data))
    experts: dict[str, Any] = {"model": MIXED, "dp": 8, "parallel": {"ep": 4}}
    made = extrapolate(written(of(2, kind, **experts)), {"cp": 4}).trace
    same_nodes(made, of(4, kind, **experts))
    same_step(made, of(4, kind, **experts))


@pytest.mark.parametrize("sharding", SHARDINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_alone_it_is_recognised(kind: str, sharding: str) -> None:
    _, axes = recognise(expand(of(4, kind, dp=1, data={"sharding": sharding})))
    assert [(each.role, each.size) for each in axes] == [("cp", 4)]


@given(
    st.sampled_from(KINDS),
    st.sampled_from(SHARDINGS),
    st.booleans(),
    st.sampled_from([(2, 2), (4, 1), (1, 1)]),
)
@settings(max_examples=8, deadline=None)
def test_a_then_b_is_a_times_b(kind: str, sharding: str, causal: bool, steps: tuple[int, int]) -> None:
    trace = written(of(2, kind, causal=causal, data={"sharding": sharding}))
    first = extrapolate(trace, {"cp": 2 * steps[0]}).trace
    once = extrapolate(trace, {"cp": 2 * steps[0] * steps[1]}).trace
    same_nodes(extrapolate(first, {"cp": 2 * steps[0] * steps[1]}).trace, once)
    if steps == (1, 1):
        same_nodes(once, trace)


def test_a_ring_of_as_many_rounds_is_the_same() -> None:
    trace = written(of(4, "ring", causal=True))
    graph = trace.graphs[0]
    assert trace.grid is not None
    made = with_rounds(Nodes(graph, trace.grid), 4)
    assert made.names() == graph.names()
    assert [each.tolist() for each in made.parents()] == [each.tolist() for each in graph.parents()]
    for name in ("num_ops", "comm_size", "comm_src", "comm_dst"):
        assert made.ints(name, -1).tolist() == graph.ints(name, -1).tolist()
    assert made.strings(AXIS)[0].tolist() == graph.strings(AXIS)[0].tolist()


def test_rounds_that_are_not_known_are_refused() -> None:
    trace = written(of(4, "ring"))
    graph = trace.graphs[0]
    ptr, parents = graph.parents()
    data = [parents[a:b].tolist() for a, b in pairwise(ptr.tolist())]
    data[graph.names().index("core.attend 2")].pop()
    wrong = replace(trace, graphs=(with_dependencies(graph, data),))
    with pytest.raises(InputError, match=r"node \d+ 'core.attend 2' is of no known ring"):
        extrapolate(wrong, {"cp": 8})


@pytest.mark.parametrize(
    ("trace", "scale", "message"),
    [
        (of(2, "ring"), {"cp": 1}, "got 1, which is no ring"),
        (of(2, "ring"), {"cp": 3}, r"expected a divisor of 256 tokens \(nearest: 2\)"),
        (of(2, "ring", dp=4, model=MIXED, parallel={"ep": 2}), {"cp": 4}, "ep 2 goes over the 2 ranks of cp"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(trace: Trace, scale: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        extrapolate(written(trace), scale)
