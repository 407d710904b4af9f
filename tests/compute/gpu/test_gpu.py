"""The compute model `gpu`: its devices, its kernels, and that it keeps to the protocol."""

from __future__ import annotations

import sys
from math import inf
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.compute import Work
from armillary.compute.gpu.attention import attention_seconds, scores
from armillary.compute.gpu.device import Gpu, gpu_names, load_gpu
from armillary.compute.gpu.gemm import gemm_seconds
from armillary.compute.gpu.model import GpuModel
from armillary.compute.gpu.spread import kernel_spread
from armillary.testing.compute import DEVICE, check_compute_model
from armillary.trace.attention import Attention, to_attention
from armillary.trace.gemm import Gemm

sys.path.insert(0, str(Path(__file__).parent))
import reference

FITTED = ("a100-sxm-80", "h100-sxm", "b200")
SIZE = st.one_of(st.integers(1, 300), st.integers(1, 64).map(lambda n: 256 * n), st.integers(1, 20_000))


def seconds(gpu: Gpu, m: int, n: int, k: int, precision: str = "bf16", batch: int = 1) -> float:
    return float(gemm_seconds(gpu, precision, np.array([[m, n, k, batch]], float))[0][0])


def times(device: str, work: Work, **factors: float) -> np.ndarray:
    return GpuModel.create({"device": device, "factors": factors}, DEVICE, Path()).durations(work).ns


def kernels(*rows: tuple[str, int, int, tuple[Gemm, ...], Attention | None]) -> Work:
    names, operations, size, gemms, attention = zip(*rows, strict=True)
    count = len(rows)
    return Work(
        names,
        np.array(operations),
        np.array(size),
        ("bf16",) * count,
        gemms,
        np.zeros(count, np.int64),
        attention,
    )


@pytest.mark.parametrize("name", gpu_names())
def test_every_device_is_sane(name: str) -> None:
    gpu = load_gpu(name)
    assert gpu.fitted and gpu.title
    for precision in gpu.peaks:
        large = seconds(gpu, 8192, 8192, 8192, precision)
        share = 2 * 8192**3 / large / gpu.peaks[precision]
        assert (0.3 if precision == "fp4" else 0.4) < share < 0.98, (precision, share)
        assert 1e-6 < seconds(gpu, 1, 32, 32, precision) < 3e-5
        # One row: the weights are read once.
        assert gpu.bandwidth > 2e4 * 8192 / seconds(gpu, 1, 8192, 20_000)
    assert 0 < gpu.share <= 1


@pytest.mark.parametrize("name", gpu_names())
def test_it_keeps_to_the_protocol(name: str) -> None:
    gpu = load_gpu(name)
    if {"fp8", "fp32"} <= set(gpu.peaks):
        check_compute_model(lambda: GpuModel.create({"device": name}, DEVICE, Path()))
    else:
        with pytest.raises(InputError, match=f"precision 'fp8', of which {name} has no peak"):
            check_compute_model(lambda: GpuModel.create({"device": name}, DEVICE, Path()))


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(FITTED), st.sampled_from(["bf16", "fp8", "fp4"]), SIZE, SIZE, SIZE, st.integers(1, 40),
    st.sampled_from([2.0, 8.0]), st.sampled_from([1.0, 0.8]), st.sampled_from([1.0, 5.0, inf]), st.booleans(),
    st.booleans(),
)  # fmt: skip
def test_gemms_are_those_of_the_reference(
    name: str,
    precision: str,
    m: int,
    n: int,
    k: int,
    batch: int,
    written: float,
    sustained: float,
    copies: float,
    loaded: bool,
    transposed: bool,
) -> None:
    gpu = load_gpu(name)
    precision = precision if precision in gpu.peaks else "bf16"
    fast = gemm_seconds(
        gpu,
        precision,
        np.array([[m, n, k, batch]], float),
        written,
        sustained=sustained,
        copies=copies,
        power=gpu.power if loaded else None,
        transposed=transposed,
    )[0][0]
    slow = reference.one(gpu, precision, m, n, k, batch, written, sustained, copies, loaded, transposed)
    assert fast == pytest.approx(slow, rel=1e-9)


def test_rows_that_are_no_multiple_of_whole_loads_are_slower() -> None:
    gpu = load_gpu("a100-sxm-80")
    head, odd = (seconds(gpu, 8192, n, 2048) for n in (50_304, 50_257))
    assert 2 * head < odd < 4 * head
    # Tokens lie in rows of their own, so that any number of them is fast, also as k of a weight's gradient.
    assert seconds(gpu, 8191, 50_304, 2048) < 1.01 * head
    sizes = np.array([[2048, 8192, 8191, 1]], float)
    aside, along = (gemm_seconds(gpu, "bf16", sizes, transposed=each)[0][0] for each in (True, False))
    assert 2 * aside < along


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(gpu_names()), SIZE, SIZE, SIZE)
def test_a_gemm_takes_at_least_its_roofline(name: str, m: int, n: int, k: int) -> None:
    gpu = load_gpu(name)
    # Only weights are certainly not in the cache.
    assert seconds(gpu, m, n, k) > max(2 * m * n * k / gpu.peaks["bf16"], 2 * k * n / gpu.bandwidth)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(FITTED), SIZE, SIZE, SIZE)
