"""Steps of a study, and costs in sweeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from armillary.base.errors import InputError
from armillary.explore.cost.measures import measures_of
from armillary.explore.cost.schema import load_costs
from armillary.explore.cost.step import simulate_step
from armillary.explore.sweep.evaluate import Evaluator
from armillary.explore.sweep.load import load_sweep

STUDY = """
workload: {generate: {model: llama-3-8b, batch: 8, sequence: 1024, iterations: COUNT, parallel: {tp: 2}}}
platform: {preset: hgx-h100, compute: {efficiency: 50 %}}
"""
SWEEP = """
study: study.yaml
vary: {workload.generate.parallel.tp: [2]}
objectives: [minimize cost_per_token]
costs: {preset: h100, npu: {price: 20 kUSD}}
tokens: 1 T
"""


def test_use_is_that_of_one_of_several_steps(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    found = []
    for count in (1, 3):
        path.write_text(STUDY.replace("COUNT", str(count)))
        found.append(simulate_step(path))
    one, three = found
    assert one.tokens == three.tokens == 8 * 1024 and one.parameters == 8_030_261_248
    assert three.use.flops == pytest.approx(one.use.flops)
    assert three.use.moved == pytest.approx(one.use.moved)
    assert three.use.seconds == pytest.approx(one.use.seconds, rel=0.02)
    assert three.use.flops["bf16"] == pytest.approx(6 * 8.03e9 * 8192, rel=0.2)


def test_a_study_of_jobs_has_no_step(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(
        "jobs: [{workload: {collective: all-reduce, size: 1 MB}, npus: 4}]\nplatform: {preset: hgx-h100}\n"
    )
    with pytest.raises(InputError, match="got jobs, expected one workload"):
        simulate_step(path)


def test_rows_of_a_sweep_have_the_measures(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(STUDY.replace("COUNT", "1"))
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    sweep = load_sweep(tmp_path / "sweep.yaml")
    (row,) = (Evaluator(sweep).evaluate(point) for point in sweep.space.points())
    assert row.status == "ok", row.reason
    step = simulate_step(tmp_path / "study.yaml")
    costs = load_costs({"preset": "h100", "npu": {"price": "20 kUSD"}})
    alone = measures_of(step.use, step.study.platform, costs, tokens=step.tokens, run_tokens=1e12)
    assert alone.keys() >= {"price", "cost_per_token", "energy_per_token", "run_cost", "run_energy"}
    assert {name: row.measures[name] for name in alone} == pytest.approx(alone)
