"""The key ``workload.generate`` of study files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from armillary.base.errors import InputError
from armillary.platform import load_study
from armillary.workload import study_trace
from armillary.workload.models import load_model
from armillary.workload.plan.request import read_request, study_schema
from armillary.workload.plan.schema import Data, Parallel, Plan

STUDY = """\
workload:
  generate:
    model: llama-3-8b
    batch: 16
    parallel: {tp: 4}
    data: {bucket: 1 MiB, overlap: false}
platform:
  network: [{topology: Switch, size: 8, bandwidth: 450 GB/s, latency: 500 ns}]
  npu: {peak: 989 TFLOP/s, memory: {bandwidth: 3.35 TB/s}}
"""


def write(folder: Path, old: str = "", new: str = "") -> Path:
    assert old in STUDY
    file = folder / "study.yaml"
    file.write_text(STUDY.replace(old, new, 1) if old else STUDY)
    return file


def test_ranks_are_the_npus(tmp_path: Path) -> None:
    study = load_study(write(tmp_path))
    expected = Plan(
        ranks=8, batch=16, parallel=Parallel(tp=4), data=Data.model_validate({"bucket": "1 MiB", "overlap": False})
    )  # fmt: skip
    assert read_request(study) == (load_model("llama-3-8b"), expected)
    assert study.platform.compute.model  # nothing else times its kernels
    trace = study_trace(study)
    assert (trace.n_ranks, len(trace.graphs)) == (8, 1)


def test_models_are_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = "kind: stack\nname: one\nsource: [me]\nlayers: [{gemm: {m: 4, n: 8, k: 8}}]\n"
    (tmp_path / "own.yaml").write_text(layer)
    monkeypatch.chdir("/")
    assert read_request(load_study(write(tmp_path, "llama-3-8b", "own.yaml")))[0].name == "one"
    with pytest.raises(InputError, match=r"own2.yaml: no such file .*did you mean 'own.yaml'"):
        read_request(load_study(write(tmp_path, "llama-3-8b", "own2.yaml")))


MISTAKES = [
    ("tp: 4", "tpp: 4", 5, "workload.generate.parallel.tpp: unknown key (did you mean 'tp'?)"),
    ("tp: 4", "tp: four", 5, "workload.generate.parallel.tp: got 'four', expected a whole number"),
    ("tp: 4", "tp: 0", 5, "workload.generate.parallel.tp: got 0, expected 1 or more"),
    ("batch: 16", "ranks: 8", 4, "workload.generate.ranks: unknown key"),
    ("    batch: 16\n", "", 2, "missing key 'batch' in workload.generate"),
    ("    model: llama-3-8b\n", "", 2, "missing key 'model' in workload.generate"),
    ("llama-3-8b", "llama-3-9b", 3, "workload.generate.model: model 'llama-3-9b': no such preset"),
    ("llama-3-8b", "8", 3, "workload.generate.model: got 8, expected text"),
    ("1 MiB", "1", 6, "workload.generate.data.bucket: got 1, expected a size with a unit"),
    ("overlap: false", "sharding: fspd", 6, "(did you mean 'fsdp'?)"),
    ("overlap: false", "shard: 2", 6, "workload.generate.data: expected shard with sharding hsdp, and only there"),
    ("tp: 4", "tp: 3", 2, "workload.generate: tp 3: expected a divisor of"),
    ("batch: 16", "batch: 15", 2, "workload.generate: batch 15: expected a multiple of dp 2 x microbatch 1"),
    ("tp: 4", "sequence: false, order: tp-pp", 2, "workload.generate: order 'tp-pp': expected each of"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "line", "problem"), MISTAKES)
def test_mistakes_name_file_line_and_key(tmp_path: Path, old: str, new: str, line: int, problem: str) -> None:
    file = write(tmp_path, old, new)
    with pytest.raises(InputError) as error:
        study_trace(load_study(file))
    assert str(error.value).startswith(f"{file}:{line}: ")
    assert problem in str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            "  generate:\n",
            "  collective: all-reduce\n  size: 1 B\n  generate:\n",
            "expected either trace, or",
        ),
        ("peak: 989 TFLOP/s, ", "", "expected npu.peak and npu.memory.bandwidth: they time the kernels"),
        ("  npu:", "  compute: {replay: true}\n  npu:", "a generated workload has no recorded times"),
    ],
)
def test_what_does_not_go_together(tmp_path: Path, old: str, new: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        load_study(write(tmp_path, old, new))


def test_it_is_a_mapping(tmp_path: Path) -> None:
    text = STUDY[STUDY.index("platform") :]
    (tmp_path / "s.yaml").write_text("workload: {generate: llama-3-8b}\n" + text)
    with pytest.raises(
        InputError, match=r":1: workload.generate: got 'llama-3-8b', expected a mapping of keys"
    ):
        load_study(tmp_path / "s.yaml")


def test_the_schema_lists_the_keys() -> None:
    definitions = study_schema()["$defs"]
    generate = definitions["Generate"]
    assert definitions["Workload"]["properties"]["generate"] == {"$ref": "#/$defs/Generate"}
    assert set(generate["required"]) == {"model", "batch"}
    assert set(generate["properties"]) == {*Plan.model_fields, "model"} - {"ranks"}
    assert definitions["Data"]["properties"]["bucket"]["pattern"]


def test_reading_a_study_does_not_load_generators() -> None:
    code = (
        "import sys, armillary.platform.files.native;"
        "sys.exit(any(name.startswith('armillary.workload') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
