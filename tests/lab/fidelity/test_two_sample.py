"""Two-sample tests, by slow references and by samples of which the answer is known."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.lab.fidelity.two_sample import classifier_accuracy, kolmogorov_smirnov, nearest_distances

RNG = np.random.default_rng(1)


@settings(max_examples=60)
@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=20), st.lists(st.integers(0, 9), min_size=1, max_size=20)
)
def test_the_largest_difference(one: list[int], other: list[int]) -> None:
    slow = max(
        abs(sum(a <= x for a in one) / len(one) - sum(b <= x for b in other) / len(other))
        for x in (*one, *other)
    )
    found = kolmogorov_smirnov(np.array(one), np.array(other))
    assert abs(found.distance - slow) < 1e-12
    assert 0 <= found.p <= 1


def test_p_values_are_uniform_under_the_same_distribution() -> None:
    p = [kolmogorov_smirnov(RNG.normal(size=200), RNG.normal(size=150)).p for _ in range(300)]
    assert 0.02 < np.mean(np.array(p) < 0.05) < 0.09
    assert kolmogorov_smirnov(RNG.normal(size=200), RNG.normal(1, 1, size=200)).p < 1e-6


def test_a_classifier_tells_what_is_different() -> None:
    one, other = RNG.normal(size=(80, 5)), RNG.normal(size=(80, 5))
    assert 0.35 < classifier_accuracy(one, other) < 0.65
    assert classifier_accuracy(one, other + np.array([3, 0, 0, 0, 0])) > 0.8
    assert classifier_accuracy(one, one) == 0.5


def test_distances() -> None:
    known = RNG.normal(size=(40, 3))
    assert nearest_distances(known[:5], known).max() < 1e-9
    assert nearest_distances(known[:5] + 10, known).min() > 5
