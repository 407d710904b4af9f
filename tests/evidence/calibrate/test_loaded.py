"""Kernels under load: a demand for power that made the times is found again, and measured ones are near."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from armillary.base.errors import InputError
from armillary.compute.gpu.device import load_gpu
from armillary.compute.gpu.power import Power
from armillary.evidence.calibrate.loaded import LONG, Loaded, fit_demand, held_out, predicted, read_loaded

DENSE = "b=1, m={m}, k={k}, n={n}, layout={layout}, accumulate={add}, out_dtype={out}"
GROUPED = (
    "ng={ng}, M={m}, N={n}, K={k}, dtype=bf16, out_dtype=bf16, main_grad_dtype=fp32, stage={stage}, "
    "accumulate={add}"
)


def test_a_demand_is_found_again() -> None:
    gpu = dataclasses.replace(load_gpu("b200"), power=Power(1000, 1700))
    sizes = np.array([(m, n, 8192, 1) for m in (8192, 12288, 16384) for n in (8192, 10240, 28672)], float)
    rows = Loaded(sizes, np.ones(9), np.full(9, 2.0), np.ones(9), ("forward",) * 9)
    rows = dataclasses.replace(rows, seconds=predicted(gpu, rows))
    assert fit_demand(load_gpu("b200"), 1000, rows).demand == pytest.approx(1700, rel=1e-3)
    short = dataclasses.replace(rows, seconds=np.full(9, LONG / 2))
    with pytest.raises(InputError, match="no GEMM of 300 us or more"):
        fit_demand(gpu, 1000, short)


def test_a_file_is_read_by_pass(tmp_path: Path) -> None:
    dense = DENSE.format(m=4096, k=8192, n=1024, layout="NT", add="True", out="fp32")
    grouped = GROUPED.format(ng=8, m=100, n=512, k=256, stage="bwd_grad_w", add="True")
    operators = {
        "matmul": {"tflops": 1000, "accurate_efficient_factor": {dense: 0.5}},
        "group_matmul": {"tflops": 1000, "accurate_efficient_factor": {grouped: 0.25}},
    }
    path = tmp_path / "system.json"
    path.write_text(json.dumps({"accelerator": {"op": operators}}))
    one, many = read_loaded(path)
    assert one.sizes.tolist() == [[4096, 1024, 8192, 1]] and one.kinds == ("weight",)
    assert one.seconds[0] == pytest.approx(2 * 4096 * 1024 * 8192 / 5e14) and one.written[0] == 8
    # The weight of an expert is (K, N), summed up over its tokens.
    assert many.sizes.tolist() == [[256, 512, 100, 1]] and many.count[0] == 8 and many.written[0] == 8
    for change in (
        {"tflops": 0}, {"tflops": "x"}, {"accurate_efficient_factor": [1]}, {"accurate_efficient_factor": {dense: 0}},
        {"accurate_efficient_factor": {dense: 10**400}},
    ):  # fmt: skip
        other = operators | {"matmul": operators["matmul"] | change}
        path.write_text(json.dumps({"accelerator": {"op": other}}))
        with pytest.raises(InputError, match="expected a system file of SimuMax"):
            read_loaded(path)
    path.write_text('{"accelerator": 5}')
    with pytest.raises(InputError, match="expected a system file of SimuMax"):
        read_loaded(path)


@pytest.mark.parametrize(
    ("name", "device", "dense", "grouped"),
    [("b200_bf16_ceperm.json", "b200", 0.06, 0.12), ("a100_pcie.json", "a100-pcie", 0.05, 0.2)],
)
def test_measured_kernels_under_load_are_near(
    shared: Path, name: str, device: str, dense: float, grouped: float
) -> None:
    gpu = load_gpu(device)
    alone, experts = read_loaded(shared / "measured" / "simumax" / name)
    off = np.abs(predicted(gpu, alone) / alone.seconds - 1)
    assert off[alone.seconds >= LONG].mean() < dense
    assert off[held_out(alone) & (alone.seconds >= LONG)].mean() < dense
    factor = gpu.layouts["grouped"]
    for kind in ("forward", "input", "weight"):
        mine = np.array([each == kind for each in experts.kinds])
        ratio = factor * predicted(gpu, experts)[mine] / experts.seconds[mine]
        assert np.abs(ratio - 1).mean() < grouped, kind
        assert 0.85 < np.median(ratio) < 1.2
    # The demand of the file of the device is that of this fit.
    assert fit_demand(gpu, gpu.power.limit, alone).demand == pytest.approx(gpu.power.demand, rel=0.01)
