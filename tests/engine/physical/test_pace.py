"""Collectives that a kernel sends itself take what its pace leaves of the links, whatever a library would take."""

from __future__ import annotations

from dataclasses import replace

import pytest

import armillary
from armillary.base.errors import InputError
from armillary.platform.collectives import FitChoice
from armillary.platform.kernels import Terms
from armillary.platform.model import Platform
from armillary.trace import CollectiveType, GraphBuilder, Trace

from .test_fitted import machine

SIZE = 1 << 26


def ticks(platform: Platform, pace: int | None) -> int:
    builder = GraphBuilder()
    builder.collective("c", CollectiveType.ALL_TO_ALL, SIZE)
    if pace is not None:
        builder.nodes[-1].attrs.append(("comm_pace", "int64", pace))
    return int(armillary.simulate(Trace.replicate(builder.graph("r"), platform.npus), platform).total_ticks)


def test_a_pace_divides_the_bandwidth_and_leaves_out_fit_and_terms() -> None:
    bare = replace(machine(), collectives=replace(machine().collectives, fit=None))
    whole = ticks(bare, 1000)
    assert whole == ticks(bare, 0) == ticks(bare, None)
    assert ticks(bare, 500) == pytest.approx(2 * whole, rel=1e-2)
    slowed = replace(bare, terms=Terms(communication_inside=0.9, communication_between=0.9))
    assert ticks(slowed, 500) == ticks(bare, 500) and ticks(slowed, 0) > whole
    fitted = replace(bare, collectives=replace(bare.collectives, fit=FitChoice("a100-sxm", 2)))
    assert ticks(fitted, 500) == ticks(bare, 500) and ticks(fitted, 0) != whole


@pytest.mark.parametrize("pace", [-1, 1001])
def test_impossible_paces_are_refused(pace: int) -> None:
    with pytest.raises(InputError, match=rf"comm_pace {pace}.*expected 0 to 1000"):
        ticks(machine(), pace)
