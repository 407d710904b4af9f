"""Compute times by the roofline model: the efficiency that is assumed, from the study or the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from armillary.trace import GraphBuilder, Trace, write_trace

Call = Callable[[str], Result]
STUDY = """\
workload: {trace: kernels}
platform:
  network: [{topology: Ring, size: 2, bandwidth: 50 GB/s, latency: 500 ns}]
  npu: {peak: {bf16: 1 TFLOP/s, fp8: 2 TFLOP/s}, memory: {bandwidth: 1 TB/s}}
  compute: {roofline: true, efficiency: {compute: 50 %, memory: 80 %}, kernel_overhead: 5 us}
"""


@pytest.fixture
def study(inputs: Path) -> Path:
    """A study of three kernels: bf16, fp8, and bound by memory."""
    b = GraphBuilder()
    for name, flops, size in (("bf16", 10**9, 0), ("fp8", 10**9, 0), ("norm", 0, 10**9)):
        b.compute(name, flops=flops, bytes=size, after=[len(b.nodes) - 1] if b.nodes else ())
        b.nodes[-1].attrs.append(("precision", "string", "fp8" if name == "fp8" else "bf16"))
    write_trace("kernels", Trace.replicate(b.graph(), ranks=2))
    file = Path("kernels.yaml")
    file.write_text(STUDY)
    return file


def test_the_result_repeats_what_was_assumed(study: Path, call: Call) -> None:
    out = call("run kernels.yaml --json r.json --save r.zip").stdout
    # 1e9 / 0.5e12, 1e9 / 1e12 and 1e9 bytes / 0.8e12, and an overhead each
    assert "Step time 4.265 ms (4,265,000 ticks)" in out
    assert "assumed: roofline at 50 % of the peak, 80 % of the memory bandwidth, 5 µs per kernel" in out
    assert "35.2 % of their peaks (MFU)" in out
    found = json.loads(Path("r.json").read_text())
    assert found["roofline"] == {
        "compute_efficiency_ratio": 0.5, "memory_efficiency_ratio": 0.8, "kernel_overhead_ns": 5000.0
    }  # fmt: skip
    assert found["flops"]["mfu_ratio"] == pytest.approx(1.5e6 / 4.265e6)
    assert {part["kind"]: part["bound_ticks"] for part in found["bound"]["parts"]} == {
        "compute": 4_265_000, "flops": 1_500_000, "path": 4_265_000
    }  # fmt: skip
    assert call("explain r.zip").stdout.startswith(out)


def test_the_option_goes_over_the_study(study: Path, call: Call) -> None:
    for text in ("100", "100%", "--efficiency=100 %"):
        words = f"run kernels.yaml {'' if '=' in text else '--efficiency '}{text}".replace(" %", "%")
        result = call(words)
        assert result.stdout.startswith("Step time 2.515 ms"), words
        assert "roofline at 100 % of the peak, 100 % of the memory bandwidth" in result.stdout


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("run kernels.yaml --efficiency 0", "--efficiency '0': expected a percentage above 0, up to 100"),
        ("run kernels.yaml --efficiency 101", "--efficiency '101': expected a percentage"),
        ("run kernels.yaml --efficiency fast", "--efficiency 'fast': expected a percentage"),
        ("run study.yaml --efficiency 45", "expected a machine with compute.roofline: true"),
        ("run --pytorch x --efficiency 45", "--efficiency is for a STUDY"),
        ("run kernels.yaml --profile astra-sim", "npu.peak: got a peak by precision: profile astra-sim does not"),
        ("run one.yaml --profile astra-sim", "compute.efficiency: got less than 100 %: profile astra-sim does not"),
    ],
)  # fmt: skip
def test_what_does_not_go(study: Path, call: Call, words: str, problem: str) -> None:
    one = STUDY.replace("{bf16: 1 TFLOP/s, fp8: 2 TFLOP/s}", "1 TFLOP/s")
    Path("one.yaml").write_text(one)
    result = call(words)
    assert result.exit_code == 2 and problem in result.output and result.output.count("\n") == 1


def test_nothing_is_assumed_where_nothing_was_timed(study: Path, call: Call) -> None:
    study.write_text(STUDY.replace("{trace: kernels}", "{collective: all-reduce, size: 1 MiB}"))
    assert "assumed" not in call("run kernels.yaml").stdout
