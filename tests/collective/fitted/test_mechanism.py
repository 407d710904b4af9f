"""Times by NCCL's choice of algorithm and protocol: what must hold of any device, operation and size."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.collective.fitted import fit_names, load_fit
from armillary.collective.fitted.model import SUBSTITUTES
from armillary.collective.fitted.read import sheets
from armillary.collective.fitted.regimes import share
from armillary.collective.fitted.tuning import LL, SIMPLE, choose

SIZES = [2 ** (n / 2) for n in range(18, 72)]


@pytest.mark.parametrize("name", fit_names())
def test_time_falls_with_the_size_only_where_the_protocol_changes(name):
    fit = load_fit(name)
    for operation in SUBSTITUTES:
        for per_node, nodes in ((2, 1), (4, 1), (6, 1), (8, 1), (1, 2), (8, 2), (8, 16)):
            found = [fit.time(operation, per_node, nodes, size) for size in SIZES]
            for before, after in pairwise(found):
                assert after.total_ns >= before.total_ns * (1 - 1e-9) or after.regime != before.regime


@pytest.mark.parametrize("name", fit_names())
def test_no_link_carries_more_than_its_data_sheet_says(name):
    fit = load_fit(name)
    for operation in ("all-gather", "reduce-scatter", "all-to-all", "send"):
        for members in (2, 3, 4, 8):
            for size in SIZES:
                sent = size * share(operation, members)
                assert sent / fit.time(operation, members, 1, size).total_ns <= fit.sheet.link * 1.001
    # The switch sums up what it reads, so that an all-reduce sends its buffer once and each part once more.
    for size in SIZES:
        assert size * 9 / 8 / fit.time("all-reduce", 8, 1, size).total_ns <= fit.sheet.link * 1.001
    for nodes in (2, 16):
        for size in SIZES:
            off_node = size * (nodes - 1) / nodes / 8
            assert off_node / fit.time("all-gather", 8, nodes, size).total_ns <= fit.sheet.nic * 1.001


@given(st.sampled_from(sorted(sheets())), st.integers(2, 64), st.integers(1, 64))
def test_small_sizes_take_the_protocol_of_low_latency_and_large_ones_the_one_of_bandwidth(
    name, per_node, nodes
):
    sheet = sheets()[name]
    for operation in ("all-reduce", "all-gather", "reduce-scatter", "broadcast"):
        assert choose(operation, per_node, nodes, 8, sheet, False).protocol == LL
        last = choose(operation, per_node, nodes, 1e13, sheet, False)
        assert last == ("ring", SIMPLE)


@pytest.mark.parametrize("name", ["a100-sxm", "h100-sxm", "b200-sxm", "gb300"])
def test_members_that_were_not_measured_lie_between(name):
    fit = load_fit(name)
    for operation in ("all-reduce", "all-gather", "reduce-scatter"):
        for size in (1024, 1 << 32):
            times = [fit.time(operation, n, 1, size).latency_ns for n in (2, 3, 4, 6)]
            assert times == sorted(times)


def test_a_latency_is_that_of_the_steps_of_the_ring():
    fit = load_fit("b200")
    line = fit.mechanism.lines[LL]
    for members in (2, 5, 8):
        found = fit.time("all-gather", members, 1, 1)
        assert found.total_ns == pytest.approx(line.overhead + line.hop * (members - 1), rel=1e-2)


def test_the_constants_are_at_most_half_of_what_they_were_fitted_to(shared):
    from armillary.evidence.calibrate.nccl_mechanism import constants_of
    from armillary.evidence.calibrate.nccl_tables import read_file
    from armillary.evidence.calibrate.samples import merged

    rows = merged(read_file(shared / "measured" / "nccl_single_node.csv"))
    for device in sorted({row.device for row in rows}):
        fit = load_fit(device)
        inside = [key for key in constants_of(fit.mechanism) if not key[0].startswith("network")]
        assert len(inside) <= sum(row.device == device for row in rows) / 4
        assert all(math.isfinite(value) for value in constants_of(fit.mechanism).values())
