"""`armillary trace extrapolate` on a small run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from armillary.cli import main
from armillary.trace import GraphBuilder, Trace, load_trace, write_trace

MACHINE = """
network: [{name: a, topology: Switch, size: 8, bandwidth: 10 GB/s, latency: 1 us}]
npu: {peak: 100 TFLOP/s, memory: {bandwidth: 1 TB/s}}
"""


def call(*words: object) -> Result:
    return CliRunner().invoke(main, ["trace", "extrapolate", *map(str, words)])


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Write two replicas, one after the other, and return the prefix."""
    builder = GraphBuilder()
    now: list[int] = []
    for layer in range(4):
        now = [builder.compute(f"layer {layer}", flops=10**9 * (layer + 1), bytes=10**6, after=now)]
    for layer in range(3, -1, -1):
        now = [builder.compute(f"back {layer}", flops=2 * 10**9, bytes=10**6, after=now)]
        builder.all_reduce(f"gradient {layer}", "1 MiB", after=now)
    for layer in range(12):
        now = [builder.compute(f"other {layer}", flops=10**9, bytes=10**6, after=now)]
    write_trace(tmp_path / "run", Trace.replicate(builder.graph(), 2))
    return tmp_path / "run"


def test_axes_alone(run: Path) -> None:
    result = call(run)
    assert result.exit_code == 0
    assert "dp         2    2" in result.output
    assert "gradients" in result.output


def test_write_report_and_simulate(run: Path, tmp_path: Path) -> None:
    (tmp_path / "machine.yaml").write_text(MACHINE)
    result = call(run, "--scale", "dp=8", "--json", tmp_path / "r.json", "--out", tmp_path / "out",
                  "--machine", tmp_path / "machine.yaml")  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "data: all-reduces keep their size" in result.output
    assert "Step time" in result.output
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["changes"]["dp"] == {"from": 2, "to": 8}
    trace = load_trace(tmp_path / "out" / "rank")
    assert trace.n_ranks == 8
    assert len(trace.graphs) == 1


def test_one_rank_and_other_hardware(run: Path, tmp_path: Path) -> None:
    for name, peak in (("a", "100"), ("b", "200")):
        (tmp_path / f"{name}.yaml").write_text(MACHINE.replace("100 TFLOP/s", f"{peak} TFLOP/s"))
    words = ["--axes", "dp=2", "--ranks", 4, "--hardware", tmp_path / "a.yaml", tmp_path / "b.yaml"]
    result = call(f"{run}.0.et", "--from-one-rank", *words)
    assert result.exit_code == 0, result.output
    assert "hardware: kernels without a duration are left to the compute model" in result.output


def test_laws_of_a_second_run(run: Path) -> None:
    result = call(run, "--scale", "batch=4", "--also", run, "--at", "batch=2")
    assert result.exit_code == 0, result.output
    assert "batch: the same in" in result.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--scale", "ddp=3"], "no axis 'ddp', expected one of dp, tp"),
        (["--scale", "dp=x"], "expected a number, e.g. dp=8"),
        (["--scale", "dp=2,dp=4"], "dp is given twice"),
        (["--scale", "dp=1.5"], "expected a number of ranks"),
        (["--scale", "tp=2"], "the trace has no axis 'tp' of more than one rank; expected one of dp"),
        (["--axes", "dp=3"], "expected 2, those of the trace"),
        (["--group", "dp=7"], "no group 7"),
        (["--sizes", "batch=2"], "expected both"),
        (["--also", "x"], "each --also needs an --at"),
        (["--scale", "dp=4", "--also", "run", "--at", "dp=2"], "the trace has that size itself"),
    ],
)
def test_mistakes_are_named(
    run: Path, words: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run.parent)
    result = call("run", *words)
    assert result.exit_code == 2
    assert message in " ".join((result.output + str(result.exception)).split())


def test_a_single_file_needs_to_be_said(run: Path) -> None:
    result = call(f"{run}.0.et", "--scale", "dp=4")
    assert result.exit_code == 2
    assert "expected the prefix of all, or --from-one-rank" in str(result.exception) + result.output
    result = call(f"{run}.0.et", "--from-one-rank", "--ranks", 4)
    assert "expected --axes, such as dp=8" in str(result.exception) + result.output
