"""Residuals of GEMMs: what lies between the points of the lattice, and where they hold."""

from __future__ import annotations

import dataclasses
from math import exp, log2
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.compute import Work
from armillary.compute.gpu.device import gpu_names, load_gpu
from armillary.compute.gpu.gemm import LOOPED, gemm_seconds
from armillary.compute.gpu.model import GpuModel
from armillary.compute.gpu.residuals import FADING, LARGEST, SIBLING, Residuals
from armillary.compute.gpu.spread import kernel_spread
from armillary.testing.compute import DEVICE
from armillary.trace.gemm import Gemm

FITTED = [(name, each) for name in ("a100-sxm-80", "h100-sxm", "b200") for each in load_gpu(name).residuals]
SIZES = st.tuples(*[st.integers(1, 1 << 18)] * 3)


def share(size: int, knots: tuple[int, ...], point: int) -> float:
    """Return the share of a point of an axis, the slow way: a hat over its neighbours."""
    place = min(max(log2(size), log2(knots[0])), log2(knots[-1]))
    for other in (point - 1, point + 1):
        if 0 <= other < len(knots):
            near, far = log2(knots[point]), log2(knots[other])
            if min(near, far) <= place <= max(near, far):
                return (place - far) / (near - far)
    return 0.0


def factor(residuals: Residuals, size: tuple[int, ...]) -> float:
    """Return measured over predicted time, point by point."""
    knots = (residuals.m, residuals.n, residuals.k)
    found, at = 0.0, 0
    for a in range(len(knots[0])):
        for b in range(len(knots[1])):
            for c in range(len(knots[2])):
                shares = [share(*each) for each in zip(size, knots, (a, b, c), strict=True)]
                found += residuals.logs[at] * shares[0] * shares[1] * shares[2]
                at += 1
    for each, own in zip(size, knots, strict=True):
        beyond = max(log2(own[0]) - log2(each), log2(each) - log2(own[-1]), 0.0)
        found *= max(0.0, 1 - beyond / FADING)
    return exp(found)


@given(SIZES, st.integers(0, 2**32 - 1))
def test_factors_are_those_of_the_reference(size: tuple[int, ...], seed: int) -> None:
    random = np.random.default_rng(seed)
    m, n, k = (
        tuple(sorted({1 << each for each in random.integers(0, 17, 4).tolist()} | {1 << 17})) for _ in "mnk"
    )
    m, n, k = (each if len(each) > 1 else (1, *each) for each in (m, n, k))
    logs = random.uniform(-LARGEST, LARGEST, len(m) * len(n) * len(k))
    residuals = Residuals(m, n, k, tuple(logs.tolist()))
    found = residuals.factors(np.array([size], float))
    assert found == pytest.approx([factor(residuals, size)])
    assert exp(-LARGEST) - 1e-12 <= found[0] <= exp(LARGEST) + 1e-12


