"""Fits of products: constants that made the times are found again."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from armillary.base.errors import InputError
from armillary.compute.gpu.device import Gpu, load_gpu
from armillary.compute.table_file import Measured
from armillary.evidence.calibrate.device_file import device_text
from armillary.evidence.calibrate.gemm import WIDTHS, calibrate, held_out, predicted_ns

pytest.importorskip("scipy")


def grid() -> np.ndarray:
    sizes = [64, 256, 1000, 4096, 8192]
    return np.array([(m, n, k) for m in (16, *sizes) for n in sizes for k in sizes])


@pytest.fixture(scope="module")
def truth() -> Gpu:
    base = load_gpu("h100-sxm")
    fit = dataclasses.replace(base.gemm["bf16"], rate=0.7, memory=0.6, launch=4e-6)
    return dataclasses.replace(base, gemm={**base.gemm, "bf16": fit})


@pytest.mark.slow
def test_constants_are_found_again(truth: Gpu, tmp_path: Path) -> None:
    measured = Measured(grid(), predicted_ns(truth, "bf16", grid()))
    base = load_gpu("h100-sxm")
    found = calibrate(base, "bf16", measured)
    assert found.inside.mean < 0.02 and found.outside.mean < 0.03
    assert found.fit.rate == pytest.approx(0.7, rel=0.05)
    assert found.fit.memory == pytest.approx(0.6, rel=0.05)
    path = tmp_path / "own.yaml"
    path.write_text(device_text(base, "Own", {"bf16": found}, "own.csv"))
    own = load_gpu(str(path))
    assert own.title == "Own"
    assert predicted_ns(own, "bf16", grid()) == pytest.approx(
        predicted_ns(base, "bf16", grid(), found.fit), rel=0.01
    )


def test_a_base_of_ones_own_names_the_device_it_is_like(truth: Gpu, tmp_path: Path) -> None:
    base = dataclasses.replace(
        truth, name="mine", like="h100-sxm", tiles=((256, 64, 1), (64, 256, 1), (128, 128, 2))
    )
    path = tmp_path / "own.yaml"
    path.write_text(device_text(base, "Own", {}, ""))
    assert load_gpu(str(path)).tiles == base.tiles
    with pytest.raises(InputError, match="base mine: expected one of"):
        device_text(dataclasses.replace(base, like=""), "Own", {}, "")


def test_a_fifth_is_held_out_whatever_the_file() -> None:
    sizes = grid()
    which = held_out(sizes)
    assert 0.1 < which.mean() < 0.3
    assert (held_out(sizes[::-1]) == which[::-1]).all()


def test_too_few_gemms_are_refused() -> None:
    few = Measured(grid()[:20], np.full(20, 1e5))
    with pytest.raises(InputError, match=r"GEMMs in bf16 are not held out, expected 40 at least"):
        calibrate(load_gpu("h100-sxm"), "bf16", few)


def test_a_precision_without_a_peak_is_refused() -> None:
    with pytest.raises(InputError, match="a100-sxm-80 has no peak of fp8"):
        calibrate(load_gpu("a100-sxm-80"), "fp8", Measured(grid(), np.full(len(grid()), 1e5)))


def test_constants_of_another_device_are_expected_as_far_away_as_those_of_the_package_are() -> None:
    fits = [load_gpu(name).gemm["bf16"] for name in ("a100-sxm-40", "h100-sxm", "b200")]
    for name, width in WIDTHS.items():
        apart = np.std(np.log([getattr(fit, name) for fit in fits]), ddof=1)
        assert width == pytest.approx(max(apart, 0.1), abs=0.05), name
