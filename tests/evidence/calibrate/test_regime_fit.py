import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.evidence.calibrate.nccl_between import fit_spanning
from armillary.evidence.calibrate.regime_fit import LEAST, PENALTY, fit_curves, steady
from armillary.evidence.calibrate.samples import Sample


def line_error(points):
    """Least squared relative error of a line with no negative term: every choice of terms is tried."""
    size, time = (np.array(each, float) for each in zip(*points, strict=True))
    best = math.inf
    for chosen in ((0,), (1,), (0, 1)):
        terms = np.stack([1 / time, size / time], 1)[:, chosen]
        weights, *_ = np.linalg.lstsq(terms / np.abs(terms).max(0), np.ones(len(time)), rcond=None)
        if (weights >= -1e-12).all():
            best = min(best, ((terms / np.abs(terms).max(0) @ weights - 1) ** 2).sum())
    return best


def cost_of_all_cuts(points):
    """The reference: try every way to cut the sizes into regimes."""
    count, best = len(points), math.inf
    for number in range(count):
        for cuts in itertools.combinations(range(1, count), number):
            parts = [points[low:high] for low, high in itertools.pairwise((0, *cuts, count))]
            least = min(LEAST, count)
            if all(len(part) >= least or (part is parts[0] and len(part) < LEAST) for part in parts):
                best = min(best, sum(line_error(part) + PENALTY for part in parts))
    return best


def cost(points, regimes):
    error = 0.0
    for size, time in points:
        _, latency, slope = next(regime for regime in regimes if size <= regime[0])
        error += ((latency + slope * size) / time - 1) ** 2
    return error + PENALTY * len(regimes)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(1, 50), min_size=1, max_size=8))
def test_no_way_to_cut_is_better(times):
    points = [(4.0**number, time) for number, time in enumerate(times, 5)]
    (regimes,) = fit_curves([dict(points)])
    assert cost(points, regimes) == pytest.approx(cost_of_all_cuts(points), rel=1e-6, abs=1e-9)


def test_lines_and_the_switch_between_them_are_found():
    def time(size):
        return 5 + size / 2**16 if size <= 2**20 else 40 + size / 2**18

    (regimes,) = fit_curves([{2.0**n: time(2**n) for n in range(10, 30)}])
    assert len(regimes) == 2
    assert 2**20 <= regimes[0][0] < 2**21
    assert regimes[0][1:] == pytest.approx((5, 2**-16))
    assert regimes[1][1:] == pytest.approx((40, 2**-18))


def test_curves_that_switch_together_tell_each_other_where():
    def time(size):
        return 10.0 if size <= 2**20 else 100.0

    # The first has no size between 2^14 and 2^22, the second has, and is 1.2 times as slow.
    first = {2.0**n: time(2**n) for n in (10, 12, 14, 22, 24, 26, 28)}
    second = {2.0**n: 1.2 * time(2**n) for n in range(10, 29)}
    alone, together = fit_curves([first])[0], fit_curves([first, second])[0]
    assert alone[0][0] < 2**20
    assert 2**20 <= together[0][0] < 2**21
    assert together[0][1] == pytest.approx(10, rel=0.03)


def test_a_cold_start_is_left_out():
    assert steady({1.0: 90.0, 2.0: 10.0, 4.0: 12.0}) == {2.0: 10.0, 4.0: 12.0}


def test_many_sizes_take_no_longer():
    sizes = np.arange(1, 1025) * 2.0**20
    (regimes,) = fit_curves([dict(zip(sizes, 50 + sizes / 1e6, strict=True))])
    assert regimes[-1][1:] == pytest.approx((50, 1e-6))


def test_latency_of_nodes_and_bandwidth_of_nics_are_found():
    def ns(nodes, size):
        members = 8 * nodes
        return 20e3 + 30e3 * math.log2(nodes) + size * 2 * (members - 1) / members / 8 / 40

    samples = [
        Sample("", "all-reduce", 8, nodes, 2**n, ns(nodes, 2**n))
        for nodes in (2, 4, 8)
        for n in range(10, 35)
    ]
    found = fit_spanning("all-reduce", samples)
    assert found.nic[8] == pytest.approx(40, rel=0.02)
    for sample in samples:
        assert sum(found.time("all-reduce", 8, sample.nodes, sample.size)) == pytest.approx(
            sample.ns, rel=0.01
        )
    # Also for a number of nodes that was not there.
    assert sum(found.time("all-reduce", 8, 64, 2**12)) == pytest.approx(ns(64, 2**12), rel=0.02)
