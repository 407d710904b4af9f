"""The search for plans: its best is that of trying all, and plans of a file are ranked as they are predicted."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

import armillary
from armillary.base.errors import InputError
from armillary.cli import main
from armillary.compute.machine import machine_of
from armillary.explore.training import choose
from armillary.explore.training.among import read_plans
from armillary.explore.training.candidates import left_out
from armillary.workload.models import model_of
from armillary.workload.plan.request import keys_of

SMALL = {"batch": 16, "sequence": 1024, "recompute": "none"}


def test_nothing_that_was_left_out_is_better(monkeypatch: pytest.MonkeyPatch) -> None:
    found = armillary.plan("llama-2-7b", "8xa100", top=3, **SMALL)
    assert found.simulated < len(found.plans) + len(found.rejected)
    monkeypatch.setattr(choose, "SLACK", 0.0)  # no bound rejects anything
    whole = armillary.plan("llama-2-7b", "8xa100", top=3, **SMALL)
    assert whole.simulated > found.simulated
    assert [each.step_time_s for each in found.plans] == [each.step_time_s for each in whole.plans]
    assert [each.plan for each in found.plans] == [each.plan for each in whole.plans]


def test_the_best_is_what_train_says() -> None:
    best = armillary.plan("llama-2-7b", "8xa100", top=1, **SMALL).best
    keys = keys_of(best.plan)
    again = armillary.train("llama-2-7b", "8xa100", software=best.software.name, **keys)
    assert again.step_time_s == best.step_time_s and again.memory == best.memory


def test_a_plan_says_where_train_would_take_another_software() -> None:
    plans = [{"sharding": "fsdp"}, {"tp": 8}]
    for each in armillary.plan("llama-2-7b", "8xa100", among=plans, **SMALL).plans:
        keys = keys_of(each.plan)
        alone = armillary.train("llama-2-7b", "8xa100", **keys)
        same = alone.software.name == each.software.name
        assert same == (keys["data"]["sharding"] != "fsdp")
        assert any(f"takes {alone.software.name}" in said for said in each.assumptions) != same


def test_a_batch_that_few_numbers_of_replicas_divide_is_told() -> None:
    model, racks = model_of("gpt-oss-120b"), machine_of("2xgb300-nvl72")
    said = {batch: left_out(model, racks, {"batch": batch}) for batch in (36, 1008, 1024)}
    # 1,008 is 7 x 144.
    assert "multiple of 3 of the 8 numbers" in said[1024] and "batch 1,008 of all" in said[1024]
    assert not said[1008] and not said[36]
    assert not left_out(model, machine_of("16xdgx-h100"), {"batch": 1000 * 128 + 64})


def test_plans_of_a_file_are_ranked(tmp_path) -> None:
    path, out = tmp_path / "plans.json", tmp_path / "ranked.json"
    plans = [{"tp": 8}, {"tp": 2, "microbatch": 2}, {"tp": 3}, {"pp": 2, "virtual": 2}]
    path.write_text(json.dumps(plans))
    words = ["plan", "llama-2-7b", "--machine", "8xa100", "--batch", "16", "--sequence", "1024"]
    ran = CliRunner().invoke(main, [*words, "--among", str(path), "--json", str(out)])
    assert ran.exit_code == 0, ran.output
    found = json.loads(out.read_text())
    times = [each["step_time_s"] for each in found["plans"]]
    assert times == sorted(times) and len(times) == 3
    assert "tp 3" in found["rejected"][0]["why"]
    for each in found["plans"]:
        keys = {key: value for key, value in each["plan"].items() if key != "ranks"}
        alone = armillary.train("llama-2-7b", "8xa100", software=each["software"], **keys)
        assert alone.step_time_s == each["step_time_s"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{}", "a list of plans"),
        ("[]", "a list of plans"),
        ("[3]", r"plans\[0\]"),
        ("[{tp: 3}]", "tp 3"),
        ("[{tq: 3}]", "tq: unknown key"),
    ],
)
def test_files_without_plans_are_refused(tmp_path, text: str, words: str) -> None:
    path = tmp_path / "plans.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=words):
        armillary.plan("llama-2-7b", "8xa100", among=read_plans(path), **SMALL)


def test_what_is_impossible_says_why() -> None:
    with pytest.raises(InputError, match="no plan of batch 3 on 8 devices"):
        armillary.plan("llama-2-7b", "8xa100", batch=3, sequence=1024, tp=1, pp=1)
    with pytest.raises(InputError, match="missing key 'batch'"):
        armillary.plan("llama-2-7b", "8xa100")


@pytest.mark.slow
def test_what_is_named_is_kept_even_if_it_is_what_the_software_does_by_default() -> None:
    given = {"batch": 8, "sequence": 512}
    found = choose.plan("llama-3-8b", "dgx-h100", **given, data={"sharding": "zero-1"})
    assert {each.plan.data.sharding for each in found.plans} == {"zero-1"}
    free = choose.plan("llama-3-8b", "dgx-h100", **given)
    assert {each.plan.data.sharding for each in free.plans} > {"zero-1"}
