"""Predicted steps: what is chosen is said, parts add up, and the command and Python agree."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

import armillary
from armillary.base.document import Document
from armillary.base.errors import InputError
from armillary.cli import main
from armillary.explore.result import Result
from armillary.explore.training import parts
from armillary.explore.training.mean_step import seconds
from armillary.explore.training.parts import OFF, parts_of_run
from armillary.explore.training.parts import shown as shown_parts
from armillary.explore.training.plan_keys import nested
from armillary.explore.training.prediction import Prediction, plan_text
from armillary.explore.training.software import NAMES, software_of
from armillary.explore.training.step import Step, platform_of, simulated, trace_of
from armillary.explore.training.takeaway import megatron, study
from armillary.platform.files.native import study_of
from armillary.report.flop_rate import flops, peak_text
from armillary.workload import study_trace
from armillary.workload.models import load_model
from armillary.workload.plan.request import keys_of

SMALL = {"batch": 16, "sequence": 1024}


def test_parts_add_up_to_the_step() -> None:
    found = armillary.train("llama-2-7b", "dgx-a100", tp=2, pp=2, **SMALL)
    assert sum(found.parts.values()) == pytest.approx(found.step_time_s)
    step = Step(
        load_model("llama-2-7b"),
        keys_of(found.plan),
        found.machine.keys, found.machine.npus, found.machine.device,
    )  # fmt: skip
    assert seconds(step, found.software.fitted.constants) == pytest.approx(found.step_time_s)
    assert found.interval_s[0] < found.step_time_s < found.interval_s[1]
    assert 0 < found.mfu < 1 and found.tokens == 16 * 1024


def test_rates_of_several_steps() -> None:
    """Steps that follow each other do as much work each as one alone: rates are those of all of them."""
    one, four = (
        armillary.train("llama-2-7b", "dgx-a100", tp=2, iterations=steps, **SMALL) for steps in (1, 4)
    )
    assert four.tokens == 4 * one.tokens
    assert four.mfu * four.step_time_s == pytest.approx(4 * one.mfu * one.step_time_s)
    assert repr(four).startswith("4 steps ")


def test_what_is_left_out_is_chosen_and_said() -> None:
    found = armillary.train("llama-2-7b", "dgx-h100", **SMALL)
    assert found.memory.fits and any("the simplest plan that fits" in text for text in found.assumptions)
    assert any("software megatron-core" in text for text in found.assumptions)
    said = armillary.train("llama-2-7b", "dgx-h100", software="megatron-core", tp=2, **SMALL)
    assert not any("chosen" in text or "simplest" in text for text in said.assumptions)


def test_a_dispatcher_of_experts_that_send_nothing_is_said() -> None:
    alone, shared = (
        armillary.train(
            "mixtral-8x7b", "4xdgx-h100", tp=8, pp=1, ep=ep, etp=1, experts={"dispatcher": "deepep"}, **SMALL
        )
        for ep in (1, 4)
    )
    assert any(text.startswith("experts.dispatcher deepep has no effect") for text in alone.assumptions)
    assert not any("experts.dispatcher" in text for text in shared.assumptions)


def test_a_plan_that_does_not_fit_says_so() -> None:
    found = armillary.train("llama-3-70b", "dgx-h100", tp=8, pp=1, **SMALL)
    assert found.memory.fits is False


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({}, "missing key 'batch'"),
        ({"batch": 8, "tp": 3}, "tp 3: expected a divisor of heads 32"),
        ({"batch": 8, "tpp": 3}, "tpp: unknown key"),
        ({"batch": 8, "ranks": 4}, "ranks: got 4, expected 8"),
        ({"batch": 8, "tp": 2, "parallel": {"tp": 4}}, "tp: given twice"),
        ({"batch": "many"}, "batch"),
        ({"batch": 8, "precision": "fp4"}, "got 'fp4', but h100-sxm has no peak of it; expected one of bf16"),
        ({"batch": 8, "lora": {"targets": ["qkv"]}}, "lora.rank: missing"),
    ],
)
def test_wrong_plans_are_refused(keys: dict, words: str) -> None:
    with pytest.raises(InputError, match=words):
        armillary.train("llama-2-7b", "dgx-h100", sequence=1024, **keys)


def test_wrong_names_are_refused() -> None:
    with pytest.raises(InputError, match="did you mean 'megatron-core'"):
        armillary.train("llama-2-7b", "dgx-h100", software="megatron-cor", **SMALL)
    network = [{"topology": "Switch", "size": 8, "bandwidth": "450 GB/s", "latency": "1 us"}]
    with pytest.raises(InputError, match="nothing says how long kernels take"):
        armillary.train("llama-2-7b", {"network": network}, **SMALL)


def test_an_empty_name_is_no_folder() -> None:
    with pytest.raises(InputError, match="platform file: got '', expected its path, or what it holds"):
        armillary.train("llama-2-7b", "", **SMALL)


def test_a_roofline_by_name_is_said() -> None:
    keys = {"network": [{"topology": "Switch", "size": 8, "bandwidth": "450 GB/s", "latency": "1 us"}]}
    npu = {"peak": "900 TFLOP/s", "memory": {"bandwidth": "3 TB/s", "capacity": "80 GB"}}
    found = armillary.train("llama-2-7b", keys | {"npu": npu, "compute": {"roofline": True}}, tp=2, **SMALL)
    assert any("roofline" in text for text in found.assumptions)


@pytest.mark.parametrize("name", NAMES)
def test_every_software_has_plans_that_run(name: str) -> None:
    used = software_of(name, "h100-sxm")
    assert used.title and used.plan
    assert armillary.train("llama-2-7b", "dgx-h100", software=name, **SMALL).step_time_s > 0


def test_the_command_says_what_python_says(tmp_path) -> None:
    out = tmp_path / "step.json"
    words = ["train", "llama-2-7b", "--machine", "8xh100", "--batch", "16", "--sequence", "1024", "--tp", "2"]
    ran = CliRunner().invoke(main, [*words, "--json", str(out), "--out", str(tmp_path / "run")])
    assert ran.exit_code == 0, ran.output
    found, same = json.loads(out.read_text()), armillary.train("llama-2-7b", "8xh100", tp=2, **SMALL)
    assert found["step_time_s"] == same.step_time_s and found["interval_s"] == list(same.interval_s)
    assert found["mfu"] == same.mfu and found["memory"]["fits"] is True
    assert found["plan"]["parallel"]["tp"] == 2 and found["assumptions"] == list(same.assumptions)
    flags = (tmp_path / "run" / "megatron-core.sh").read_text()
    assert "--tensor-model-parallel-size 2" in flags and "--global-batch-size 16" in flags
    assert "tensor_parallel_degree = 2" in (tmp_path / "run" / "torchtitan.toml").read_text()


def test_no_flags_for_a_pipeline_that_a_software_lacks(tmp_path) -> None:
    words = ["train", "llama-2-7b", "--machine", "8xh100", "--batch", "16", "--sequence", "1024", "--pp", "2"]
    ran = CliRunner().invoke(main, [*words, "--schedule", "dualpipe", "--out", str(tmp_path / "run")])
    assert ran.exit_code == 0, ran.output
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["study.yaml"]
    assert "torchtitan.toml is not written: torchtitan has no schedule dualpipe" in ran.output
    assert "megatron-core.sh is not written" in ran.output


def test_recipes_have_a_default_by_device_and_software() -> None:
    def recipe(machine: str, **more: object) -> str | None:
        return armillary.train("llama-2-7b", machine, **SMALL, **more).plan.numbers.recipe

    assert recipe("dgx-h100") is None and recipe("dgx-h100", precision="fp8") == "current"
    assert recipe("dgx-b200", precision="fp8") == "mx" and recipe("dgx-b200", precision="fp4") == "nvfp4"
    # Only of software whose GEMMs in fp8 run in Transformer Engine.
    assert recipe("dgx-h100", precision="fp8", software="torchtitan") is None
    found = armillary.train("llama-2-7b", "dgx-b200", precision="fp8", recipe="current", tp=2, **SMALL)
    usual = armillary.train("llama-2-7b", "dgx-b200", precision="fp8", tp=2, **SMALL)
    assert found.plan.numbers.recipe == "current" and not any("recipe" in text for text in found.assumptions)
    assert any(text.startswith("recipe mx of fp8") for text in usual.assumptions)
    assert "fp8 (mx)" in plan_text(usual.plan)
    assert any("--fp8-recipe mxfp8" in line for line in megatron(usual, load_model("llama-2-7b")))
    with pytest.raises(InputError, match="mx: h100-sxm scales whole tensors and blocks"):
        armillary.train("llama-2-7b", "dgx-h100", precision="fp8", recipe="mx", **SMALL)


def test_the_study_to_take_away_takes_as_long() -> None:
    found = armillary.train("llama-2-7b", "dgx-h100", tp=2, pp=2, batch=8, sequence=1024)
    made = study_of(Document("study", study(found, "llama-2-7b"), syntax="yaml"), Path("study.yaml"))
    assert armillary.simulate(study_trace(made), made.platform).total_ticks * 1e-9 == pytest.approx(
        found.step_time_s
    )


def test_axes_may_stand_alone() -> None:
    assert nested({"batch": 8, "tp": 2, "parallel": {"pp": 4}}) == {
        "batch": 8,
        "parallel": {"pp": 4, "tp": 2},
    }


def test_what_takes_long_is_simulated_in_part() -> None:
    model = load_model("llama-2-7b")
    machine = armillary.explore.training.train.machine_of("8xh100")
    plan = {"batch": 256, "sequence": 512, "microbatch": 1, "parallel": {"tp": 2, "pp": 2}}
    step = Step(model, plan, machine.keys, machine.npus, machine.device)
    assert seconds(step) == pytest.approx(seconds(step, steady=False), rel=1e-3)
    assert trace_of(step).n_ranks == platform_of(step).npus == 8


@pytest.mark.parametrize(("machine", "batch"), [("6xh100", 7), ("7xh100", 1), ("3xdgx-h100", 100)])
def test_a_batch_that_no_replicas_share_is_refused_with_one_that_they_do(machine: str, batch: int) -> None:
    for call in (armillary.train, armillary.plan):
        with pytest.raises(InputError, match=r"nearest: ([\d,]+)") as refused:
            call("llama-3-8b", machine, batch=batch)
        found = re.search(r"nearest: ([\d,]+)", str(refused.value))
        assert found
        assert armillary.train("llama-3-8b", machine, batch=int(found[1].replace(",", ""))).step_time > 0


@pytest.mark.parametrize(
    ("axis", "size", "words"),
    [("ep", 3, r"ep 3: expected one of 1, 2, 4, 8 \(nearest: 2\)"), ("cp", 3, "nearest: 1")],
)
def test_a_size_that_leaves_no_plan_is_named_with_those_that_do(axis: str, size: int, words: str) -> None:
    with pytest.raises(InputError, match=words):
        armillary.train("mixtral-8x7b", "8xh100", batch=64, **{axis: size})


@pytest.mark.parametrize(("machine", "ranks"), [("8xh100", 8), ("dgx-superpod-h100", 1024)])
def test_utilisation_is_of_the_peak_that_the_kernels_have(machine: str, ranks: int) -> None:
    """fp32 runs without tensor cores, whose TF32 rate no kernel of it reaches; its operations are those of bf16."""
    full, half = (
        armillary.train("llama-2-7b", machine, batch=ranks, sequence=1024, tp=1, precision=each)
        for each in ("fp32", "bf16")
    )
    assert full.mfu * full.step_time_s * 67e12 == pytest.approx(half.mfu * half.step_time_s * 989e12)


def test_communication_beside_a_busy_cpu_is_communication() -> None:
    """A CPU that takes no time makes this step no shorter: what it waits for is communication, and is called so."""
    found = armillary.train("llama-3-8b", "8xh100", batch=8, tp=8)
    free = armillary.train("llama-3-8b", "8xh100", batch=8, tp=8, host={"issue": "0 ns"})
    assert free.step_time_s == pytest.approx(found.step_time_s, rel=0.01)
    assert found.limits.startswith("exposed communication")
    shown = {name: value for name, value in found.parts.items() if name in ("communication", "issuing")}
    assert sum(shown.values()) == pytest.approx(free.parts["communication"], rel=0.1)
    assert "issuing" in shown_parts(found.parts) and "issuing" not in shown_parts(free.parts)
    assert found.parts["outside"] < 0.1 * found.step_time_s
    assert sum(found.parts.values()) == pytest.approx(found.step_time_s)


@pytest.mark.parametrize(("batch", "whole"), [(40, True), (240, False)])
def test_parts_of_a_long_step_are_those_of_the_whole(batch: int, whole: bool) -> None:
    """Here the CPU still falls behind when the time is steady: a difference of short runs makes waiting negative."""
    found = armillary.train("llama-3-70b", "16xdgx-h100", batch=batch, tp=8, pp=4, cp=4, sequence=131072)
    constants = found.software.fitted.constants
    parts = parts_of_run(simulated(found.step, constants), trace_of(found.step, constants))
    assert sum(found.parts.values()) == pytest.approx(sum(parts.values()), rel=1e-6)
    assert any(each.startswith("parts of the step") for each in found.assumptions) is not whole
    for name, value in parts.items():
        assert found.parts[name] == pytest.approx(value, abs=(1e-9 if whole else OFF) * found.step_time_s)


def test_parts_of_a_step_too_long_to_look_at_are_none_below_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting becomes less with each microbatch of these runs: the whole of such a step may not fit into memory."""
    monkeypatch.setattr(parts, "MOST_NODES", 1000)
    monkeypatch.setattr(parts, "MOST_WHOLE", 0)
    found = armillary.train("llama-3-70b", "16xdgx-h100", batch=64, tp=8, pp=4, cp=4, sequence=131072)
    assert min(found.parts.values()) >= 0
    assert sum(found.parts.values()) == pytest.approx(found.step_time_s)
    assert any(each.startswith("parts of the step: from runs of") for each in found.assumptions)


