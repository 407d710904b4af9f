"""A known machine is found again in the files that somebody who measured it would have."""

from __future__ import annotations

from pathlib import Path

import known_machine as known
import numpy as np
import pytest

import armillary
from armillary.base.errors import InputError
from armillary.collective.fitted import load_fit
from armillary.collective.fitted.tuning import SIMPLE
from armillary.compute.gpu.device import load_gpu
from armillary.compute.gpu.spread import kernel_spread
from armillary.compute.machine import machine_of
from armillary.evidence.calibrate.gemm import predicted_ns
from armillary.evidence.calibrate.observe.base import base_of
from armillary.evidence.calibrate.observe.machine import Found, observed_machine
from armillary.evidence.calibrate.observe.read import observe
from armillary.explore.training.software import software_of

pytest.importorskip("scipy")
NORMAL = 1.645
"""Standard deviations on each side of 90 %."""


def found_in(folder: Path, *names: str, machine: str | None = None) -> Found:
    observed = observe(folder / name for name in names)
    return observed_machine(
        observed, base_of(machine, observed.devices, observed.ranks), folder, title="mine"
    )


@pytest.fixture(scope="module")
def truth() -> known.Truth:
    return known.truth()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, truth: known.Truth) -> Path:
    made = tmp_path_factory.mktemp("observed")
    known.write_gemms(made / "gemms.csv", truth)
    known.write_log(made / "all_reduce.log", truth, "all-reduce")
    known.write_log(made / "all_gather.log", truth, "all-gather", 5)
    known.write_profile(made / "rank0.json", truth)
    return made


@pytest.fixture(scope="module")
def mine(folder: Path) -> Found:
    found = found_in(folder, "gemms.csv", "all_reduce.log", "all_gather.log")
    found.write(folder / "mine.yaml")
    return found


@pytest.mark.slow
def test_constants_are_found_again(mine: Found, truth: known.Truth) -> None:
    assert mine.kernels is not None and mine.network is not None
    fit, own = mine.kernels.gpu.gemm["bf16"], truth.gpu.gemm["bf16"]
    assert fit.rate == pytest.approx(own.rate, rel=0.06)
    # Drawn to that of the H100, which is 0.56 of it.
    assert fit.launch == pytest.approx(own.launch, rel=0.2)
    lines, theirs = mine.network.fit.mechanism.lines, truth.fit.mechanism.lines
    assert lines[SIMPLE].bandwidth == pytest.approx(theirs[SIMPLE].bandwidth, rel=0.07)


def inside(measured: np.ndarray, predicted: np.ndarray, deviation: np.ndarray) -> float:
    return float(np.mean(np.abs(np.log(measured / predicted)) < NORMAL * deviation))


@pytest.mark.slow
def test_nine_of_ten_times_that_were_not_observed_lie_inside(
    mine: Found, folder: Path, truth: known.Truth
) -> None:
    gpu, shapes = load_gpu(str(folder / "mine.device.yaml")), known.shapes((384, 1536, 2048, 4096, 6144))
    predicted = predicted_ns(gpu, "bf16", shapes)
    wide = np.array([kernel_spread(gpu, "gemm", "bf16", ns) for ns in predicted.tolist()])
    assert 0.8 <= inside(truth.gemms(shapes, 77), predicted, wide) <= 0.97
    fit, sizes = load_fit(folder / "mine.collectives.yaml"), [int(2 ** (n / 10)) for n in range(120, 300)]
    shares = [
        inside(
            np.array(truth.collectives(operation, sizes, 88)),
            np.array([fit.time(operation, 8, 1, size).total_ns for size in sizes]),
            np.array([fit.deviation(operation, 8, 1, size) for size in sizes]),
        )
        for operation in ("all-reduce", "all-gather")
    ]
    assert 0.85 <= np.mean(shares) <= 0.97


def test_what_was_not_observed_is_less_sure_and_said(mine: Found, folder: Path) -> None:
    fit = load_fit(folder / "mine.collectives.yaml")
    assert fit.deviation("all-to-all", 8, 1, 2**24) > 3 * fit.deviation("all-reduce", 8, 1, 2**24)
    assert fit.deviation("all-reduce", 8, 4, 2**24) > 3 * fit.deviation("all-reduce", 8, 1, 2**24)
    text = " ".join(machine_of(str(folder / "mine.yaml")).assumptions)
    for part in ("64 observed shapes", "no collective between nodes", "all-to-all", "no step was measured"):
        assert part in text


def test_no_fit_has_more_constants_than_half_of_its_points(mine: Found, folder: Path) -> None:
    assert 0 < mine.network.moved <= mine.network.cases // 2
    (folder / "few.csv").write_text(
        "m,n,k,time\n4096,4096,4096,300\n8192,8192,8192,2100\n1024,1024,1024,13\n"
    )
    few = found_in(folder, "few.csv", machine="dgx-h100")
    fit = few.kernels.fits["bf16"]
    assert len(fit.free) == 1
    # Three shapes: the spread is mostly that of before, and wider.
    assert fit.spread["gemm bf16 long"] > 0.07
    one = found_in(folder, "few.csv", "all_reduce.log")
    assert one.network.moved <= 9


def test_a_profile_tells_gemms_under_load_and_the_calls_that_did_not_wait(
    folder: Path, truth: known.Truth
) -> None:
    found = found_in(folder, "rank0.json")
    fit, own = found.kernels.gpu.gemm["bf16"], truth.gpu.gemm["bf16"]
    assert fit.rate == pytest.approx(own.rate, rel=0.06)
    assert found.network.cases == 10
    for size in known.sizes(20, 30):
        times = [each.time("all-gather", 8, 1, size).total_ns for each in (found.network.fit, truth.fit)]
        assert times[0] == pytest.approx(times[1], rel=0.15)


