"""A GEMM takes the same to the last bit whether it is timed alone, among others, or was timed before."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.compute.gpu import known
from armillary.compute.gpu.device import load_gpu
from armillary.compute.gpu.gemm import gemm_seconds

GEMMS = st.lists(
    st.tuples(
        st.integers(1, 1 << 16), st.integers(1, 1 << 16), st.integers(1, 1 << 16), st.sampled_from([1, 1, 3, 64]),
        st.sampled_from([2.0, 4.0, 9.5]), st.booleans(),
    ),
    max_size=8,
)  # fmt: skip
DEVICES = [("a100-sxm-80", "bf16"), ("h100-sxm", "fp8"), ("b200", "fp4"), ("v100-sxm", "bf16")]


@given(
    st.sampled_from(DEVICES),
    st.lists(GEMMS, min_size=1, max_size=3),
    st.sampled_from([1.0, 0.9]),
    st.booleans(),
)
def test_times_do_not_depend_on_what_was_timed_before(device, calls, sustained, alone):
    gpu, precision = load_gpu(device[0]), device[1]
    fit, power = gpu.gemm_fit(precision), None if alone else gpu.power
    for rows in calls:
        table = np.array([row[:4] for row in rows], float).reshape(len(rows), 4)
        written = np.array([row[4] for row in rows], float)
        turned = np.array([row[5] for row in rows], bool)
        options = {"sustained": sustained, "power": power}
        once = gemm_seconds(gpu, precision, table, written, fit, transposed=turned, **options)
        again = known.known_gemm_seconds(gpu, precision, table, written, fit, transposed=turned, **options)
        for one, other in zip(once, again, strict=True):
            assert one.tolist() == other.tolist() and one.dtype == other.dtype


def test_it_forgets_when_it_knows_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "MOST", 3)
    monkeypatch.setattr(known, "_known", {})
    gpu = load_gpu("a100-sxm-80")
    for m in range(1, 9):
        table, ones = np.array([[m, 64.0, 64.0, 1.0]]), np.full(1, 2.0)
        fit, none = gpu.gemm_fit("bf16"), np.zeros(1, bool)
        found = known.known_gemm_seconds(
            gpu, "bf16", table, ones, fit, sustained=1.0, power=None, transposed=none
        )
        assert found[0] == gemm_seconds(gpu, "bf16", table, ones, fit)[0]
        assert sum(len(each) for _, each in known._known.values()) <= 3