@pytest.mark.parametrize("software", ["", "torchtitan", "maxtext", "megatron-lm-2022"])
@pytest.mark.parametrize(
    ("name", "batch"), [("resnet-50", 256), ("vit-b-16", 256), ("gnmt", 64), ("dlrm-libra", 512)]
)
def test_defaults_of_a_software_do_not_rule_out_models(name: str, batch: int, software: str) -> None:
    """A causal mask, or scores to leave out, are what the software does to decoders; nobody asked for them here."""
    found = armillary.train(name, "8xh100", batch=batch, software=software)
    assert not found.plan.causal and found.step_time_s > 0
    assert any("no step of a model of kind" in text for text in found.assumptions)
    # Pictures and rows of a replica are one batch, not many that are summed up.
    assert found.plan.microbatch == batch // 8
    with pytest.raises(InputError, match="causal"):
        armillary.train(name, "8xh100", batch=batch, causal=True)


def test_defaults_of_a_software_yield_to_what_is_asked_for() -> None:
    served = armillary.train(
        "llama-2-7b", "8xh100", batch=14, tp=1, sharding="parameter-server", sequence=1024
    )
    assert served.plan.parallel.backward == "any" and any(
        "parameter servers" in text for text in served.assumptions
    )
    assert (
        armillary.train("llama-2-7b", "8xh100", pp=2, schedule="pipedream", **SMALL).plan.data.sharding
        == "ddp"
    )
    with pytest.raises(InputError, match="pipedream"):
        armillary.train("llama-2-7b", "8xh100", pp=2, schedule="pipedream", sharding="zero-1", **SMALL)


