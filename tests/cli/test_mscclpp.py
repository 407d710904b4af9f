"""MSCCL++ plans on the command line: written, read again, and simulated."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from armillary.collective.mscclpp_read import read_plan
from armillary.collective.mscclpp_run import check_plan

pytestmark = pytest.mark.usefixtures("elsewhere")
MESH = """\
platform:
  topology: {kind: leaf-spine, leaves: 2, spines: 1, npus_per_leaf: 2, bandwidth: 50 GB/s, latency: 1 us}
"""


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let relative names be below the folder of the test."""
    monkeypatch.chdir(tmp_path)


def test_a_written_plan_becomes_a_trace(call: Callable[[str], Result]) -> None:
    done = call("collective show ring --ranks 4 --mscclpp plan.json --protocol LL")
    assert done.exit_code == 0 and "wrote plan.json" in done.stderr
    done = call("trace convert --from mscclpp plan.json --size 1MiB -o made")
    assert "4 ranks" in done.output and "warning" not in done.output
    assert call("trace check made.0.et made.1.et made.2.et made.3.et").exit_code == 0
    refused = call("collective show in-switch --ranks 4 --mscclpp no.json")
    assert refused.exit_code == 2 and "switches take part" in refused.stderr and not Path("no.json").exists()


def test_a_synthesised_schedule_is_a_plan_that_sums(call: Callable[[str], Result]) -> None:
    Path("mesh.yaml").write_text(MESH)
    done = call("collective synthesize mesh.yaml --size 1MiB --tries 1 --mscclpp made.json")
    assert done.exit_code == 0 and "wrote made.json" in done.stderr, done.output
    assert json.loads(Path("made.json").read_text())["collective"] == "allreduce"
    check_plan(read_plan("made.json"))
