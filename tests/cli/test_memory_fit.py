"""Whether a plan fits into memory is said first, wherever a plan is simulated."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

import armillary
from armillary.report import to_json
from armillary.workload.generate import generate
from armillary.workload.models import load_model
from armillary.workload.plan.schema import Plan

Call = Callable[[str], Result]
STUDY = """\
workload: {generate: {model: llama-2-7b, batch: 8, sequence: 128, parallel: {tp: 2}}}
platform:
  network: [{topology: Ring, size: 8, bandwidth: 400 GB/s, latency: 500 ns}]
  npu: {peak: 1 PFLOP/s, memory: {bandwidth: 3 TB/s, capacity: CAPACITY}}
"""
PLAN = Plan.model_validate({"ranks": 8, "batch": 8, "sequence": 128, "parallel": {"tp": 2}})


@pytest.fixture
def studies(inputs: Path) -> None:
    """One that fits and one that does not."""
    Path("large.yaml").write_text(STUDY.replace("CAPACITY", "800 GB"))
    Path("small.yaml").write_text(STUDY.replace("CAPACITY", "8 GB"))
    Path("sweep.yaml").write_text("study: small.yaml\nvary: {workload.generate.microbatch: [1, 2]}\n")


def test_python_says_it() -> None:
    trace = generate(load_model("llama-2-7b"), PLAN)
    for text, fits in (("8 GB", False), ("800 GB", True)):
        npu = {"peak": "1 PFLOP/s", "memory": {"bandwidth": "3 TB/s", "capacity": text}}
        ring = {"topology": "Ring", "size": 8, "bandwidth": "400 GB/s", "latency": "1 us"}
        found = armillary.simulate(trace, {"network": [ring], "npu": npu})
        assert found.info["memory"]["fits"] is fits
        assert to_json(found)["memory"] == found.info["memory"]


@pytest.mark.parametrize(
    "words",
    [
        "run {}.yaml", "generate train llama-2-7b --batch 8 --sequence 128 --tp 2 --machine {}.yaml",
        "plan whole-run {}.yaml --tokens 1T", "plan cost {}.yaml --costs h100",
    ],
)  # fmt: skip
def test_every_command_says_it_before_any_time(studies: None, call: Call, words: str) -> None:
    for name, said in (("small", "DOES NOT FIT"), ("large", "fits")):
        out = call(words.format(name)).stdout
        assert said in out, out
        times = [out.index(word) for word in ("Step time", "without failures", "step_time") if word in out]
        assert all(out.index(said) < at for at in times)


def test_explain_says_it_of_a_saved_run(studies: None, call: Call) -> None:
    call("run small.yaml --save s.npz --json s.json")
    assert call("explain s.npz").stdout.startswith("DOES NOT FIT: Llama 2 7B needs")
    assert json.loads(Path("s.json").read_text())["memory"]["fits"] is False


def test_tables_mark_what_does_not_fit(studies: None, call: Call) -> None:
    for command in ("sweep sweep.yaml --executor serial --csv a.csv", "plan search sweep.yaml --csv b.csv"):
        out = call(command).stdout
        assert "do not fit into the memory of an NPU" in out or "does not fit" in out
        assert "NO" in out and "fits" in out
    assert "fits" in Path("a.csv").read_text().splitlines()[0]
    out = call("compare small.yaml large.yaml").stdout
    assert "DOES NOT FIT" in out