def test_a_handshake_that_is_given_is_that_of_the_step() -> None:
    times = [
        armillary.train(
            "llama-2-7b", "8xh100", pp=2, software="megatron-lm-2022", pipeline={"handshake": each}, **SMALL
        ).step_time_s
        for each in ("1 us", "20 ms")
    ]
    assert times[1] > times[0] + 0.02


def test_a_run_of_the_study_has_the_same_utilisation(tmp_path: Path) -> None:
    """Operations that are done twice count for the hardware, not for the model, whoever prints it."""
    found = armillary.train("llama-2-7b", "dgx-a100", tp=2, recompute="full", **SMALL)

    def run_of(one: Prediction, name: str) -> Result:
        path = tmp_path / name
        path.write_text(yaml.safe_dump(study(one, "llama-2-7b")))
        return armillary.run(str(path))

    run = run_of(found, "again.yaml")
    assert run.mfu == pytest.approx(found.mfu, rel=1e-3)
    rate = flops(run.run)
    assert rate and rate.repeats and rate.utilisation == pytest.approx(found.mfu * 4 / 3, rel=0.02)
    assert f"{100 * found.mfu:.1f} % without what is computed again (MFU)" in peak_text(rate)
    plain = armillary.train("llama-2-7b", "dgx-a100", tp=2, **SMALL)
    rate = flops(run_of(plain, "plain.yaml").run)
    assert rate and not rate.repeats and peak_text(rate) == f"{100 * plain.mfu:.1f} % of the peak (MFU)"


