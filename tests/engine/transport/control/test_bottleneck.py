"""Congestion controls at one link: network model `packet` against a second program, and against closed forms."""

from __future__ import annotations

import pytest

from .bottleneck import CASES, ours, second
from .dcqcn_fluid import Fluid


@pytest.mark.parametrize(
    ("control", "flows", "span", "within"),
    [("swift", 8, 3, 0.03), ("hpcc", 8, 3, 0.03), ("timely", 4, 20, 0.1), ("dcqcn", 4, 50, 0.1)],
)
def test_a_second_program_finds_the_same(control: str, flows: int, span: float, within: float) -> None:
    found, expected = (run(CASES[control], flows, 0, span) for run in (ours, second))
    assert found.use == pytest.approx(expected.use, rel=within)
    assert found.queue == pytest.approx(expected.queue, rel=2 * within)
    assert found.last == pytest.approx(expected.last, rel=within)
    assert found.marks == pytest.approx(expected.marks, rel=2 * within)


@pytest.mark.parametrize(("flows", "share"), [(2, 0.00322), (4, 0.00781), (8, 0.0187)])
def test_dcqcn_marks_as_the_fluid_model_and_more(flows: int, share: float) -> None:
    """Packets and cuts that come at once need more marks than a fluid, by half at most."""
    wire = 4158.0
    fluid = Fluid(5e9 / wire, 5000 / wire, 200_000 / wire, 0.1, counter=10e6 / wire, additive=5e6 / wire)
    assert fluid.fixed_point(flows)[0] == pytest.approx(share, rel=0.01)
    assert 1.2 * share < ours(CASES["dcqcn"], flows).marks < 1.6 * share