def test_the_machine_file_is_a_machine(mine: Found, folder: Path) -> None:
    found = armillary.train(
        "llama-3-8b",
        str(folder / "mine.yaml"),
        batch=8,
        microbatch=1,
        tp=8,
        sequence=2048,
        software="torchtitan",
    )
    other = armillary.train(
        "llama-3-8b", "8xh100", batch=8, microbatch=1, tp=8, sequence=2048, software="torchtitan"
    )
    # Its GEMMs run at 0.9 of the rate, its links at 0.75.
    assert 1.05 < found.step_time_s / other.step_time_s < 1.5
    assert found.interval_s[0] < found.step_time_s < found.interval_s[1]
    assert any("64 observed shapes" in text for text in found.assumptions)


@pytest.mark.slow
def test_two_plans_move_one_constant_and_none_ends_at_a_bound(folder: Path, truth: known.Truth) -> None:
    plans = [{"batch": batch, "microbatch": 1, "sequence": 512, "parallel": {"tp": 4}} for batch in (4, 8)]
    known.write_steps(folder / "steps.yaml", truth, plans)
    found = found_in(folder, "gemms.csv", "all_reduce.log", "steps.yaml")
    found.write(folder / "stepped.yaml")
    # What steps take outside of kernels is half of such small ones.
    assert found.steps.names == ("step",) and found.steps.base == "torchtitan"
    assert found.steps.constants["step"] == pytest.approx(known.CONSTANTS["step"], rel=0.25)
    own = software_of(str(folder / "mine.software.yaml"), str(folder / "mine.device.yaml"))
    assert own.fitted.on == ("mine.device",) and own.base == ""
    for again, row in zip(found.again, found.steps.rows, strict=True):
        assert again.interval_s[0] < row.case.seconds() < again.interval_s[1]


@pytest.mark.slow
def test_steps_are_found_again(folder: Path, truth: known.Truth) -> None:
    plans = known.plans()
    known.write_steps(folder / "steps.yaml", truth, plans[:8])
    known.write_log(folder / "reduce_scatter.log", truth, "reduce-scatter", 6)
    names = ("gemms.csv", "all_reduce.log", "all_gather.log", "reduce_scatter.log", "steps.yaml")
    found = found_in(folder, *names)
    found.write(folder / "whole.yaml")
    assert found.steps.constants["gemm"] == pytest.approx(known.CONSTANTS["gemm"], rel=0.05)
    assert found.steps.constants["step"] == pytest.approx(known.CONSTANTS["step"], rel=0.25)
    others = plans[8:28]
    measured = known.step_seconds(truth, folder, others, 99, 5)
    again = [
        armillary.train(str(folder / "model.yaml"), str(folder / "whole.yaml"), **plan) for plan in others
    ]
    held = [
        each.interval_s[0] < one < each.interval_s[1]
        for each, row in zip(again, measured.tolist(), strict=True)
        for one in row
    ]
    assert np.mean(held) >= 0.85
    off = [each.step_time_s / np.median(row) - 1 for each, row in zip(again, measured, strict=True)]
    assert np.mean(np.abs(off)) < 0.06


def test_the_speed_of_a_machine_does_not_move_its_intervals(tmp_path: Path) -> None:
    """Times of a processor that is like no device, and of one that takes seven times as long for everything."""
    shapes = known.shapes((64, 256, 1024))
    flops = 2.0 * shapes.astype(float).prod(axis=1)
    seen = []
    for slower in (1.0, 7.0):
        # 50 GFLOP/s and 20 us of each; 1 GB/s and 200 us of each all-reduce.
        us = slower * (flops / 5e4 + 20) * known.noise(len(shapes), 21)
        rows = [
            f"{m},{n},{k},{time},fp32" for (m, n, k), time in zip(shapes.tolist(), us.tolist(), strict=True)
        ]
        (tmp_path / "a.csv").write_text("\n".join(["m,n,k,time,precision", *rows]))
        calls = slower * (np.array(known.sizes(10, 26)) / 1e3 + 200) * known.noise(16, 22)
        lines = [
            f"cpu,all_reduce,float,2,{n},{t}"
            for n, t in zip(known.sizes(10, 26), calls.tolist(), strict=True)
        ]
        (tmp_path / "b.csv").write_text("\n".join(["device,op,dtype,gpus,bytes,us", *lines]))
        found = found_in(tmp_path, "a.csv", "b.csv")
        seen.append((found.kernels.fits["fp32"].spread, found.network.fit.spread["inside"]))
        rate = found.kernels.gpu.peaks["fp32"] * found.kernels.gpu.gemm["fp32"].rate
        assert rate == pytest.approx(5e10 / slower, rel=0.05)
        (regime,) = found.network.fit.inside["all-reduce"][2]
        assert regime.latency == pytest.approx(2e5 * slower, rel=0.06)
        assert regime.bandwidth == pytest.approx(1 / slower, rel=0.06)
    assert seen[0][0] == pytest.approx(seen[1][0], rel=1e-2)
    assert seen[0][1] == pytest.approx(seen[1][1], rel=0.1)


def test_gemms_faster_than_any_can_be_are_of_another_unit(tmp_path: Path) -> None:
    table = tmp_path / "gemms.csv"
    table.write_text("m,n,k,time\n4096,4096,4096,0.2\n8192,4096,4096,0.4\n")
    with pytest.raises(
        InputError, match=r"GEMM .*4096 in bf16: .*TFLOP/s, expected at most the peak of NVIDIA H100"
    ):
        found_in(tmp_path, "gemms.csv", machine="dgx-h100")
