"""The processor of this machine as the cluster: measured, observed, predicted; nothing depends on how fast it is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import armillary
from armillary.compute.gpu.device import load_gpu
from armillary.evidence.calibrate.observe.base import base_of
from armillary.evidence.calibrate.observe.machine import observed_machine
from armillary.evidence.calibrate.observe.read import observe

pytest.importorskip("scipy")
SCRIPT = Path(__file__).parents[4] / "examples/cluster/measure.py"
FILES = ("gemms.csv", "collectives.csv", "steps.yaml")
PLAN = {"sequence": 64, "attention": "unfused", "precision": "fp32", "sharding": "ddp"}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("cpu")
    run = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        str(SCRIPT),
    ]
    done = subprocess.run([*run, str(folder)], check=False, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder


@pytest.mark.slow
def test_measured_observed_and_predicted(measured: Path) -> None:
    observed = observe(measured / name for name in FILES)
    assert observed.ranks == 2 and len(observed.gemms()["fp32"].rows[0]) > 1
    # The batch in the middle is kept aside: another plan than those that are observed.
    aside = observed.steps.pop(2)
    base = base_of(None, observed.devices, observed.ranks)
    assert base is None
    found = observed_machine(observed, base, measured, title="cpu")
    found.write(measured / "cpu.yaml")
    assert load_gpu(str(measured / "cpu.device.yaml")).spread["gemm fp32 long"] > 0
    plans = {again.plan.batch: again for again in found.again}
    assert list(plans) == [step.plan["batch"] for step in observed.steps]
    again = {
        batch: armillary.train(
            str(measured / "model.yaml"),
            str(measured / "cpu.yaml"),
            batch=batch,
            microbatch=batch // 2,
            **PLAN,
        )
        for batch in (*plans, aside.plan["batch"])
    }
    # From its file the machine predicts what it predicted when it was made.
    for batch, known in plans.items():
        assert again[batch].step_time_s == pytest.approx(known.step_time_s, rel=1e-3)
        assert again[batch].interval_s == pytest.approx(known.interval_s, rel=1e-3)
    assert any("4 measured" in text or "3 measured" in text for text in again[4].assumptions)
    # A generous bound, for the times of a machine that does other things besides.
    for step in (*observed.steps, aside):
        low, high = again[step.plan["batch"]].interval_s
        middle = sorted(step.seconds)[len(step.seconds) // 2]
        assert low / 3 < middle < 3 * high


@pytest.mark.slow
def test_intervals_come_from_the_spread_of_repeated_times(measured: Path) -> None:
    """The same machine measured with more noise: the same constants, wider intervals."""
    observed = observe(measured / name for name in FILES)
    wide = observe(measured / name for name in FILES)
    for step in observed.steps:
        object.__setattr__(step, "seconds", (sorted(step.seconds)[len(step.seconds) // 2],))
    for step in wide.steps:
        middle = sorted(step.seconds)[len(step.seconds) // 2]
        object.__setattr__(step, "seconds", tuple(middle * factor for factor in (0.4, 0.5, 1.0, 2.0, 2.5)))
    calm, noisy = (observed_machine(each, None, measured, title="a").steps for each in (observed, wide))
    assert noisy.spread.step > 1.5 * calm.spread.step
    assert noisy.constants == pytest.approx(calm.constants)


@pytest.mark.slow
def test_the_command_writes_a_machine_that_others_read(measured: Path) -> None:
    from click.testing import CliRunner

    from armillary.cli import main

    out = measured / "mine.yaml"
    files = [str(measured / name) for name in FILES]
    done = CliRunner().invoke(main, ["calibrate", "observe", *files, "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "4 measured plans" in done.output
    assert yaml.safe_load(out.read_text())["platform"]["network"][0]["size"] == 2
    plan = ["--batch", "32", "--sequence", "64", "--attention", "unfused", "--precision", "fp32"]
    for command in ("train", "plan"):
        done = CliRunner().invoke(main, [command, str(measured / "model.yaml"), "--machine", str(out), *plan])
        assert done.exit_code == 0, done.output
        assert (
            "90 % interval" in done.output
            and "Assumed: GEMMs in fp32 follow 10 observed shapes" in done.output
        )