def test_what_was_given_is_not_called_assumed() -> None:
    found = armillary.train("llama-3-8b", "1xdgx-h100", batch=16, virtual=2)
    assert found.plan.pipeline.virtual == 2 and not any("virtual" in text for text in found.assumptions)


def test_offloading_needs_a_memory_outside() -> None:
    with pytest.raises(InputError, match=r"offload.optimizer: got 0.5, expected 0: machine 8xh100 has no"):
        armillary.train("llama-3-8b", "8xh100", batch=16, offload={"optimizer": 0.5})


def test_quantised_models_say_that_training_widens_them() -> None:
    found = armillary.train("gpt-oss-120b", "2xdgx-h100", batch=16, ep=8, pp=2)
    assert any("published in mxfp4; this plan says bf16" in text for text in found.assumptions)


def test_a_plan_that_does_not_fit_says_what_was_left_open() -> None:
    found = armillary.train("llama-3-70b", "2xdgx-h100", batch=16, pp=2)
    assert found.memory.fits is False
    assert any(
        text.startswith("tp, cp, ep, microbatch, recompute as by default") for text in found.assumptions
    )
    fits = armillary.train("llama-3-8b", "1xdgx-h100", batch=8, tp=8)
    assert fits.memory.fits and not any("as by default" in text for text in fits.assumptions)


