"""Which experts tokens choose: against draws, token by token."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.serving.kernels import kernels_of
from armillary.serving.routed import Routed, balanced, largest, read_counts

PLAIN = Routed(64, 4, 1024, 512, 8, 8, "fp8 block")
SKEWED = tuple(float(each) for each in np.random.default_rng(7).lognormal(0, 1, 64))


def drawn(routed: Routed, tokens: int, times: int = 300) -> tuple[float, float]:
    """Return what the busiest device gets on average, each token choosing expert by expert."""
    rng, chances = np.random.default_rng(0), routed.layers[0]
    found = []
    for _ in range(times):
        counts = (rng.random((tokens, *chances.shape)) < chances).sum(axis=0)
        worst = counts[counts.sum(axis=1).argmax()]
        found.append(((worst > 0).sum(), worst.sum()))
    touched, rows = np.mean(found, axis=0)
    return float(touched), float(rows)


@pytest.mark.parametrize("tokens", [8, 32, 128])
@pytest.mark.parametrize("routed", [replace(PLAIN, counts=(SKEWED,)), replace(PLAIN, counts=((1.0,) * 64,)),
                                    replace(PLAIN, counts=(SKEWED,), redundant=16)])  # fmt: skip
def test_the_busiest_device_gets_what_draws_give_it(routed: Routed, tokens: int) -> None:
    touched, rows = routed.busiest(tokens)[0]
    expected = drawn(routed, tokens)
    assert touched == pytest.approx(expected[0], rel=0.15)
    assert rows == pytest.approx(expected[1], rel=0.15)


def test_without_counts_as_many_are_touched_as_in_tables() -> None:
    """The power law of 1.2 of aiconfigurator, drawn as its collector does: 48, 64, 128 and 512 tokens, 8 of 256."""
    routed = Routed(256, 8, 7168, 2048, 1, 8, "fp8 block")
    found = [routed.busiest(tokens)[0][0] for tokens in (48, 64, 128, 512)]
    assert found == pytest.approx([179, 191, 208, 233], rel=0.13)


@given(st.lists(st.floats(1e-3, 1.0), min_size=4, max_size=24), st.integers(0, 8), st.sampled_from([1, 2, 4]))
@settings(max_examples=50, deadline=None)
def test_copies_divide_the_load_and_devices_are_balanced(
    loads: list[float], extra: int, devices: int
) -> None:
    slots = -(-(len(loads) + extra) // devices) * devices
    found = balanced(np.array(loads), slots, devices)
    assert found.shape == (devices, slots // devices)
    assert found.sum() == pytest.approx(sum(loads))
    # Each slot has some load: no more copies than slots, and no expert without one.
    assert (found > 0).all() and found.max() <= max(loads) + 1e-12
    # More slots never make the largest part larger.
    assert balanced(np.array(loads), slots + devices, devices).max() <= found.max() + 1e-12


def test_copies_shorten_what_all_wait_for() -> None:
    one = kernels_of("h200-sxm", "vllm", 450e9, True, replace(PLAIN, counts=(SKEWED,)))
    more = kernels_of("h200-sxm", "vllm", 450e9, True, replace(PLAIN, counts=(SKEWED,), redundant=16))
    assert one and more and more.experts_ns(4096) < one.experts_ns(4096)
    # Layers count by their mean.
    both = replace(PLAIN, counts=(SKEWED, SKEWED))
    assert replace(one, routed=both).experts_ns(64) == pytest.approx(one.experts_ns(64))


def test_largest_of_normal_deviates() -> None:
    draws = np.random.default_rng(0).normal(size=(20_000, 32))
    for count in (1, 2, 3, 8, 20, 32):
        assert largest(count) == pytest.approx(draws[:, :count].max(axis=1).mean(), abs=0.03)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("layer,expert\n0,1\n", "expected layer, expert, count"),
        ("layer,expert,count\n0,64,3\n", "experts below 64"),
        ("layer,expert,count\n0,1,x\n", "expected whole numbers"),
        ("layer,expert,count\n2,1,0\n", "layer 2: got no count above 0"),
        ("layer,expert,count\n", "has no row"),
    ],
)
def test_wrong_counts_are_refused(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "counts.csv"
    file.write_text(text)
    with pytest.raises(InputError, match=message):
        read_counts(file, 64)


def test_counts_are_read(tmp_path: Path) -> None:
    file = tmp_path / "counts.csv"
    file.write_text("expert,layer,count\n1,3,5\n0,0,2\n1,3,1\n")
    assert read_counts(file, 2) == ((2.0, 0.0), (0.0, 6.0))
