"""The interval of measured steps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from armillary.cli import main

STUDY = """
workload: {collective: all-reduce, size: 1 MiB}
platform:
  network: [{name: node, topology: Switch, size: 4, bandwidth: 100 GB/s, latency: 1 us}]
  compute: {uncertainty: {low: 0.5, high: 1.5, of: 12 rows of ours}}
"""


def test_interval_beside_the_step_time(tmp_path: Path):
    (tmp_path / "s.yaml").write_text(STUDY)
    out = tmp_path / "r.json"
    found = CliRunner().invoke(main, ["run", str(tmp_path / "s.yaml"), "--json", str(out)])
    assert found.exit_code == 0, found.output
    report = json.loads(out.read_text())
    assert report["interval"]["low_ns"] == pytest.approx(0.5 * report["finish_ns"])
    assert report["interval"]["high_ns"] == pytest.approx(1.5 * report["finish_ns"])
    assert "90 % interval" in found.output and "(12 rows of ours)" in found.output


def test_interval_is_checked(tmp_path: Path):
    (tmp_path / "s.yaml").write_text(STUDY.replace("low: 0.5", "low: 2"))
    found = CliRunner().invoke(main, ["run", str(tmp_path / "s.yaml")])
    assert found.exit_code == 2 and "got low 2.0 above high 1.5" in found.output