def test_a_step_over_a_graph_of_links_leaves_terms_out_and_says_so() -> None:
    """Links alike, each host a switch: the graph takes what dimensions take but for the terms, less certainly."""
    npu = {"peak": {"bf16": "989 TFLOP/s"}, "memory": {"bandwidth": "3.35 TB/s"}}
    common = {"npu": npu, "compute": {"model": "gpu", "device": "h100-sxm"}}
    graph = {
        "kind": "rail-optimised", "hosts": 2, "npus_per_host": 2, "host_bandwidth": "450 GB/s", "host_latency": "1 us",
        "spines": 0, "bandwidth": "50 GB/s", "latency": "500 ns", "routing": "rail",
    }  # fmt: skip
    dimensions = [
        {"topology": "Switch", "size": 2, "bandwidth": "450 GB/s", "latency": "2 us"},
        {"topology": "Switch", "size": 2, "bandwidth": "50 GB/s", "latency": "1 us"},
    ]
    plan = {"batch": 2, "sequence": 1024, "tp": 2, "software": "nemo"}
    over, plain = (
        armillary.train("llama-3-8b", {"platform": {**common, **network}}, **plan)  # type: ignore[arg-type]
        for network in ({"topology": graph}, {"network": dimensions})
    )
    assert over.step_time_s == pytest.approx(plain.step_time_s, rel=0.05)
    assert over.step_time_s == pytest.approx(sum(over.parts.values()))
    assert over.parts["gemm"] == pytest.approx(plain.parts["gemm"], rel=0.01)
    assert "what nemo adds to collectives, launches and iterations is left out" in " ".join(over.assumptions)
    width, usual = (each.interval_s[1] / each.interval_s[0] for each in (over, plain))
    assert width > usual


def test_a_vocabulary_that_gemms_read_slowly_is_said() -> None:
    model = load_model("gpt-3-175b").model_copy(update={"layers": 2, "hidden": 1536, "vocabulary": 50_257})
    given = {"batch": 8, "sequence": 512, "pp": 1, "microbatch": 1, "recompute": "none"}
    said = [armillary.train(model, "8xa100", tp=tp, **given).assumptions for tp in (1, 2)]
    assert [any("50,257 rows" in each for each in found) for found in said] == [True, False]
