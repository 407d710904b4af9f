"""Compute models in studies: keys, errors, both profiles, and that what is alike is asked once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import armillary
from armillary.base.errors import InputError
from armillary.cli import main
from armillary.compute import KernelTimes
from armillary.compute.systolic import Systolic
from armillary.platform import load_platform, load_study
from armillary.trace import GraphBuilder, Trace, encode
from armillary.workload.generate import generate
from armillary.workload.models.read import load_model
from armillary.workload.plan.schema import Plan

MACHINE = """
network: [{topology: Ring, size: 4, bandwidth: 50 GB/s, latency: 500 ns}]
npu: {peak: 100 TFLOP/s, memory: {bandwidth: 1 TB/s}}
"""
ARRAY = "model: systolic, rows: 128, columns: 128, clock: 1 GHz, dataflow: output"


def machine(tmp_path: Path, compute: str) -> Any:
    path = tmp_path / "machine.yaml"
    path.write_text(MACHINE + f"compute: {{{compute}}}\n")
    return load_platform(path)


def trace(ranks: int = 4) -> Trace:
    """A product of known shape, one of unknown shape, one that moves bytes, and one that was recorded."""
    b = GraphBuilder()
    b.compute("product", flops=2 * 256**3, bytes=3 * 2 * 256**2)
    b.nodes[-1].attrs.append(("gemm", "int64_list", [1, 1, 256, 256, 256]))
    b.compute("attend", flops=10**9, bytes=100)
    b.compute("norm", flops=1, bytes=10**6)
    b.compute("recorded", duration_micros=7)
    return Trace.replicate(b.graph("rank"), ranks)


def ticks(platform: Any, profile: str = "physical") -> list[int]:
    timeline = armillary.simulate(trace(), platform, profile=profile)
    return (timeline.node_end - timeline.node_start)[:4].tolist()


SYSTOLIC_NS = 4 * (256 + 128 + 128 - 2)


def test_a_model_times_what_it_knows_and_the_roofline_the_rest(tmp_path: Path) -> None:
    assert ticks(machine(tmp_path, "roofline: true")) == [394, 10_000, 1000, 7000]
    assert ticks(machine(tmp_path, "model: roofline")) == [394, 10_000, 1000, 7000]
    assert ticks(machine(tmp_path, ARRAY)) == [SYSTOLIC_NS, 10_000, 1000, 7000]
    slow = machine(tmp_path, f"{ARRAY}, kernel_overhead: 5 us")
    assert ticks(slow) == [SYSTOLIC_NS + 5000, 15_000, 6000, 7000]


def test_profile_astra_sim_runs_the_model_that_a_study_names(tmp_path: Path) -> None:
    b = GraphBuilder()
    b.compute("product", flops=2 * 256**3, bytes=3 * 2 * 256**2)
    b.nodes[-1].attrs.append(("gemm", "int64_list", [1, 1, 256, 256, 256]))
    one = Trace.replicate(b.graph("rank"), 4)
    for compute, expected in (("roofline: true", 393), (ARRAY, SYSTOLIC_NS)):
        timeline = armillary.simulate(one, machine(tmp_path, compute), profile="astra-sim")
        assert int(timeline.node_end[0]) == expected


def test_overrides_hold_for_recorded_times_too(tmp_path: Path) -> None:
    overrides = "overrides: [{name: rec*, factor: 2}, {kind: gemm, duration: 3 us}, {name: x, factor: 2}]"
    platform = machine(tmp_path, overrides)
    assert ticks(platform) == [3000, 10_000, 1000, 14_000]  # those without a time take the roofline
    timeline = armillary.simulate(trace(), platform)
    assert any("override 3 (name 'x') fits no kernel" in text for text in timeline.info["warnings"])
    assert ticks(machine(tmp_path, f"{ARRAY}, {overrides}")) == [3000, 10_000, 1000, 14_000]


def test_what_is_alike_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    original = Systolic.durations
    monkeypatch.setattr(
        Systolic, "durations", lambda self, work: asked.append(len(work)) or original(self, work)
    )
    platform = machine(tmp_path, ARRAY)
    plan = {"ranks": 4, "batch": 8, "sequence": 128, "parallel": {"tp": 2, "pp": 2}}
    made = generate(load_model("llama-2-7b"), Plan.model_validate(plan))
    armillary.simulate(made, platform)
    assert len(asked) == 1
    assert asked[0] < 120 < sum(graph.n_nodes for graph in made.graphs)


def test_extrapolation_is_one_warning(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("m,n,k,time\n64,64,64,5\n128,128,128,8\n")
    platform = machine(tmp_path, "model: table, file: t.csv")
    timeline = armillary.simulate(trace(), platform)
    (warning,) = [text for text in timeline.info["warnings"] if "compute model" in text]
    assert warning == (
        "compute model table: 1 of 4 different kernels (1 nodes) lie outside of what it knows, 'product' (256x256x256) "
        "by a factor of 2: their times are extrapolated"
    )
    assert timeline.info["compute_model"] == {"name": "table", "file": "t.csv", "overrides": 0}


@pytest.mark.parametrize(
    ("compute", "said"),
    [
        ("model: sistolic", "of roofline, gpu, tiled, table, systolic, subprocess (did you mean 'systolic'?)"),
        ("model: 5", "platform.compute.model: got 5, expected one of roofline"),
        ("model: systolic, rows: 4", "missing key 'columns' in platform.compute"),
        ("model: systolic, rows: 4, columns: 4, clock: 1", "platform.compute.clock: got 1, expected a frequency"),
        ("model: systolic, rows: 4, columns: 4, clock: 1 GHz, file: x", "platform.compute.file: unknown key"),
        ("model: table, file: no.csv", "no.csv: no such file (table of GEMMs)"),
        ("model: table, roofline: true, file: x", "got roofline: true and model: table, expected only one"),
        ("model: table, replay: true, file: x", "platform.compute.replay: expected only one of model and replay"),
        ("model: subprocess, command: []", "platform.compute.command: got []"),
        ("overrides: [{name: x}]", "overrides[0]: expected exactly one of duration, factor and efficiency"),
        ("overrides: [{name: x, factor: 0}]", "platform.compute.overrides[0].factor: got 0, expected more than 0"),
        ("overrides: [{kind: gem, factor: 1.0}]", "expected one of gemm, flops, memory, unknown (did you mean"),
        ("eficiency: 5 %", "platform.compute.eficiency: unknown key (did you mean 'efficiency'?)"),
        ("model: subprocess, command: [nope-nope]", "compute: command: program 'nope-nope' cannot be started"),
    ],
)  # fmt: skip
def test_a_bad_key_is_one_error(tmp_path: Path, compute: str, said: str) -> None:
    path = tmp_path / "study.yaml"
    lines = [f"  {line}\n" for line in MACHINE.strip().splitlines()]
    work = "workload: {generate: {model: llama-2-7b, batch: 4, sequence: 128, parallel: {tp: 4}}}\n"
    path.write_text(f"{work}platform:\n{''.join(lines)}  compute: {{{compute}}}\n")
    result = CliRunner().invoke(main, ["run", str(path), "--allow-programs"])
    text = result.output if result.exception is None or isinstance(result.exception, SystemExit) else ""
    text = text or str(result.exception)
    assert said in " ".join(text.split()), text
    assert isinstance(result.exception, InputError | SystemExit)


def test_a_bad_attribute_names_its_node(tmp_path: Path) -> None:
    b = GraphBuilder()
    b.compute("product", flops=8, bytes=8)
    b.nodes[-1].attrs.append(("gemm", "int64_list", [1, 2]))
    with pytest.raises(InputError, match=r"'product'.*attribute 'gemm': expected five integers"):
        armillary.simulate(Trace.replicate(b.graph("rank"), 4), machine(tmp_path, ARRAY))


def test_the_example_runs() -> None:
    study = load_study(Path(__file__).parents[2] / "examples/compute/study.yaml")
    assert study.platform.compute.options["command"] == ["python3", "tensor_core.py"]
    result = CliRunner().invoke(main, ["run", str(study.path), "--allow-programs"], catch_exceptions=False)
    assert "subprocess, 1 override, else roofline at 60 % of the peak" in result.output


def test_the_command_asks_a_machine(tmp_path: Path) -> None:
    path = tmp_path / "machine.yaml"
    path.write_text(MACHINE)
    result = CliRunner().invoke(main, ["machine", "gemm", str(path), "4096x4096x4096", "1x4096x4096"])
    first = " ".join(result.output.splitlines()[1].split())
    assert first == "4096x4096x4096 1.374 ms 100 TFLOP/s 100.0 % compute no"
    assert "memory" in result.output.splitlines()[2]
    bad = CliRunner().invoke(main, ["machine", "gemm", str(path), "4096x4096"])
    assert "got '4096x4096', expected the sizes of a GEMM as MxNxK" in bad.output + str(bad.exception)


def test_nodes_are_found_in_any_order_of_their_ids(tmp_path: Path) -> None:
    b = GraphBuilder()
    for n in (64, 128, 64):
        b.compute(f"p{n}", flops=2 * n**3, bytes=6 * n**2)
        b.nodes[-1].attrs.append(("gemm", "int64_list", [1, 1, n, n, n]))
    platform = machine(tmp_path, ARRAY)
    graph = b.graph("rank")
    times = KernelTimes(platform, [graph])
    nodes, ns = times.of(graph)
    assert nodes.tolist() == [0, 1, 2] and ns[0] == ns[2] != ns[1]
    assert np.isfinite(ns).all() and len(encode(graph)) > 0


def test_gemms_in_fp4_are_faster_than_in_fp8_where_a_device_has_a_peak_of_it() -> None:
    def asked(machine: str, precision: str) -> tuple[int, str]:
        words = ["machine", "gemm", machine, "8192x8192x8192", "--precision", precision, "--json", "-"]
        result = CliRunner().invoke(main, words)
        return result.exit_code, result.stdout

    times = [json.loads(asked("dgx-b200", name)[1])[0]["time_ns"] for name in ("fp4", "fp8", "bf16")]
    assert times == sorted(times)
    code, _ = asked("dgx-h100", "fp4")
    assert code == 2
