"""Constants as keys of a study: a study with them is what `armillary validate` predicts."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

import armillary
from armillary.base.errors import InputError
from armillary.cli import main
from armillary.evidence.calibrate.study_keys import study_keys
from armillary.platform.files.native import load_study
from armillary.workload import study_trace

NETWORK = [{"name": "nvlink", "topology": "Switch", "size": 8, "bandwidth": "300 GB/s", "latency": "1 us"}]
NPU = {"peak": "312 TFLOP/s", "memory": {"bandwidth": "2.039 TB/s", "capacity": "80 GB"}}


def test_a_study_with_them_is_near_the_measured_step(tmp_path: Path) -> None:
    """22B of arXiv 2205.05198, table 5: 1.42 s; no constant has seen it."""
    keys = study_keys("megatron-lm-2022", "a100-sxm-80")
    keys["platform"] |= {"network": NETWORK, "npu": NPU, "collectives": {"fit": "a100-sxm"}}
    keys["workload"]["generate"] |= {
        "model": "megatron-22b", "batch": 4, "microbatch": 4, "recompute": "full", "attention": "unfused",
        "dropout": True, "parallel": {"tp": 8, "sequence": False}, "data": {"overlap": False},
        "numbers": {"gradients": "bf16"},
    }  # fmt: skip
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump(keys))
    study = load_study(path)
    found = armillary.simulate(study_trace(study), study.platform)
    assert found.total_ticks * 1e-9 == pytest.approx(1.42, rel=0.06)
    assert found.info["uncertainty"]["low_ratio"] < 1 < found.info["uncertainty"]["high_ratio"]


def test_a_file_of_a_fit_gives_keys(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text("title: own\ndevices: {h100-sxm: {constants: {launch: 30.0}, rows: 6}}\n")
    assert study_keys(str(path), "h100-sxm") == {
        "platform": {"compute": {"model": "gpu", "device": "h100-sxm"}, "terms": {"launch": "30.0000 us"}}
    }


def test_what_is_not_known_is_refused(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("title: own\ndevices: {h100-sxm: {constants: {launch: 30.0}, rows: 6}}\n")
    with pytest.raises(InputError, match=r"own.yaml on b200: no constants are known"):
        study_keys(str(own), "b200")
    # Those of a software hold for all devices; of one without rows no interval is stated.
    assert "uncertainty" in study_keys("llm-foundry", "h100-sxm")["platform"]["compute"]
    assert "uncertainty" not in study_keys("llm-foundry", "b200")["platform"]["compute"]
    with pytest.raises(InputError, match=r"no device 'a100' \(did you mean .*'a100-sxm-80'\?\)"):
        study_keys("megatron-lm-2022", "a100")
    result = CliRunner().invoke(main, ["calibrate", "keys", "megatron-2023", "--device", "a100-sxm-80"])
    assert result.exit_code == 2
