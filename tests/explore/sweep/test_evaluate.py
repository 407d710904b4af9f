"""Points evaluated: what they come to, and why they are rejected."""

import pickle

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary import run
from armillary.base.errors import InputError
from armillary.explore.sweep import Evaluator, evaluate_study, load_sweep
from armillary.explore.sweep.memory import needed
from armillary.report.lower_bound import bound
from armillary.report.plain import slowest
from armillary.report.time_breakdown import breakdown
from armillary.trace import GraphBuilder, Trace, write_trace
from armillary.workload.generate import over_capacity, replica_layers
from armillary.workload.memory.peak import most_needed
from armillary.workload.models import load_model
from armillary.workload.pipeline.partition import partition
from armillary.workload.plan.schema import Plan

G = "workload.generate."


def rows(sweep):
    sweep = load_sweep(sweep)
    evaluator = Evaluator(sweep)
    return [evaluator.evaluate(point) for point in sweep.space.points()]


def test_a_row_has_what_a_simulation_of_the_study_says(study, tmp_path):
    (row,) = rows({"study": study, "vary": {G + "parallel.tp": [2]}})
    study["workload"]["generate"]["parallel"]["tp"] = 2
    sweep = load_sweep({"study": study})
    timeline = Evaluator(sweep).simulate(sweep.space.at(0))
    assert row.status == "ok"
    parts = breakdown(timeline, slowest(timeline))
    found = row.measures
    assert found["step_time"] == timeline.total_ticks * 1e-9
    assert found["compute"] == pytest.approx(parts.compute * 1e-9)
    assert found["communication"] + found["waiting"] == pytest.approx(
        (parts.communication + parts.waiting) * 1e-9
    )
    assert 0 < found["bound"] <= bound(timeline).ticks * 1e-9
    assert found["tokens_per_second"] == pytest.approx(16 * 256 / found["step_time"])
    assert found["npus"] == 8
    assert found["memory"] + found["headroom"] == 40e9
    assert 0 < found["mfu"] < 1
    assert row.values == {"tp": 2}
    assert evaluate_study(study).measures == row.measures


