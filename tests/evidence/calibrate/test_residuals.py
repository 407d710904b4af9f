"""Fits of residuals: those that made the times are found again, and noise is none."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import yaml

from armillary.compute.gpu.device import load_gpu
from armillary.compute.gpu.residuals import Residuals
from armillary.compute.table_file import Measured
from armillary.evidence.calibrate.device_file import device_text
from armillary.evidence.calibrate.gemm import calibrate, predicted_ns
from armillary.evidence.calibrate.residuals import TOKENS, WIDTHS, fit_residuals

RANDOM = np.random.default_rng(7)


def shapes(count: int) -> np.ndarray:
    exponents = RANDOM.uniform((0, 5, 5), (15, 16, 16), (count, 3))
    found = np.round(2**exponents).astype(np.int64)
    # The ends were measured, too.
    return np.concatenate([[[1, 32, 32], [32768, 65536, 65536]], found])


@pytest.fixture(scope="module")
def sizes() -> np.ndarray:
    return shapes(4000)


@pytest.fixture(scope="module")
def truth() -> Residuals:
    count = len(TOKENS) * len(WIDTHS) ** 2
    logs = np.round(RANDOM.uniform(-0.15, 0.15, count), 2)
    return Residuals(TOKENS, WIDTHS, WIDTHS, tuple(logs.tolist()))


def test_they_are_found_again(sizes: np.ndarray, truth: Residuals) -> None:
    off = np.log(truth.factors(sizes.astype(float)))
    found = fit_residuals(sizes, off, np.full(len(sizes), 1e5))
    assert found is not None and (found.m, found.n, found.k) == (TOKENS, WIDTHS, WIDTHS)
    left = off - np.log(found.factors(sizes.astype(float)))
    assert np.abs(left).mean() < 0.2 * np.abs(off).mean()
    # Whole percent, and as wide as what is left of GEMMs that the fit has not seen.
    assert 100 * np.array(found.logs) == pytest.approx(np.round(100 * np.array(found.logs)))
    assert np.abs(left).mean() < found.long == found.short < 0.05
    assert fit_residuals(sizes, off, np.full(len(sizes), 1e5)) == found


def test_noise_has_none(sizes: np.ndarray) -> None:
    off = RANDOM.normal(0, 0.05, len(sizes))
    assert fit_residuals(sizes, off, np.full(len(sizes), 1e5)) is None


def test_outliers_count_less(sizes: np.ndarray) -> None:
    off = np.where(np.arange(len(sizes)) % 20 == 0, 1.0, 0.1)
    found = fit_residuals(sizes, off, np.full(len(sizes), 1e5))
    assert found is not None and np.median(found.logs) == pytest.approx(0.1, abs=0.02)


def test_few_gemms_or_gemms_of_one_size_have_none() -> None:
    few = shapes(1500)
    off = np.full(len(few), 0.1)
    assert fit_residuals(few, off, np.full(len(few), 1e5)) is None
    one = np.column_stack([np.full(5000, 64), *RANDOM.integers(32, 65536, (2, 5000))])
    assert fit_residuals(one, np.full(5000, 0.1), np.full(5000, 1e5)) is None


def test_constants_are_kept_and_a_file_brings_them_back(
    sizes: np.ndarray, truth: Residuals, tmp_path: Path
) -> None:
    base = dataclasses.replace(load_gpu("h100-sxm"), residuals={})
    ns = predicted_ns(base, "bf16", sizes, residuals=truth)
    found = calibrate(base, "bf16", Measured(sizes, ns), keep=True)
    assert found.fit == base.gemm_fit("bf16") and found.residuals
    assert found.outside.mean < 0.5 * found.before[0].mean
    path = tmp_path / "own.yaml"
    text = device_text(base, "Own", {"bf16": found}, "own.csv")
    assert "held out, without residuals" in yaml.safe_load(text)["fitted"]["gemm bf16"]
    path.write_text(text)
    own = load_gpu(str(path)).residuals["bf16"]
    assert own.logs == pytest.approx(found.residuals.logs) and own.m == found.residuals.m
    assert (own.long, own.short) == pytest.approx((found.residuals.long, found.residuals.short), rel=0.01)
