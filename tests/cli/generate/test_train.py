"""Training steps from the command line: options of the schema, the table, files, simulation."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from armillary.cli.generate.train import command
from armillary.trace import NodeType, load_trace
from armillary.workload import models
from armillary.workload.plan.options import leaves, option_name

Call = Callable[[str], Result]
MODEL = """\
kind: decoder
name: small
source: [a test]
layers: 4
hidden: 64
vocabulary: 512
context: 32
tied: false
norm: rms
activation: swiglu
attention: {heads: 8}
mlp: {size: 256}
"""
MACHINE = """\
platform:
  network:
    - {name: node, topology: Switch, size: 4, bandwidth: 450 GB/s, latency: 500 ns}
    - {name: rail, topology: Switch, size: 2, bandwidth: 50 GB/s, latency: 2 us}
  npu: {peak: 1 TFLOP/s, memory: {bandwidth: 1 TB/s, capacity: 4 GB}}
  compute: {efficiency: 50 %}
"""
PLAN = "batch: 16\nmicrobatch: 2\nparallel: {tp: 2, pp: 2}\npipeline: {schedule: gpipe}\n"


@pytest.fixture
def here(inputs: Path) -> Path:
    """A folder with a model, a machine of 8 NPUs, and a plan."""
    for name, text in (("model", MODEL), ("machine", MACHINE), ("plan", PLAN)):
        Path(f"{name}.yaml").write_text(text)
    return inputs


def test_every_key_has_one_option_with_its_description() -> None:
    named = {option_name(path): schema for path, schema in leaves("training")}
    assert len(named) == len(list(leaves("training"))) > 30
    options = {option.opts[0][2:]: option for option in command.params[1:]}
    for name, schema in named.items():
        assert schema["description"] in (options[name].help or ""), name  # type: ignore[attr-defined]


def test_the_table_is_the_trace(here: Path, call: Call) -> None:
    result = call("generate train model.yaml --ranks 8 --plan plan.yaml --json out.json --write traces")
    assert result.exit_code == 0, result.output
    assert "8 = tp 2 x cp 1 x dp 2 x pp 2" in result.stdout
    assert "16 samples: 4 microbatches of 2 for each replica" in result.stdout
    found = json.loads(Path("out.json").read_text())
    model = models.load_model("model.yaml")
    assert found["parameters_count"] == models.parameters(model).total
    assert found["step_flops"] == models.flops(model, 16).training
    assert found["plan"]["pipeline"]["schedule"] == "gpipe"
    trace = load_trace("traces/rank")
    assert trace.n_ranks == 8
    assert [each["ranks_count"] for each in found["classes"]] == [4, 4]
    graphs = [trace.graph(rank) for rank in range(8)]
    work = {int((graph.types != NodeType.METADATA_NODE).sum()) for graph in graphs}  # files also name groups
    assert {each["nodes_count"] for each in found["classes"]} == work
    sent = [int(g.ints("comm_size")[g.types == NodeType.COMM_SEND_NODE].sum()) for g in graphs]
    row = next(row for row in found["communication"] if row["operation"] == "send")
    assert (row["axes"], row["rank_bytes"], row["total_bytes"]) == ("pp", max(sent), sum(sent))
    reduced = [g.ints("comm_size")[g.types == NodeType.COMM_COLL_NODE].sum() for g in graphs]
    total = sum(row["total_bytes"] for row in found["communication"] if row["operation"] != "send")
    assert total == sum(reduced)
    assert json.loads(Path("traces/groups.json").read_text())


def test_options_go_over_the_file(here: Path, call: Call) -> None:
    words = (
        "--ranks 8 --plan plan.yaml --pp 1 --schedule 1f1b --no-sequence-parallel --bucket 1MB --iterations 3"
    )
    result = call(f"generate train model.yaml {words} --json out.json")
    assert result.exit_code == 0, result.output
    found = json.loads(Path("out.json").read_text())
    assert found["axes"]["pp"] == 1
    assert found["plan"]["parallel"]["sequence"] is False
    assert found["plan"]["data"]["bucket"] == 10**6
    assert found["step_flops"] == models.flops(models.load_model("model.yaml"), 16).training
    assert not any(row["operation"] == "reduce-scatter" for row in found["communication"])


def test_it_is_simulated_on_a_machine(here: Path, call: Call) -> None:
    words = "generate train model.yaml --plan plan.yaml --machine machine.yaml --recompute full"
    result = call(f"{words} --json out.json --save r.zip")
    assert result.exit_code == 0, result.output
    assert "roofline at 50 % of the peak" in result.stdout
    assert (
        "without what is computed again (MFU)" in " ".join(result.stdout.split())
        and "Throughput" in result.stdout
    )
    found = json.loads(Path("out.json").read_text())
    assert found["result"]["npus_count"] == 8
    assert call("explain r.zip").stdout.partition("\nWhy ")[0] in result.stdout
    faster = call(f"{words} --efficiency 100 --json fast.json")
    assert faster.exit_code == 0
    fast = json.loads(Path("fast.json").read_text())["result"]
    assert fast["roofline"]["compute_efficiency_ratio"] == 1
    assert fast["finish_ticks"] < found["result"]["finish_ticks"]
    assert fast["flops"]["total_flops"] == pytest.approx(found["step_flops"], rel=1e-3)


def test_a_study_says_the_same(here: Path, call: Call) -> None:
    assert (
        call("generate train model.yaml --plan plan.yaml --machine machine.yaml --json out.json").exit_code
        == 0
    )
    key = "workload:\n  generate:\n    model: model.yaml\n" + "".join(
        f"    {line}\n" for line in PLAN.splitlines()
    )
    Path("whole.yaml").write_text(key + MACHINE)
    result = call("run whole.yaml --json study.json")
    assert result.exit_code == 0, result.output
    ours = json.loads(Path("out.json").read_text())["result"]
    assert json.loads(Path("study.json").read_text()) == ours


MISTAKES = [
    ("--ranks 8", "Missing option '--batch'"),
    ("--batch 8", "Missing option '--ranks'"),
    ("--ranks 8 --batch 0", "--batch: got 0, expected 1 or more"),
    ("--ranks 8 --batch 8 --bucket 3", "--bucket: got '3', which has no unit"),
    ("--ranks 8 --batch 8 --offload-weights 2", "--offload-weights: got 2.0, expected 1.0 or less"),
    ("--ranks 8 --batch 8 --stage-layers 2,x", "--stage-layers '2,x': expected whole numbers, e.g. 8,9,9,6"),
    ("--ranks 8 --batch 8 --shard 2", "data: expected shard with sharding hsdp, and only there"),
    ("--ranks 8 --batch 8 --tp 3", "tp 3: expected a divisor of heads 8 (nearest: 2)"),
    ("--ranks 8 --plan bad.yaml", "bad.yaml:2: parallel.tpp: unknown key (did you mean 'tp'?)"),
    ("--ranks 8 --plan serve.yaml", "serve.yaml:1: serve: this is a plan of inference"),
    ("--ranks 8 --plan worse.yaml --tp 2", "worse.yaml:1: parallel: got 3, expected a mapping of keys"),
    ("--ranks 4 --batch 8 --machine machine.yaml", "ranks 4: expected 8, the NPUs of the machine"),
    ("--ranks 8 --batch 8 --save r.zip", "--save needs --machine"),
    ("--ranks 8 --batch 8 --efficiency 45", "--efficiency needs --machine"),
    ("--ranks 8 --batch 8 --write .", "--out .: is there already, expected a new or an empty folder"),
    ("--batch 8 --machine study.yaml", "expected npu.peak and npu.memory.bandwidth"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "problem"), MISTAKES)
def test_what_is_impossible_is_one_line(here: Path, call: Call, words: str, problem: str) -> None:
    Path("bad.yaml").write_text("batch: 8\nparallel: {tpp: 2}\n")
    Path("serve.yaml").write_text("serve: {prompt: 8}\nbatch: 8\n")
    Path("worse.yaml").write_text("parallel: 3\nbatch: 8\n")
    result = call(f"generate train model.yaml {words}")
    assert result.exit_code == 2 and problem in result.output and result.output.count("\n") == 1


def test_a_dispatcher_without_experts_to_send_to_is_said_or_refused(call: Call) -> None:
    words = "--ranks 8 --batch 8 --tp 8 --expert-dispatcher deepep"
    alone = call(f"generate train mixtral-8x7b {words} --etp 1")
    assert (
        alone.exit_code == 0 and "warning: experts.dispatcher deepep has no effect: with ep 1" in alone.stderr
    )
    shared = call(f"generate train mixtral-8x7b {words} --ep 8 --etp 1")
    assert shared.exit_code == 0 and "experts.dispatcher" not in shared.stderr
    dense = call(f"generate train llama-3-8b {words}")
    assert dense.exit_code == 2
    assert "experts.dispatcher deepep: 'Llama 3 8B' has no experts, expected none" in dense.output


def test_memory_says_what_fits(here: Path, call: Call) -> None:
    words = "generate memory model.yaml --plan plan.yaml --machine machine.yaml"
    result = call(f"{words} --json m.json --plot m.png")
    assert result.exit_code == 0, result.output
    assert "It fits" in result.stdout and Path("m.png").stat().st_size > 1000
    found = json.loads(Path("m.json").read_text())
    assert found["allocated_bytes"] < found["reserved_bytes"] < found["needed_bytes"]
    assert sum(found["categories"].values()) == found["needed_bytes"] <= found["capacity_bytes"] == 4 * 10**9
    result = call(f"{words} --capacity 1MB --json m.json")
    assert "It does not fit" in result.stdout
    found = json.loads(Path("m.json").read_text())
    assert not found["fits"] and all(
        each["needed_bytes"] < found["needed_bytes"] for each in found["changes"]
    )


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("--ranks 8 --batch 8 --capacity 80", "--capacity: got '80', which has no unit"),
        ("--batch 8 --machine study.yaml", "study.yaml has no npu.memory.capacity"),
        ("--ranks 8 --batch 8 --capacity 0GB", "got '0GB', expected more than nothing"),
        ("--ranks 8 --batch 8 --tp 8 --sharding parameter-server", "tp 8: expected 1 with sharding"),
        ("--ranks 8 --batch 8 --plot m.jpg", "m.jpg"),
        ("--ranks 8 --batch 8 --json model.yaml/m.json", "model.yaml' is not a folder"),
    ],
)
def test_what_memory_refuses(here: Path, call: Call, words: str, problem: str) -> None:
    result = call(f"generate memory model.yaml {words}")
    assert result.exit_code == 2 and problem in result.output and result.output.count("\n") == 1


def test_parameter_servers_have_layers_of_one_worker(here: Path, call: Call) -> None:
    words = "--ranks 5 --batch 8 --sharding parameter-server"
    for what in ("train", "memory"):
        result = call(f"generate {what} model.yaml {words}")
        assert result.exit_code == 0, result.output
