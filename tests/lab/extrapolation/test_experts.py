"""Experts over more or fewer ranks, against generated runs, node by node."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_runs import MIXED, TINY, alike, run, same_nodes, same_step, written

from armillary.base.errors import InputError
from armillary.lab.extrapolation import Reference, extrapolate, recognise
from armillary.trace import Trace
from armillary.trace.expand import expand

SLIM = MIXED.model_copy(update={"experts": MIXED.experts.model_copy(update={"size": 384})})
SHARED = MIXED.model_copy(
    update={"experts": MIXED.experts.model_copy(update={"shared": 1, "dense_first": 2})}
)
SHARDINGS = ("ddp", "zero-1", "zero-2", "fsdp")


def of(ep: int, dp: int, tp: int = 1, pp: int = 1, **more: Any) -> Trace:
    """Generate a run whose experts go over `ep` ranks."""
    parallel = {"ep": ep, **more.pop("parallel", {})}
    return run(tp, pp, dp, **{"model": MIXED, **more}, parallel=parallel)


def check(small: Trace, scale: dict[str, int], truth: Trace) -> None:
    """Check that a run extrapolated from its files is the generated one."""
    made = extrapolate(written(small), scale).trace
    same_nodes(made, truth)
    same_step(made, truth)


@pytest.mark.parametrize("sharding", SHARDINGS)
@pytest.mark.parametrize(("tp", "pp", "sequence"), [(1, 1, True), (2, 2, True), (2, 1, False)])
def test_among_the_ranks_that_there_are(sharding: str, tp: int, pp: int, sequence: bool) -> None:
    more = {"tp": tp, "pp": pp, "data": {"sharding": sharding}, "parallel": {"sequence": sequence}}
    check(of(2, 8, **more), {"ep": 4}, of(4, 8, **more))
    check(of(2, 8, **more), {"ep": 8}, of(8, 8, **more))
    check(of(4, 8, **more), {"ep": 2}, of(2, 8, **more))


@pytest.mark.parametrize("sharding", SHARDINGS)
def test_among_more_ranks(sharding: str) -> None:
    more = {"tp": 2, "data": {"sharding": sharding}}
    check(of(2, 2, **more), {"ep": 8, "dp": 8}, of(8, 8, **more))
    check(of(2, 4, **more), {"ep": 4, "dp": 32}, of(4, 32, **more))
    check(of(2, 2, **more), {"dp": 8}, of(2, 8, **more))
    check(of(2, 2, **more), {"ep": 4, "dp": 4}, of(4, 4, **more))
    check(of(2, 4, **more), {"ep": 4, "ranks": 32}, of(4, 16, **more))


@pytest.mark.parametrize(
    "more",
    [
        {"model": SHARED},
        {"recompute": "full"},
        {"pp": 2, "pipeline": {"schedule": "zero-bubble"}},
        {"numbers": {"fused": False}},
        {"numbers": {"compute": "fp8", "gradients": "bf16"}},
        {"numbers": {"compute": "fp32"}},
        {"tp": 2, "parallel": {"etp": 1, "ep": 4}},
        {"parallel": {"cp": 2, "ep": 4}},
    ],
    ids=str,
)
def test_kinds_of_runs(more: dict[str, Any]) -> None:
    other = more | {"parallel": more.get("parallel", {}) | {"ep": 8}}
    check(of(2, 8, **more), {"ep": 8}, of(8, 8, **other))


def test_with_other_axes() -> None:
    for sharding in ("ddp", "fsdp"):
        data = {"data": {"sharding": sharding}, "batches": 8}
        check(of(2, 2, 2, 2, **data), {"ep": 8, "dp": 8, "pp": 4}, of(8, 8, 2, 4, **data))
        few, many = ({"parallel": {"cp": cp}} for cp in (2, 4))
        check(of(4, 4, **data, **few), {"cp": 4, "ep": 8, "dp": 8}, of(8, 8, **data, **many))


@pytest.mark.parametrize("sequence", [True, False])
@pytest.mark.parametrize("sharding", ["ddp", "zero-1", "fsdp"])
def test_tensors(sharding: str, sequence: bool) -> None:
    def made(tp: int, ep: int = 2, dp: int = 4, pp: int = 1) -> Trace:
        # Widths that are no other width or number of tokens.
        return of(ep, dp, tp, pp, model=SLIM, sequence=192, parallel={"sequence": sequence},
                  data={"sharding": sharding, "bucket": "1 KiB"})  # fmt: skip

    alike(extrapolate(written(made(2)), {"tp": 4}).trace, made(4), 0.003)
    alike(extrapolate(written(made(4)), {"tp": 2}).trace, made(2), 0.003)
    alike(extrapolate(written(made(2)), {"tp": 4, "ep": 4, "dp": 8}).trace, made(4, 4, 8), 0.003)


def test_exchanges_across_nodes_and_inside_are_both_of_ep() -> None:
    def made(dp: int, pp: int = 1) -> Trace:
        return of(4, dp, 2, pp, experts={"domain": 2})

    found = written(made(8)).grid
    assert found is not None
    assert [found.size(axis) for axis in ("ep", "ep.inside", "ep.across")] == [4, 2, 2]
    check(made(8), {"dp": 16}, made(16))
    check(made(8, 2), {"pp": 4}, made(8, 4))


def test_measured() -> None:
    reference = Reference(written(of(4, 16)), Fraction(2), "ep 4")
    made = extrapolate(written(of(2, 16)), {"ep": 8, "dp": 32}, references={"ep": reference}).trace
    same_nodes(made, of(8, 32))
    with pytest.raises(InputError, match="ep 4 has 16 ranks; expected 8"):
        extrapolate(written(of(2, 8)), {"ep": 8}, references={"ep": reference})


def test_ranks_of_tp_with_experts_of_their_own_are_recognised() -> None:
    axes = {each.role: each.size for each in recognise(expand(of(4, 4, 2, parallel={"etp": 1})))[1]}
    assert axes == {"tp": 2, "ep": 4, "dp": 4}
    axes = {each.role: each.size for each in recognise(expand(of(4, 4)))[1]}
    assert axes == {"ep": 4, "dp": 4}


@given(st.sampled_from([1, 2]), st.sampled_from(SHARDINGS), st.sampled_from([(2, 2), (4, 1), (1, 4), (1, 1)]))
@settings(max_examples=8, deadline=None)
def test_a_then_b_is_a_times_b(tp: int, sharding: str, steps: tuple[int, int]) -> None:
    trace = written(of(2, 8, tp, data={"sharding": sharding}))
    first = extrapolate(trace, {"ep": 2 * steps[0]}).trace
    twice = extrapolate(first, {"ep": 2 * steps[0] * steps[1]}).trace
    once = extrapolate(trace, {"ep": 2 * steps[0] * steps[1]}).trace
    same_nodes(twice, once)
    if steps == (1, 1):
        same_nodes(once, trace)


@pytest.mark.parametrize(
    ("trace", "scale", "message"),
    [
        (of(2, 4), {"ep": 8}, "got 8 with dp 4; expected dp to be a multiple of 8, such as dp=8"),
        (of(4, 4), {"ep": 16, "dp": 16}, "the GEMMs of 2 experts, which cannot be divided by 4; expected at most 2"),
        (of(2, 4), {"ep": 1}, "expected 2 or more"),
        (of(2, 4, experts={"skew": 1}), {"ep": 4}, "has uneven parts, of all experts of a rank together"),
        (of(4, 8, experts={"domain": 2}), {"ep": 8}, "how many experts of a token are on one node"),
        (of(2, 8, data={"sharding": "hsdp", "shard": 2}), {"ep": 4}, "cannot be told from experts"),
        (run(1, 1, 4, model=TINY), {"ep": 2}, "no axis 'ep'"),
        (of(2, 2, 2, parallel={"etp": 1}), {"ep": 4, "dp": 4}, "it lies within tp"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(trace: Trace, scale: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        extrapolate(written(trace), scale)