def test_a_weight_that_is_used_again_and_a_device_without_a_load_are_faster(
    name: str, m: int, n: int, k: int
) -> None:
    gpu, sizes = load_gpu(name), np.array([[m, n, k, 1]], float)
    cold, looped = (gemm_seconds(gpu, "bf16", sizes, copies=each)[0][0] for each in (inf, 5.0))
    assert looped <= cold * (1 + 1e-12)
    assert gemm_seconds(gpu, "bf16", sizes, power=gpu.power)[0][0] >= cold * (1 - 1e-12)
    # What lies beyond the cache is not found there.
    if 2 * k * n > 4 * gpu.cache:
        assert looped == pytest.approx(cold, rel=1e-3)


def test_the_power_limit_lowers_the_clocks_of_what_computes() -> None:
    work = kernels(
        ("a.gemm", 2 * 8192**3, 2 * 3 * 8192**2, (Gemm(8192, 8192, 8192),), None),
        ("norm.norm", 1, 10**9, (), None),
        ("b.gemm", 2 * 8192**2, 2 * 8192**2, (Gemm(1, 8192, 8192),), None),
    )
    for name, least in (("b200", 1.3), ("h100-sxm", 1.12), ("h100-96-500w", 1.4), ("a100-pcie", 1.1)):
        loaded = times(name, work)
        alone = GpuModel.create({"device": name, "load": "alone"}, DEVICE, Path()).durations(work).ns
        # Alone, GEMMs also have residuals.
        for at, sizes in ((0, [8192, 8192, 8192]), (2, [1, 8192, 8192])):
            own = load_gpu(name).residuals["bf16"]
            alone[at] /= own.factors(np.array([sizes], float))[0]
        assert least < loaded[0] / alone[0] < 1.7
        assert loaded[1] == alone[1]
        assert loaded[2] == pytest.approx(alone[2], rel=1e-6)
    # 400 W are enough for an A100 at full clocks.
    assert load_gpu("a100-sxm-80").power.clocks(np.array([1.0]))[0] == 1


def test_spreads_are_wider_for_short_kernels_and_devices_that_were_not_measured() -> None:
    measured, sibling, sheet = (load_gpu(name) for name in ("h100-sxm", "h200-sxm", "mi355x"))
    assert (measured.basis, sibling.basis, sheet.basis) == ("measured", "sibling", "sheet")
    assert load_gpu("v100-sxm").basis == "derived"
    long = [kernel_spread(gpu, "gemm") for gpu in (measured, sibling, load_gpu("v100-sxm"), sheet)]
    assert long == sorted(long) and 0.03 < long[0] < 0.1 < long[2] < long[3] < 0.4
    assert kernel_spread(measured, "gemm", "bf16", 5e3) > long[0]
    assert kernel_spread(measured, "gemm", "fp8", 5e5) != kernel_spread(measured, "gemm", "fp8", 5e3)
    # A precision without rows of its own takes those of the nearest.
    assert kernel_spread(measured, "gemm", "fp4") == kernel_spread(measured, "gemm", "fp8")
    assert kernel_spread(load_gpu("b200"), "gemm", "fp4") > kernel_spread(load_gpu("b200"), "gemm", "fp8")
    for gpu in (measured, sheet):
        for kind in ("grouped", "attention", "attention backward", "memory"):
            assert 0.03 < kernel_spread(gpu, kind) < 0.5


def test_waves_of_tiles_read_operands_again_that_the_cache_does_not_hold() -> None:
    gpu = load_gpu("b200")

    def rate(m: int, n: int, k: int) -> float:
        return 2 * m * n * k / float(gemm_seconds(gpu, "fp4", np.array([[m, n, k, 1.0]]))[0][0])

    # Operands of 34 and 134 MB, and a cache of 126; measured: 5.4, 3.5 and 4.8 PFLOP/s.
    assert rate(16_384, 16_384, 16_384) < 0.75 * rate(4096, 16_384, 16_384)
    assert rate(32_768, 8192, 8192) > 0.95 * rate(8192, 8192, 8192)


