"""Inference from the command line: options, the table, memory, times, refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from armillary.cli.generate.serve import command
from armillary.trace import load_trace
from armillary.workload import models
from armillary.workload.plan.options import leaves
from tests.cli.generate.test_train import MACHINE, MODEL

Call = Callable[[str], Result]
SERVE = "--prompt 16 --outputs 5 --batch 16 --microbatch 2 --tp 2 --pp 2"


@pytest.fixture
def here(inputs: Path) -> Path:
    """A folder with a model and a machine of 8 NPUs."""
    Path("model.yaml").write_text(MODEL)
    Path("machine.yaml").write_text(MACHINE)
    return inputs


def test_options_are_those_that_mean_something() -> None:
    names = {option.opts[-1].removeprefix("--") for option in command.params[1:]}
    serve = {"prompt", "outputs", "phase"}
    sizes = {"ranks", "batch", "microbatch", "tp", "pp", "dp", "ep", "etp", "order", "stage-layers"}
    others = {"precision", "attention", "causal", "plan", "out", "machine", "efficiency", "allow-programs"}
    own = {f"{what}-precision" for what in ("weight", "embedding", "cache", "activation")}
    assert names == serve | sizes | others | own | {
        "json",
        "timeline",
        "plot",
        "links",
        "save",
        "html",
        "brief",
    }
    assert len(list(leaves("both"))) == len(list(leaves("training"))) + len(serve | own)


def test_the_table_is_the_trace(here: Path, call: Call) -> None:
    result = call(f"generate serve model.yaml --ranks 8 {SERVE} --json out.json --out traces")
    assert result.exit_code == 0, result.output
    assert "16 sequences: 4 microbatches of 2 for each replica" in result.stdout
    assert "prompts of 16 tokens, answers of 5" in result.stdout
    found = json.loads(Path("out.json").read_text())
    model = models.load_model("model.yaml")
    parts = models.flops(model, 16, 16).parts
    per_token = (sum(parts.values()) - parts["head"]) // 16
    assert found["step_flops"] > per_token * 20  # 16 and 4 tokens, whose attention is more
    trace = load_trace("traces/rank")
    assert trace.n_ranks == 8
    assert {row["operation"] for row in found["communication"]} == {"all-reduce", "all-gather", "send"}
    # Keys and values of 8 sequences of 20 tokens: 2 x 8 heads of 8 elements in bf16, on 2 of 4 layers, by tp 2.
    assert found["memory"]["cache_bytes"] == 8 * 20 * 2 * 64 * 2 * 2 // 2


def test_times_of_tokens_are_printed_wherever_it_is_simulated(here: Path, call: Call) -> None:
    result = call(f"generate serve model.yaml --machine machine.yaml {SERVE} --json out.json --save r.zip")
    assert result.exit_code == 0, result.output
    for text in (
        "Time to first token",
        "Time per output token",
        "output tokens/s",
        "Prefill: ",
        "Decode: bound by",
    ):
        assert result.stdout.count(text) == 1, text
    assert "fits into 3.725 GiB" in result.stdout
    summary = call("explain r.zip").stdout.partition("\nWhy ")[0]
    assert summary in result.stdout
    key = "  generate: {model: model.yaml, batch: 16, microbatch: 2, parallel: {tp: 2, pp: 2},"
    Path("whole.yaml").write_text(f"workload:\n{key} serve: {{prompt: 16, outputs: 5}}}}\n{MACHINE}")
    study = call("run whole.yaml --json study.json")
    assert study.exit_code == 0, study.output
    assert study.stdout == summary
    assert json.loads(Path("study.json").read_text()) == json.loads(Path("out.json").read_text())["result"]


def test_memory_of_inference(here: Path, call: Call) -> None:
    result = call(f"generate memory model.yaml --ranks 8 {SERVE} --capacity 20MB --json m.json")
    assert result.exit_code == 0, result.output
    assert "keys and values" in result.stdout and "optimizer" not in result.stdout
    held = json.loads(Path("m.json").read_text())
    result = call(
        "generate memory model.yaml --ranks 1 --prompt 16 --outputs 5 --batch 400 --capacity 632MB --json m.json"
    )
    found = json.loads(Path("m.json").read_text())
    model = models.load_model("model.yaml")
    assert found["categories"]["weights_bytes"] == 2 * models.parameters(model).total
    assert found["categories"]["cache_bytes"] == 400 * 20 * 4 * 2 * 64 * 2
    assert held["categories"]["cache_bytes"] < found["categories"]["cache_bytes"]
    assert not found["fits"] and "batch 100 " in result.stdout
    fits = [each for each in found["changes"] if each["needed_bytes"] <= 632 * 10**6]
    assert [each["change"] for each in fits] == ["batch 100"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("model.yaml --ranks 8 --batch 8", "Missing option '--prompt'"),
        ("model.yaml --ranks 8 --batch 8 --outputs 3", "Missing option '--prompt'"),
        ("model.yaml --ranks 8 --prompt 8", "Missing option '--batch'"),
        ("model.yaml --ranks 8 --batch 8 --prompt 8 --recompute full", "--recompute"),
        (
            "model.yaml --ranks 8 --batch 8 --prompt 8 --phase decode",
            "serve: got outputs 1, which prefill makes",
        ),
        ("model.yaml --ranks 8 --batch 9 --prompt 8", "batch 9: expected a multiple of dp 8 x microbatch 1"),
        ("model.yaml --ranks 8 --batch 8 --prompt 0", "--prompt: got 0, expected 1 or more"),
        (
            "resnet-50 --ranks 8 --batch 8 --prompt 8",
            "inference of 'ResNet-50': expected a model of kind 'decoder'",
        ),
        (
            "gpt-3-175b --ranks 8 --batch 8 --prompt 2048 --outputs 2",
            "expected at most 2048, the learned positions",
        ),
        ("model.yaml --ranks 8 --batch 8 --prompt 8 --save r.zip", "--save needs --machine"),
    ],
)
def test_what_is_refused(here: Path, call: Call, words: str, problem: str) -> None:
    result = call(f"generate serve {words}")
    assert result.exit_code == 2 and problem in result.output and result.output.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("parallel: {cp: 2}", "parallel.cp 2: not for inference, expected 1"),
        ("data: {sharding: fsdp}", "data.sharding fsdp: not for inference, expected ddp"),
        ("data: {sharding: hsdp, shard: 2}", "data.sharding hsdp: not for inference, expected ddp"),
        ("pipeline: {schedule: interleaved, virtual: 2}", "pipeline.schedule interleaved: not for inference"),
        ("parallel: {sequence: false}", "parallel.sequence false: not for inference, expected true"),
        ("experts: {skew: 0.5}", "experts.skew 0.5: not for inference, expected 0.0"),
        ("offload: {weights: 0.5}", "offload.weights 0.5: not for inference, expected it to be left out"),
        ("iterations: 2", "iterations 2: not for inference, expected 1"),
    ],
)
def test_keys_of_training_are_refused(here: Path, call: Call, line: str, problem: str) -> None:
    plan = f"batch: 8\nserve: {{prompt: 8}}\n{line}\n"
    Path("plan.yaml").write_text(plan)
    for what in ("serve", "memory"):
        result = call(f"generate {what} model.yaml --ranks 8 --plan plan.yaml")
        assert result.exit_code == 2 and problem in result.output and result.output.count("\n") == 1
    indented = "".join(f"    {each}\n" for each in plan.splitlines())
    Path("whole.yaml").write_text(f"workload:\n  generate:\n    model: model.yaml\n{indented}{MACHINE}")
    result = call("run whole.yaml")
    assert result.exit_code == 2 and f"whole.yaml:2: workload.generate: {problem}" in result.output


def test_training_does_not_take_a_plan_of_inference(here: Path, call: Call) -> None:
    Path("plan.yaml").write_text("batch: 8\nserve: {prompt: 8}\n")
    result = call("generate train model.yaml --ranks 8 --plan plan.yaml")
    assert result.exit_code == 2 and "plan.yaml:2: serve: this is a plan of inference" in result.output
    Path("plan.yaml").write_text("batch: 8\nserve: {}\n")
    result = call("generate train model.yaml --ranks 8 --plan plan.yaml")
    assert result.exit_code == 2 and "plan.yaml:2: missing key 'prompt' in serve" in result.output