@pytest.mark.parametrize("ticks", [334_052_000, 360_789_000, 330_871_000, 7_000])
def test_a_row_has_the_seconds_of_a_run(ticks, tmp_path):
    graph = GraphBuilder()
    graph.compute("work", duration_micros=ticks // 1000)
    write_trace(tmp_path / "one", Trace.replicate(graph.graph(), 1))
    network = [{"topology": "Ring", "size": 1, "bandwidth": "1 GB/s", "latency": "0 ns"}]
    study = {"workload": {"trace": str(tmp_path / "one")}, "platform": {"network": network}}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    # To the last bit: whoever runs the study of a row sees the same number.
    assert evaluate_study(study).measures["step_time"] == run(tmp_path / "study.yaml").step_time


def test_recomputed_operations_are_no_progress(study):
    none, full = rows({"study": study, "vary": {G + "recompute": ["none", "full"]}})
    assert full.measures["flops_per_npu"] > 0.95 * none.measures["flops_per_npu"]
    progress = none.measures["step_time"] / full.measures["step_time"]
    assert full.measures["mfu"] == pytest.approx(none.measures["mfu"] * progress, rel=0.02)


def test_times_are_those_of_one_iteration(study):
    one, three = rows({"study": study, "vary": {G + "iterations": [1, 3]}})
    assert three.measures["step_time"] == pytest.approx(one.measures["step_time"], rel=0.05)
    assert three.measures["mfu"] == pytest.approx(one.measures["mfu"], rel=0.05)


def test_points_are_rejected_with_their_reason(study):
    sweep = load_sweep(
        {
            "study": study,
            "vary": {G + "parallel.tp": [1, 2, 3, 4, 8], G + "microbatch": [2, 8]},
            "where": ["memory fits", "heads % tp == 0", "tp <= 4", "microbatches >= 2 or tp < 4", "step_time < 20 ms"],
        }
    )  # fmt: skip
    evaluator = Evaluator(sweep)
    found = {
        (point.values["tp"], point.values["microbatch"]): evaluator.evaluate(point)
        for point in sweep.space.points()
    }
    assert found[3, 2].reason == "not heads % tp == 0: heads 20, tp 3"
    assert found[8, 2].reason == "not heads % tp == 0: heads 20, tp 8"
    assert found[1, 8].reason.startswith("batch 16: expected a multiple of dp 8 x microbatch 8")
    assert {row.status for row in found.values()} <= {"rejected", "ok"}
    screened = [evaluator.screen(point) for point in sweep.space.points()]
    assert [row.reason for row in screened if row] == [
        row.reason for row in found.values() if row.reason and "step_time" not in row.reason
    ]


def test_what_is_known_decides_when_a_constraint_is_checked(study):
    before = {"study": study, "vary": {G + "parallel.pp": [1, 2]}, "where": ["pp < 2", "memory <= 30 GB"]}
    sweep = load_sweep(before | {"where": [*before["where"], "step_time <= 1 ns"]})
    first, second = sweep.space.points()
    evaluator = Evaluator(sweep)
    assert evaluator.screen(second).measures == {}
    assert evaluator.screen(first) is None
    last = evaluator.evaluate(first)
    assert last.reason.startswith("not step_time <= 1 ns: step_time ")
    assert last.measures["step_time"] > 0


def test_memory_that_does_not_fit(study):
    study["platform"]["npu"]["memory"]["capacity"] = "2 GB"
    (row,) = rows({"study": study, "where": ["memory fits"]})
    assert row.reason.startswith("memory: needs ")
    assert row.reason.endswith(" too much")
    assert row.measures["headroom"] < 0


def test_collectives_and_traces_are_swept_as_well(study, tmp_path):
    study["workload"] = {"collective": "all-reduce", "size": "1 MiB"}
    key = "platform.network.fabric.bandwidth"
    slow, fast = rows({"study": study, "vary": {key: ["10 GB/s", "100 GB/s"]}})
    assert slow.measures["step_time"] > fast.measures["step_time"] > fast.measures["bound"] > 0
    assert "memory" not in slow.measures
    graph = GraphBuilder()
    graph.compute("gemm", flops=10**9, bytes=10**6)
    write_trace(tmp_path / "step", Trace.replicate(graph.graph(), 8))
    study["workload"] = {"trace": "step"}
    study["platform"]["compute"] = {"roofline": True}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    (tmp_path / "sweep.yaml").write_text(
        "study: study.yaml\nvary: {platform.npu.peak: [1 TFLOP/s, 2 TFLOP/s]}\n"
    )
    one, two = rows(tmp_path / "sweep.yaml")
    assert (one.measures["step_time"], two.measures["step_time"]) == (1e-3, 5e-4)
    assert evaluate_study(tmp_path / "study.yaml").status == "ok"


def test_a_run_that_cannot_finish_has_failed(study, tmp_path):
    graph = GraphBuilder()
    graph.recv(1, 1024)
    idle = GraphBuilder()
    idle.compute("gemm", flops=10, bytes=10)
    write_trace(tmp_path / "step", Trace((graph.graph(), idle.graph()), np.array([0] + 7 * [1], np.int32)))
    study["platform"]["compute"] = {"roofline": True}
    study["workload"] = {"trace": str(tmp_path / "step")}
    row = evaluate_study(study)
    assert row.status == "failed"
    assert row.reason.startswith("cannot finish: ")


def test_impossible_values_are_rejected_not_raised(study):
    found = rows(
        {"study": study, "vary": {"platform.network.fabric.size": [2, 1], G + "parallel.pp": [1, 64]}}
    )
    assert [row.status for row in found] == ["ok", "rejected", "rejected", "rejected"]
    assert "expected 2 or more" in found[2].reason
    assert "\n" not in found[1].reason


def test_what_nobody_expected_has_failed(study, monkeypatch):
    sweep = load_sweep({"study": study})
    monkeypatch.setattr("armillary.explore.sweep.evaluate.of_run", lambda *_: 1 / 0)
    row = Evaluator(sweep).evaluate(sweep.space.at(0))
    assert (row.status, row.reason) == ("failed", "ZeroDivisionError: division by zero")
    assert row.measures["npus"] == 8


def test_names_of_the_plan_are_known_without_being_varied(study):
    where = [
        "tp == 1", "dp == 8", "microbatches == 2", "sequence == 256", "schedule == '1f1b'", "kv_heads == 20",
        "parameters > 300e6 and layers == 12 and vocabulary == 50304", "sharding == 'ddp' and npus == 8",
    ]  # fmt: skip
    (row,) = rows({"study": study, "where": where})
    assert row.status == "ok"
    for each in where:
        (row,) = rows({"study": study, "where": [f"not ({each})"]})
        assert row.status == "rejected"


def test_evaluators_travel(study):
    sweep = load_sweep({"study": study, "vary": {G + "parallel.tp": [1, 5]}, "where": ["memory fits"]})
    points = list(sweep.space.points())
    evaluator = Evaluator(sweep)
    assert evaluator.screen(points[1])
    other = pickle.loads(pickle.dumps(evaluator))
    for point in map(pickle.loads, map(pickle.dumps, points)):
        here, there = evaluator.evaluate(point), other.evaluate(point)
        assert (here.status, here.reason, here.measures) == (there.status, there.reason, there.measures)


MODELS = {name: load_model(name) for name in ("llama-3-8b", "mixtral-8x7b")}


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(sorted(MODELS)),
    st.sampled_from((1, 2, 4)),
    st.sampled_from((1, 2, 4)),
    st.sampled_from((1, 2)),
    st.sampled_from(("ddp", "zero-1", "zero-3", "fsdp")),
    st.sampled_from(("none", "selective", "full")),
    st.sampled_from((1, 2)),
    st.booleans(),
)
def test_layers_that_plans_share_are_those_of_each(name, tp, pp, cp, sharding, recompute, ep, causal):
    plan = Plan.model_validate(
        {
            "ranks": 8 * tp * pp * cp, "batch": 64, "sequence": 2048, "recompute": recompute, "causal": causal,
            "parallel": {"tp": tp, "pp": pp, "cp": cp, "ep": ep}, "data": {"sharding": sharding},
        }
    )  # fmt: skip
    try:
        stages = partition(replica_layers(MODELS[name], plan), plan)
    except InputError as error:
        with pytest.raises(InputError) as again:
            needed(MODELS[name], plan)
        assert str(again.value) == str(error)
        return
    found = needed(MODELS[name], plan)
    assert found == most_needed(stages, plan)
    assert not over_capacity(MODELS[name], plan, found)
    assert over_capacity(MODELS[name], plan, found - 1)
