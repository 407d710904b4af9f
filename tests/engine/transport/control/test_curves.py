"""Rates over time of flows that join and leave a link; docs/validation/networks.md has the table of all controls."""

from __future__ import annotations

import numpy as np
import pytest

from .bottleneck import CASES
from .curves import SPAN, SPANS, fairness, fluid, ours, second, stairs


@pytest.mark.parametrize(
    ("control", "fair", "far"),
    [("swift", 0.99, 0.03), ("ndp", 0.99, 0.01), ("nscc", 0.97, 0.06), ("rccc", 0.99, 0.02)],
)
def test_flows_share_a_link_that_they_join_and_leave(control: str, fair: float, far: float) -> None:
    """NSCC: a flow that finds a queue must not take it for the way, or later flows have four times as much."""
    shares, _ = ours(
        control, 12.5e9, SPAN[control] / 1e3, **({"full": "pause"} if control == "swift" else {})
    )
    assert fairness(shares) > fair
    assert np.abs(shares - stairs()).mean() < far
    assert shares.sum() / shares.shape[1] == pytest.approx(1, abs=0.02)


def test_rates_over_time_are_those_of_a_second_program() -> None:
    for control, within in (("swift", 0.01), ("hpcc", 0.1)):
        case, span = CASES[control], SPAN[control] / 1e3
        options = {"full": "pause"} if control == "swift" else {}
        found, other = ours(control, case.rate, span, **options)[0], second(case, span)
        assert np.abs(found - other).mean() < within
        assert found.sum() == pytest.approx(other.sum(), rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize(("control", "within", "fair"), [("timely", 0.1, 0.85), ("dcqcn", 0.05, 0.9)])
def test_slow_rates_over_time_are_those_of_a_second_program(control: str, within: float, fair: float) -> None:
    case, span = CASES[control], SPAN[control] / 1e3
    found = ours(control, case.rate, span, **case.options)[0]
    assert np.abs(found - second(case, span)).mean() < within
    assert fairness(found) > fair
    if control == "dcqcn":
        # The model that the paper of DCQCN holds against its own machines.
        assert np.abs(found - fluid(case, span)).mean() < 0.07
        assert found.sum() / SPANS / 8 > 0.95