def test_one_tile_more_than_a_wave_costs_another_wave() -> None:
    gpu = load_gpu("a100-sxm-80")
    # 108 SMs: 4 x 27 tiles of 256x128 are one wave.
    full, more = seconds(gpu, 27 * 256, 4 * 128, 16384), seconds(gpu, 27 * 256 + 1, 4 * 128, 16384)
    assert more > 1.15 * full
    assert seconds(gpu, 26 * 256 + 1, 4 * 128, 16384) == pytest.approx(full, rel=0.02)


def test_a_clock_that_is_not_kept_slows_what_computes_and_not_what_moves() -> None:
    work = kernels(
        ("a.gemm", 2 * 8192**3, 2 * 3 * 8192**2, (Gemm(8192, 8192, 8192),), None),
        ("norm.norm", 1, 10**9, (), None),
    )
    short, long = times("h100-sxm", work), times("h100-sxm", work, sustained=0.8)
    assert long[0] / short[0] == pytest.approx(1.25, rel=0.03)
    assert long[1] == short[1]
    assert times("h100-sxm", work, gemm=2.0, memory=3.0) == pytest.approx(short * [2, 3])


def test_layouts_groups_and_sums_in_fp32_cost_more() -> None:
    gemm = Gemm(4096, 4096, 4096)
    bytes_, ops = 2 * gemm.elements, gemm.operations
    work = kernels(
        *((f"mlp.{name}", ops, bytes_, (gemm,), None) for name in ("gemm", "input", "weight")),
        ("mlp.weight", ops, bytes_ + 6 * 4096**2, (gemm,), None),
        ("many.gemm", 8 * ops, 8 * bytes_, (gemm._replace(batch=8),), None),
        ("calls.gemm", 8 * ops, 8 * bytes_, (gemm._replace(calls=8),), None),
    )
    forward, left, right, summed, grouped, calls = times("b200", work).tolist()
    assert left == right == forward
    assert 1.05 < summed / forward < 1.5
    assert calls == pytest.approx(8 * forward)
    # Experts run one after another.
    assert grouped == pytest.approx(8 * forward * load_gpu("b200").layouts["grouped"])


def attend(queries: int, back: int = 0, heads: int = 32, width: int = 128, device: str = "h100-sxm") -> float:
    pairs = queries * (queries + 1) / 2
    table = np.array([[1, heads, 8, queries, queries, width, width, back, pairs]], float)
    return float(attention_seconds(load_gpu(device), "bf16", table)[0])


@pytest.mark.parametrize("device", FITTED)
def test_attention_is_better_with_longer_sequences_and_dearer_backward(device: str) -> None:
    rates = [2 * 2 * 128 * 32 * n**2 / 2 / attend(n, device=device) for n in (512, 2048, 8192)]
    peak = load_gpu(device).peaks["bf16"]
    assert rates == sorted(rates)
    assert 0.3 * peak < rates[-1] < 0.8 * peak
    assert 2 < attend(8192, 1, device=device) / attend(8192, device=device) < 4


