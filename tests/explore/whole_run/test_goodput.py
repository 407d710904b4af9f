"""The renewal formula against played runs, Daly's formula, and limits."""

from __future__ import annotations

import math
from dataclasses import astuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.explore.whole_run.goodput import (
    Checkpoints,
    Recovery,
    best_interval,
    daly,
    erlang,
    goodput,
    young,
)
from armillary.explore.whole_run.monte_carlo import play

CASES = {
    "blocking": (1 / 10_000, 600.0, Checkpoints(60), Recovery(300)),
    "failures in restarts": (1 / 1000, 300.0, Checkpoints(60), Recovery(900)),
    "asynchronous": (1 / 5000, 400.0, Checkpoints(5, 380), Recovery(200)),
    "few spares": (1 / 4000, 500.0, Checkpoints(30), Recovery(300, 2, 9000, 0.7)),
    "no spare": (1 / 4000, 500.0, Checkpoints(5, 100), Recovery(300, 0, 2000, 1.0)),
}


@pytest.mark.parametrize("name", CASES)
def test_played_runs_agree_within_their_error(name: str) -> None:
    case = CASES[name]
    found, played = goodput(*case), play(*case, failures=500, runs=40, seed=7)
    for formula, mean, error in zip(astuple(found), astuple(played.mean), astuple(played.error), strict=True):
        assert abs(formula - mean) <= 4 * error + 2e-4, (formula, mean, error)
    assert max(astuple(played.error)) < 0.01  # else the comparison says nothing
    assert sum(astuple(found)) == pytest.approx(1)


def test_a_wrong_formula_would_be_noticed() -> None:
    """The first-order estimate, 1 - b/t - (t/2 + R) r, lies many errors away."""
    rate, interval, checkpoints, recovery = CASES["failures in restarts"]
    played = play(rate, interval, checkpoints, recovery, failures=500, runs=40, seed=7)
    first = 1 - checkpoints.blocking / interval - (interval / 2 + recovery.restart) * rate
    assert abs(first - played.mean.useful) > 10 * played.error.useful


@given(st.floats(60, 1e5), st.floats(1, 3000), st.floats(0.1, 600), st.floats(0, 3000))
@settings(max_examples=50)
def test_blocking_is_dalys_complete_model(mean: float, interval: float, stop: float, restart: float) -> None:
    found = goodput(1 / mean, interval, Checkpoints(stop), Recovery(restart))
    time = math.exp(restart / mean) * mean * math.expm1((interval + stop) / mean) / interval
    assert found.useful == pytest.approx(1 / time, rel=1e-9)
    assert min(astuple(found)) >= -1e-12


@given(st.floats(60, 1e6), st.floats(0.01, 1000))
@settings(max_examples=50)
def test_the_best_interval_is_a_maximum(mean: float, stop: float) -> None:
    checkpoints, recovery = Checkpoints(stop), Recovery(100)
    best = best_interval(1 / mean, checkpoints)
    top = goodput(1 / mean, best, checkpoints, recovery).useful
    for factor in (0.8, 0.98, 1.02, 1.25):
        assert goodput(1 / mean, best * factor, checkpoints, recovery).useful <= top * (1 + 1e-9)


def test_young_and_daly_come_near_it_where_checkpoints_are_short() -> None:
    checkpoints = Checkpoints(5 * 60)
    # Daly 2006, Figs. 3 to 5 (R = 10 min, delta = 5 min): his model predicts 117, 57 and 9.1 min for these.
    for hours, minutes in ((24, 117), (6, 57), (0.25, 9.1)):
        rate = 1 / (hours * 3600)
        assert daly(rate, checkpoints) / 60 == pytest.approx(minutes, rel=0.02)
        assert best_interval(rate, checkpoints) / 60 == pytest.approx(minutes, rel=0.03)
    day = 1 / 86400
    assert young(day, checkpoints) == pytest.approx(best_interval(day, checkpoints), rel=0.05)
    assert daly(day, checkpoints) == pytest.approx(best_interval(day, checkpoints), rel=1e-3)
    assert daly(1.0, checkpoints) == 1.0  # checkpoints longer than two MTBF


def test_limits() -> None:
    assert goodput(0.0, 90, Checkpoints(10), Recovery(5)).useful == pytest.approx(0.9)
    assert goodput(1.0, 1e4, Checkpoints(10), Recovery(5)).useful == 0
    assert best_interval(0.0, Checkpoints(10)) == math.inf
    assert best_interval(1e-4, Checkpoints(0, 120)) == 120
    with pytest.raises(InputError, match="written in 200 s, expected no more than the interval of 110 s"):
        goodput(1e-4, 100, Checkpoints(10, 200), Recovery(5))


def test_erlang_by_hand() -> None:
    assert erlang(1, 0.5) == pytest.approx(0.5 / 1.5)
    load, lines = 3.0, 4
    terms = [load**k / math.factorial(k) for k in range(lines + 1)]
    assert erlang(lines, load) == pytest.approx(terms[-1] / sum(terms))


@pytest.mark.parametrize("rate", (0.1, 3.0, 1e3, 1e9))
def test_at_extreme_rates_time_is_lost_to_what_takes_it(rate: float) -> None:
    """Restarts of no time take none of it, however often they happen; long ones that never succeed take all."""
    short = goodput(rate, 1e4, Checkpoints(60), Recovery(0.0))
    assert short.restarts == 0 and short.lost == pytest.approx(1)
    long = goodput(rate, 1e4, Checkpoints(60), Recovery(1e6))
    assert long.restarts == pytest.approx(1) and long.lost == pytest.approx(0)
    both = goodput(rate, 1e4, Checkpoints(60), Recovery(0.5 / rate))
    assert both.restarts == pytest.approx(1 - math.exp(-0.5)) and sum(both.parts.values()) == pytest.approx(1)
