"""Case study 3: what it finds for the smallest shape, and that options reach the machine."""

from __future__ import annotations

import pytest
from matplotlib.figure import Figure

from armillary.evidence.reproduce import case3
from armillary.evidence.reproduce.assumptions import about, variations
from armillary.evidence.reproduce.case3 import BASE, OPT, ZERO, Assumptions, machine, run, step
from armillary.evidence.reproduce.case3_models import SMALLER, TRILLION
from armillary.platform.memory import together_ns
from armillary.workload.models import load_model, preset_names
from armillary.workload.models.counts import parameters

SMALL = "qwen3-30b-a3b"


def test_the_smaller_models_are_all_presets_that_have_experts() -> None:
    models = {name: load_model(name) for name in preset_names()}
    later = {
        "deepseek-v3.2",
        "glm-5",
        "gpt-oss-120b",
        "kimi-k2",
        "llama-4-scout",
        "llama-4-maverick",
        "minimax-m2.5",
        "nemotron-3-nano",
        "nemotron-3-super",
        "nemotron-3-ultra",
        "qwen3-next-80b-a3b",
        "qwen3.5-397b-a17b",
    }
    assert {*SMALLER, *later} == {name for name, model in models.items() if getattr(model, "experts", None)}


@pytest.mark.parametrize(
    ("name", "total", "off"),
    [
        ("Switch-C", 1571e9, 0.001),
        ("GShard-1T", 1e12, 0.05),
        ("DeepSpeed-MoE-1T", 1064.9e9, 0.02),
        ("GLaM", 1.2e12, 0.04),
    ],
)
def test_models_have_the_parameters_of_their_papers(name: str, total: float, off: float) -> None:
    assert parameters(TRILLION[name]).total == pytest.approx(total, rel=off)


def test_claims_of_one_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case3, "SHAPES", ("GShard-1T",))
    monkeypatch.setattr(case3, "SMALLER", ())
    outcome = run(Assumptions())
    assert [claim.verdict for claim in outcome.claims] == ["holds", "does not hold", "holds"]
    assert outcome.claims[1].ours == "GShard-1T 3.11x"
    assert "% of base is compute, the rest gets" in outcome.claims[1].why
    figure = Figure()
    outcome.draw(figure)
    assert len(figure.axes[0].patches) == 3 * 4


@pytest.mark.slow
def test_claims_of_all_models() -> None:
    outcome = run(Assumptions())
    assert [claim.verdict for claim in outcome.claims] == ["holds", "partly", "holds"]
    assert [case.name for case in outcome.claims[1].cases if case.agrees] == ["Switch-C"]


def test_only_without_switches_is_base_as_fast_as_zero_infinity() -> None:
    chosen = Assumptions()
    zero, base, switched = (
        step(s, SMALL, chosen, on) for s, on in ((ZERO, False), (BASE, False), (BASE, True))
    )
    assert base.total == pytest.approx(zero.total, rel=0.01)
    assert switched.total < 0.9 * zero.total
    assert switched.communication < base.communication


def test_what_each_gpu_loads_for_itself_comes_at_the_rate_of_the_groups() -> None:
    """100 and 500 GB/s: a load of 1 GB, and what fills the pipeline."""
    took = [
        together_ns(machine(s, Assumptions()).remote_memory, 10**9, False, case3.GPUS)
        for s in (ZERO, BASE, OPT)
    ]
    assert took == [10_001_000, 10_003_000 + 8190, 2_003_000 + 4095]


def test_every_option_changes_the_machine_or_the_workload() -> None:
    chosen = Assumptions()
    before = step(OPT, SMALL, chosen, in_switch=True), step(BASE, SMALL, chosen, in_switch=False)
    turned = {
        name
        for name, _, other in variations(chosen)
        if name == "in_switch"
        or before != (step(OPT, SMALL, other, in_switch=True), step(BASE, SMALL, other, in_switch=False))
        or machine(OPT, other) != machine(OPT, chosen)
    }
    assert turned == set(about(Assumptions))
