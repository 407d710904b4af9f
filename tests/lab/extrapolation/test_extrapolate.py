"""Extrapolated runs against generated ones, axis by axis."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_runs import MIXED, alike, run, step, totals, written

from armillary.base.errors import InputError
from armillary.lab.extrapolation import Reference, extrapolate, recognise
from armillary.trace import GraphBuilder, Trace
from armillary.trace.check_ranks import check_trace

SHARDINGS = ("ddp", "zero-1", "zero-2", "fsdp")


@pytest.mark.parametrize("sharding", SHARDINGS)
def test_replicas(sharding: str) -> None:
    data = {"sharding": sharding}
    made = extrapolate(written(run(2, 2, 2, data=data)), {"dp": 8})
    alike(made.trace, run(2, 2, 8, data=data))
    assert made.changes["dp"] == (2, 8)
    assert extrapolate(written(run(2, 2, 2, data=data)), {"ranks": 32}).trace.n_ranks == 32
    fewer = extrapolate(written(run(2, 2, 8, data=data)), {"dp": 2})
    alike(fewer.trace, run(2, 2, 2, data=data))


def test_replicas_of_hybrid_shards_and_of_experts() -> None:
    data = {"sharding": "hsdp", "shard": 2}
    alike(extrapolate(written(run(1, 2, 4, data=data)), {"dp": 16}).trace, run(1, 2, 16, data=data))
    few, many = (
        run(2, 1, dp, model=MIXED, parallel={"ep": 2}, data={"sharding": "zero-1"}) for dp in (4, 16)
    )
    alike(extrapolate(written(few), {"dp": 16}).trace, many)


@pytest.mark.parametrize("sequence", [True, False])
@pytest.mark.parametrize(("old", "new"), [(2, 8), (4, 2)])
def test_tensors(sequence: bool, old: int, new: int) -> None:
    more = {"parallel": {"sequence": sequence}, "data": {"sharding": "zero-1"}}
    made = extrapolate(written(run(old, 2, 2, **more)), {"tp": new})
    alike(made.trace, run(new, 2, 2, **more), 0.03)


@pytest.mark.parametrize("attention", ["flash", "unfused"])
def test_tokens(attention: str) -> None:
    def of(microbatch: int, sequence: int) -> Trace:
        return run(2, 2, 2, attention=attention, microbatch=microbatch, sequence=sequence)

    alike(extrapolate(written(of(1, 256)), {"batch": 4}).trace, of(4, 256))
    alike(extrapolate(written(of(1, 256)), {"sequence": 4}).trace, of(1, 1024), 0.03)
    both = extrapolate(written(of(2, 512)), {"sequence": Fraction(1, 2), "batch": Fraction(1, 2)})
    alike(both.trace, of(1, 256), 0.03)


def test_measured_laws_are_exact_where_two_powers_are_enough() -> None:
    def of(tp: int = 2, sequence: int = 256, **more: object) -> Trace:
        return run(tp, 1, 2, sequence=sequence, **more)  # type: ignore[arg-type]

    reference = Reference(written(of(sequence=512, causal=True)), Fraction(2), "twice")
    made = extrapolate(written(of(causal=True)), {"sequence": 8}, references={"sequence": reference})
    alike(made.trace, of(sequence=2048, causal=True))
    reference = Reference(written(of(4)), Fraction(2), "tp 4")
    alike(extrapolate(written(of()), {"tp": 8}, references={"tp": reference}).trace, of(8), 0.001)
    with pytest.raises(InputError, match="nothing is scaled along it"):
        extrapolate(written(of()), {"dp": 4}, references={"tp": reference})
    made = extrapolate(written(of()), {"tp": 8, "dp": 8}, references={"tp": reference})
    alike(made.trace, run(8, 1, 8, sequence=256), 0.001)
    with pytest.raises(InputError, match="but sequence is scaled, too"):
        extrapolate(written(of()), {"tp": 8, "sequence": 4}, references={"tp": reference})
    other = Reference(written(run(4, 1, 2, batches=2)), Fraction(2), "shorter")
    with pytest.raises(InputError, match=r"shorter: .* nodes where the trace has"):
        extrapolate(written(of()), {"tp": 8}, references={"tp": other})


@pytest.mark.parametrize(
    ("scale", "shape"),
    [({"dp": 8}, (2, 2, 8)), ({"pp": 4}, (2, 4, 2)), ({"tp": 4}, (4, 2, 2)), ({"ranks": 16}, (2, 2, 4))],
)
def test_a_trace_whose_axes_have_names(scale: dict[str, int], shape: tuple[int, int, int]) -> None:
    for data in ({"sharding": "zero-1"}, {"sharding": "fsdp"}):
        known, axes = recognise(run(2, 2, 2, data=data))
        assert {each.reason for each in axes} == {"as the trace says"}
        alike(extrapolate(known, scale, axes=axes).trace, run(*shape, data=data), 0.01)


def test_stages_are_not_measured() -> None:
    reference = Reference(written(run(1, 2, 4)), Fraction(2), "twice")
    with pytest.raises(InputError, match="not those of the remade stages"):
        extrapolate(written(run(1, 2, 2)), {"pp": 4, "dp": 4}, references={"dp": reference})
    with pytest.raises(InputError, match="stages are remade"):
        extrapolate(written(run(1, 2, 2)), {"pp": 4}, references={"pp": reference})


def test_several_at_once() -> None:
    data = {"sharding": "zero-1"}
    made = extrapolate(written(run(2, 2, 2, data=data)), {"tp": 4, "pp": 4, "dp": 8, "microbatches": 2})
    alike(made.trace, run(4, 4, 8, 8, data=data), 0.03)
    assert not [finding for finding in check_trace(made.trace).all if finding.severity == "error"]


@given(
    st.sampled_from(SHARDINGS), st.sampled_from([(1, 1), (2, 1), (1, 2), (2, 2)]),
    st.lists(st.sampled_from(["dp", "tp", "pp", "batch", "sequence", "microbatches"]), max_size=3),
)  # fmt: skip
@settings(max_examples=12, deadline=None)
def test_factor_1_is_the_identity(sharding: str, shape: tuple[int, int], axes: list[str]) -> None:
    sizes = {"tp": shape[0], "pp": shape[1], "dp": 2}
    trace = run(*shape, 2, data={"sharding": sharding})
    scale = {axis: sizes.get(axis, 1) for axis in axes if sizes.get(axis, 2) > 1}
    made = extrapolate(written(trace), scale).trace
    assert totals(made) == totals(trace)
    assert step(made).finish.tolist() == step(trace).finish.tolist()


@given(
    st.sampled_from(["dp", "tp", "batch", "sequence", "microbatches", "pp"]),
    *(st.sampled_from([2, 4]) for _ in range(2)),
    st.sampled_from(SHARDINGS),
)
@settings(max_examples=15, deadline=None)
def test_a_then_b_is_a_times_b(axis: str, a: int, b: int, sharding: str) -> None:
    if axis in ("pp", "tp"):
        a, b = 2, 2
    trace = written(run(2, 2, 2, data={"sharding": sharding}))
    old = 2 if axis in ("dp", "pp", "tp") else 1
    first = extrapolate(trace, {axis: old * a}).trace
    second = extrapolate(first, {axis: old * a * b if old == 2 else b}).trace
    # Norms, which tp does not divide, are a part of the weights that changes.
    alike(second, extrapolate(trace, {axis: old * a * b}).trace, 0.002 if axis == "tp" else 0.0)


def test_ranks_that_differ_are_repeated() -> None:
    graphs = []
    for micros in (100, 200):
        builder = GraphBuilder()
        work = builder.compute("work", duration_micros=micros)
        builder.all_reduce("gradients", 1 << 20, after=[work])
        graphs.append(builder.graph())
    trace, axes = recognise(Trace.from_ranks(graphs))
    made = extrapolate(trace, {"dp": 6}, axes=axes)
    assert made.trace.rank_graph.tolist() == [0, 1, 0, 1, 0, 1]
    assert "dp: the rank at place c does what the one at c modulo 2 did" in {a.rule for a in made.assumptions}


def test_report_lists_rules_and_nodes() -> None:
    trace, axes = recognise(written(run(1, 1, 4, data={"sharding": "zero-1"})))
    report = extrapolate(trace, {"dp": 8}, axes=axes).report()
    assert report["changes"] == {"dp": {"from": 4, "to": 8}}
    assert report["ranks"] == {"from": 4, "to": 8}
    rules = {each["rule"]: each["nodes"] for each in report["assumptions"]}
    sums = trace.graphs[0].ints("comm_type", -1)
    assert rules["data: all-gathers, whose size is of a rank's share, shrink"] == int(np.sum(sums == 2))


@pytest.mark.parametrize(
    ("trace", "scale", "message"),
    [
        (run(2, 1, 2), {"pp": 4}, "no axis 'pp' of more than one rank; expected one of"),
        (run(2, 1, 2), {"xp": 4}, "scale xp: no such axis"),
        (run(2, 1, 2), {"dp": 0}, "got 0, expected a number of ranks"),
        (run(2, 1, 2), {"dp": 4, "ranks": 8}, "dp is given, too"),
        (run(2, 1, 2), {"ranks": 7}, "expected a multiple of 2"),
        (run(2, 1, 8, model=MIXED, parallel={"ep": 4}), {"dp": 6}, "expected a multiple of 4"),
        (run(2, 1, 8, model=MIXED), {"tp": 4}, "has experts, but not between all-to-alls"),
        (run(2, 1, 2), {"tp": 32}, r"expected a divisor of 16 \(nearest: 16\)"),
        (run(1, 2, 2), {"pp": 16}, "expected at most the model's 8 layers"),
        (run(1, 2, 2), {"microbatches": Fraction(1, 3)}, "no whole number"),
    ],
)
def test_what_cannot_be_is_refused(trace: Trace, scale: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        extrapolate(written(trace), scale)