def test_attention_is_told_by_its_shape_else_by_its_name() -> None:
    shape = Attention(1, 32, 8, 8192, 8192, 128, 128)
    ops = 4 * 128 * 32 * 8192 * 8193 // 2
    work = kernels(
        ("core.attend", ops, 10**8, (), shape),
        ("core.attend", ops, 10**8, (), None),
        ("other", ops, 10**8, (), shape),
        ("core.attend", 2 * ops, 2 * 10**8, (), shape._replace(backward=1)),
    )
    forward, named, other, back = times("h100-sxm", work).tolist()
    assert forward == other
    assert attend(8192) * 1e9 <= forward < 1.2 * attend(8192) * 1e9
    assert named == pytest.approx(forward, rel=0.4)
    assert attend(8192, 1) * 1e9 <= back < 1.2 * attend(8192, 1) * 1e9


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(FITTED), st.integers(1, 8), st.sampled_from([(8, 1), (32, 32), (5, 5)]), st.integers(1, 9000),
    st.integers(0, 3000), st.sampled_from([(64, 64), (128, 128), (192, 128)]), st.integers(0, 1), st.integers(0, 2),
    st.booleans(),
)  # fmt: skip
def test_attention_is_that_of_the_reference(
    name: str,
    batch: int,
    heads: tuple[int, int],
    queries: int,
    before: int,
    width: tuple[int, int],
    back: int,
    mask: int,
    loaded: bool,
) -> None:
    gpu, keys = load_gpu(name), queries + before
    pairs = [queries * keys, queries * keys - queries * (queries - 1) // 2, max(1, queries * keys // 9)][mask]
    shape = (batch, *heads, queries, keys, *width, back)
    power = gpu.power if loaded else None
    fast = attention_seconds(gpu, "bf16", np.array([(*shape, pairs)], float), power=power)[0]
    assert fast == pytest.approx(reference.attend(gpu, shape, pairs, loaded), rel=1e-9)


def test_scores_that_a_mask_and_a_window_leave() -> None:
    def slow(queries: int, keys: int, window: int) -> int:
        first = keys - queries
        return sum(min(first + at + 1, window or keys) for at in range(queries))

    for queries, keys, window in ((1, 1, 0), (5, 5, 0), (5, 9, 0), (7, 7, 3), (4, 9, 2), (3, 3, 8)):
        found = scores(np.array([queries]), np.array([keys]), np.array([window]))[0]
        assert found == slow(queries, keys, window)


@pytest.mark.parametrize("numbers", [(1, 2), (0, 1, 1, 1, 1, 1, 1, 0), (1, 1, 1, 1, 1, 1, 1, 2)])
def test_a_bad_attribute_is_refused(numbers: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="expected eight integers"):
        to_attention(numbers)


def test_a_limit_of_the_power_follows_from_the_file(tmp_path: Path) -> None:
    like = load_gpu("h100-sxm")
    own = load_gpu(written(tmp_path / "slow.yaml", sms="132", peak="{bf16: 989.5 TFLOP/s}", power="500 W"))
    assert own.power.limit == 500 and own.power.demand == like.power.demand
    assert own.power.clocks(np.array([1.0]))[0] < like.power.clocks(np.array([1.0]))[0]
    bare = load_gpu(
        written(tmp_path / "bare.yaml", like="tpu-v4", power="500 W", sustained="{demand: 400 W}")
    )
    assert bare.power.clocks(np.array([1.0]))[0] == 1
    with pytest.raises(
        InputError, match=r"sustained.demand: got nothing, expected the power that GEMMs draw"
    ):
        load_gpu(written(tmp_path / "none.yaml", like="tpu-v4", power="500 W"))


OWN = {
    "like": "h100-sxm", "sms": "66", "peak": "{bf16: 500 TFLOP/s}", "memory": "{bandwidth: 2 TB/s, capacity: 40 GB}",
}  # fmt: skip


def written(path: Path, **keys: str) -> str:
    path.write_text("".join(f"{key}: {value}\n" for key, value in (OWN | keys).items()))
    return str(path)


def test_a_device_of_ones_own_takes_the_rest_from_another(tmp_path: Path) -> None:
    own, like = load_gpu(written(tmp_path / "half.yaml")), load_gpu("h100-sxm")
    assert own.like == "h100-sxm" and own.derived and own.tiles == like.tiles
    assert own.gemm["bf16"].feed == pytest.approx(like.gemm["bf16"].feed * (500 / 66) / (989.5 / 132))
    assert seconds(own, 8192, 8192, 8192) == pytest.approx(seconds(like, 8192, 8192, 8192) * 1.979, rel=0.05)
    assert own.gemm["bf16"].rate == like.gemm["bf16"].rate


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("likes", "x", "likes: got 'x', expected only the keys.*did you mean 'like'"),
        (
            "like",
            "h100-sxn",
            "like: got 'h100-sxn', expected the name of another device.*did you mean 'h100-sxm'",
        ),
        ("gemm", "{bf16: {rat: 5 %}}", "gemm.bf16.rat: got '5 %'.*did you mean 'rate'"),
        ("gemm", "{bf16: {rate: 150 %}}", "gemm.bf16.rate: got '150 %', expected a share of at most 100 %"),
        ("gemm", "{bf16: {feed: 5}}", "gemm.bf16.feed: got 5, expected a value such as"),
        ("gemm", "{bf17: {rate: 5 %}}", "gemm.bf17.*did you mean 'bf16'"),
        ("tiles", "[256]", r"tiles: got \[256\], expected .* such as 256x128"),
        ("sms", "none", "sms: got 'none', expected a whole number"),
        ("layouts", "{weight: 0}", "layouts.weight: got 0, expected a number above 0"),
        ("memory", "{bandwidth: 1 TB/s, capacity: 1 GB, l2: 5}", "memory.l2: got 5, expected only the keys"),
        ("peak", "{fp8: 1 PFLOP/s}", "peak.bf16"),
        ("power", "500", "power: got 500, expected a power from 1 W"),
        ("sustained", "{demand: much}", "sustained.demand: got 'much', expected a power from 1 W"),
        ("sustained", "{demnad: 5 W}", "sustained.demnad.*did you mean 'demand'"),
        ("basis", "guessed", "basis: got 'guessed'"),
        ("spread", "{gemm: 0.1}", "spread.gemm: got 0.1, expected only the keys"),
    ],
)
def test_a_bad_device_file_is_one_error(tmp_path: Path, key: str, value: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        load_gpu(written(tmp_path / "bad.yaml", **{key: value}))


def test_an_unknown_device_names_the_nearest() -> None:
    with pytest.raises(InputError, match=r"no device 'h100' \(did you mean .*'h[12]00-sxm'"):
        load_gpu("h100")