@pytest.mark.parametrize(("name", "precision"), FITTED)
def test_points_have_their_own_values_and_nothing_holds_far_from_the_lattice(
    name: str, precision: str
) -> None:
    residuals = load_gpu(name).residuals[precision]
    points = [(m, n, k) for m in residuals.m for n in residuals.n for k in residuals.k]
    assert residuals.factors(np.array(points, float)) == pytest.approx(np.exp(residuals.logs))
    away = [
        (1024, 4096, 2 * residuals.k[-1]),
        (2 * residuals.m[-1], 4096, 4096),
        (64, residuals.n[0] // 2, 64),
    ]
    assert residuals.factors(np.array(away, float)).tolist() == [1.0, 1.0, 1.0]
    # On average they are nearly nothing: constants were fitted to the same GEMMs.
    assert abs(np.mean(residuals.logs)) < 0.03
    assert 0 < residuals.long < 0.1 and 0 < residuals.short < 0.1


@given(st.sampled_from(FITTED), SIZES, st.integers(0, 2))
def test_larger_gemms_hardly_take_less(of: tuple[str, str], size: tuple[int, ...], axis: int) -> None:
    gpu = load_gpu(of[0])
    larger = [each * (2 if at == axis else 1) for at, each in enumerate(size)]
    four = np.array([(*size, 1), (*larger, 1)], float)
    seconds = gemm_seconds(gpu, of[1], four, copies=LOOPED, residuals=gpu.residuals[of[1]])[0]
    plain = gemm_seconds(gpu, of[1], four, copies=LOOPED)[0]
    # Libraries do choose kernels with which twice the size takes less; a fifth is the most that was fitted.
    assert seconds[1] > 0.8 * seconds[0] * min(1.0, plain[1] / plain[0])


def test_only_gemms_like_the_measured_ones_have_residuals() -> None:
    gpu, sizes = load_gpu("a100-sxm-80"), np.array([[64, 1024, 4096, 1], [64, 1024, 4096, 2]], float)
    residuals = gpu.residuals["bf16"]
    plain, held = (gemm_seconds(gpu, "bf16", sizes, residuals=each)[0] for each in (None, residuals))
    assert held[0] == pytest.approx(plain[0] * residuals.factors(sizes[:1])[0])
    assert held[0] != plain[0] and held[1] == plain[1]
    for options in ({"transposed": True}, {"written": 8.0}):
        plain, held = (
            gemm_seconds(gpu, "bf16", sizes, residuals=each, **options)[0] for each in (None, residuals)
        )
        assert held.tolist() == plain.tolist()


def test_the_model_uses_them_where_kernels_run_alone() -> None:
    names, size = ("a.gemm", "a.weight"), 2 * (64 * 1024 + 64 * 4096 + 1024 * 4096)
    work = Work(
        names, np.full(2, 2 * 64 * 1024 * 4096), np.full(2, size), ("bf16",) * 2, ((Gemm(64, 1024, 4096),),) * 2,
        np.zeros(2, np.int64), (None, None),
    )  # fmt: skip
    step, alone = (
        GpuModel.create({"device": "a100-sxm-80", **each}, DEVICE, Path()).durations(work).ns
        for each in ({}, {"load": "alone"})
    )
    factors = load_gpu("a100-sxm-80").residuals["bf16"].factors(np.array([[64.0, 1024, 4096]]))
    # At 400 W an A100 keeps its clocks, so that nothing else differs.
    assert alone[0] == pytest.approx(step[0] * factors[0]) and alone[0] != step[0]
    assert alone[1] == step[1]


@pytest.mark.parametrize("name", gpu_names())
def test_devices_with_as_many_sms_have_half_of_them(name: str) -> None:
    gpu = load_gpu(name)
    if not gpu.like:
        return
    base = load_gpu(gpu.like)
    if gpu.sms != base.sms:
        assert not gpu.residuals
    elif not base.like:
        for precision, each in base.residuals.items():
            own = gpu.residuals[precision]
            assert own.logs == pytest.approx([SIBLING * log for log in each.logs])
            # No GEMM of this device was measured, so nothing is known of what they leave.
            assert kernel_spread(gpu, "gemm", precision, alone=True) == kernel_spread(gpu, "gemm", precision)


def test_spreads_of_measured_devices_are_narrower_with_them() -> None:
    for name, precision in FITTED:
        gpu = load_gpu(name)
        for ns in (5e3, 5e5):
            assert kernel_spread(gpu, "gemm", precision, ns, alone=True) < kernel_spread(
                gpu, "gemm", precision, ns
            )


def device(tmp_path: Path, **residuals: object) -> Path:
    given = {
        "m": [1, 64],
        "n": [32, 64],
        "k": [32, 64],
        "percent": [[1, 2, 3, 4]] * 2,
        "long": 0.05,
        "short": 0.05,
    }
    like = {"like": "h100-sxm", "sms": 66, "peak": {"bf16": "500 TFLOP/s"}, "memory": {"bandwidth": "2 TB/s"}}
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump({**like, "residuals": {"bf16": given | residuals}}))
    return path


def test_a_file_has_its_own(tmp_path: Path) -> None:
    found = load_gpu(str(device(tmp_path))).residuals["bf16"]
    assert found == Residuals((1, 64), (32, 64), (32, 64), (0.01, 0.02, 0.03, 0.04) * 2, 0.05, 0.05)
    assert found.passed_on() == dataclasses.replace(
        found, logs=(0.005, 0.01, 0.015, 0.02) * 2, long=0.0, short=0.0
    )


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("m", [64, 1], "residuals.bf16.m: got .*, expected at least two sizes in increasing order"),
        ("n", [32], "expected at least two sizes"),
        ("k", [32, 1.5], "expected at least two sizes"),
        ("percent", [[1, 2, 3, 4]], "expected 2 lists of 4 numbers from -30 to 30, one list for each m"),
        ("percent", [[1, 2, 3, 40]] * 2, "expected 2 lists of 4 numbers"),
        ("percent", [[1, 2, 3, float("nan")]] * 2, "expected 2 lists of 4 numbers"),
        ("percent", None, "expected 2 lists of 4 numbers"),
        ("long", None, "long: got .*, expected a number above 0"),
        ("wide", 1, "expected only the keys"),
    ],
)
def test_bad_residuals_are_one_error(tmp_path: Path, key: str, value: object, said: str) -> None:
    with pytest.raises(InputError, match=said):
        load_gpu(str(device(tmp_path, **{key: value})))
