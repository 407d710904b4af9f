"""Samples of a step: reproducible, the same however they are found, and right where they can be simulated."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import armillary
from armillary.base.errors import InputError
from armillary.explore.samples import run as sampling
from armillary.explore.samples.draw import draw, machine, normal_levels
from armillary.explore.samples.quantiles import interval, quantile
from armillary.explore.samples.words import says
from armillary.platform.files.native import load_study
from armillary.platform.model import Platform
from armillary.platform.network import Dimension
from armillary.platform.variation import Background, Clock, LinkFlaps, SlowNics, Stragglers, Variation
from armillary.trace import CollectiveType, GraphBuilder, Trace
from armillary.workload import study_trace
from tests.engine.physical.reference.evaluate import simulate_slowly

WIDE = Variation(
    Clock(0.3, "uniform", 3),
    Stragglers(0.3, 1.0, 2),
    LinkFlaps(0.3, 2000.0),
    SlowNics(0.3, 0.5),
    Background(0.4),
)


def trace(npus: int, steps: int = 3) -> Trace:
    """Every rank computes and meets its neighbour, and then all."""
    graphs = []
    for rank in range(npus):
        b = GraphBuilder(rank=rank)
        after: list[int] = []
        for number in range(steps):
            after = [b.compute("k", duration_micros=2 + number, after=after)]
            group = 1 + rank // 2 if number % 2 else None
            after = [b.collective("c", CollectiveType.ALL_REDUCE, 40_000, group=group, after=after)]
        graphs.append(b.graph(f"rank {rank}"))
    return Trace.from_ranks(graphs)


def platform(npus: int, variation: Variation | None, **more: Any) -> Platform:
    """Two dimensions and groups of neighbours."""
    groups = {1 + pair: (2 * pair, 2 * pair + 1) for pair in range(npus // 2)}
    dimensions = (
        Dimension("node", "Switch", 2, 50.0, 100.0),
        Dimension("rail", "Switch", npus // 2, 10.0, 500.0),
    )
    return Platform(dimensions, groups=groups, variation=variation, **more)


@st.composite
def variations(pick: Any) -> Variation:
    """Some of the causes."""
    per = pick(st.sampled_from([1, 2, 3, 8]))
    shape, levels = pick(st.sampled_from(["normal", "uniform"])), pick(st.sampled_from([0, 1, 2, 5]))
    return Variation(
        pick(st.none() | st.just(Clock(0.4, shape, levels, per))),
        pick(st.none() | st.just(Stragglers(0.4, 0.7, per))),
        pick(st.none() | st.just(LinkFlaps(0.4, 3000.0, per))),
        pick(st.none() | st.just(SlowNics(0.4, 0.75, per, pick(st.sampled_from(["", "node"]))))),
        pick(st.none() | st.just(Background(0.5, pick(st.sampled_from([0, 2])), "", levels))),
    )


@settings(max_examples=25)
@given(variations(), st.sampled_from([4, 6, 8]), st.integers(0, 5))
def test_each_sample_is_the_step_of_every_rank_on_the_drawn_machine(
    variation: Variation, npus: int, seed: int
) -> None:
    work, varied = trace(npus), platform(npus, variation)
    folded = armillary.sample(work, varied, 3, seed=seed)
    assert (folded.ticks == armillary.sample(work, varied, 3, seed=seed, fold=False).ticks).all()
    drawn = draw(varied, seed, range(3))
    slow = [simulate_slowly(work, machine(varied, drawn, row)) for row in range(3)]
    assert folded.ticks.tolist() == [max(finish) for finish, _, _ in slow]
    assert folded.plain == armillary.simulate(work, replace(varied, variation=None)).total_ticks


def test_one_sample_of_a_machine_that_does_not_vary_is_the_step() -> None:
    found = armillary.sample(trace(4), platform(4, Variation()), 1)
    assert found.ticks.tolist() == [found.plain] == [found.quantile("p99")]
    assert found.causes == ()


def test_samples_do_not_depend_on_their_number_or_the_workers() -> None:
    work, varied = trace(6), platform(6, WIDE)
    many = armillary.sample(work, varied, 7, seed=3)
    assert (armillary.sample(work, varied, 7, seed=3, workers=3).ticks == many.ticks).all()
    assert (armillary.sample(work, varied, 4, seed=3).ticks == many.ticks[:4]).all()
    assert (armillary.sample(work, varied, 7, seed=4).ticks != many.ticks).any()


def test_leaving_out_a_cause_changes_no_draw_of_another() -> None:
    varied = platform(8, WIDE)
    less = platform(8, replace(WIDE, stragglers=None))
    one, other = draw(varied, 1, [0, 5], without=["stragglers"]), draw(less, 1, [0, 5])
    assert (one.speed == other.speed).all()
    assert one.delay is not None
    assert other.delay is not None
    assert (one.delay == other.delay).all()
    found = armillary.sample(trace(8), varied, 5, seed=1)
    alone = armillary.sample(trace(8), less, 5, seed=1)
    assert (found.causes[1].without == alone.ticks).all()


@pytest.mark.parametrize("levels", [1, 2, 3, 16, 17])
def test_levels_have_the_mean_of_a_normal_number_and_at_most_its_spread(levels: int) -> None:
    edges, values = normal_levels(levels, 1000)
    shares = np.diff(np.concatenate([[0.0], edges, [1.0]]))
    assert shares @ values == pytest.approx(0, abs=1e-6)
    assert shares @ values**2 <= 1 + 1e-6
    assert (np.diff(values) > 0).all()
    if levels >= 16:
        # Reaching 5 standard deviations, the levels are 0.6 wide; what they lose is below a twelfth of the square.
        assert shares @ values**2 == pytest.approx(1, abs=0.04)


def test_few_levels_make_few_classes() -> None:
    work, counts = trace(8), []
    for levels in (1, 2, 0):
        found = armillary.sample(work, platform(8, Variation(Clock(0.1, "uniform", levels))), 1)
        counts.append((found.distinct, found.classes))
    assert counts[0] == (1, 1)
    assert counts[0] < counts[1] < counts[2]
    assert counts[2][0] == 8


def test_the_error_of_levels_is_measured() -> None:
    work = trace(8)
    coarse = armillary.sample(work, platform(8, Variation(Clock(0.3, "uniform", 1))), 5)
    fine = armillary.sample(work, platform(8, Variation(Clock(0.3, "uniform", 1000))), 5)
    assert coarse.levels_error is not None
    assert fine.levels_error is not None
    assert coarse.levels_error > 10 * fine.levels_error
    assert armillary.sample(work, platform(8, Variation(Clock(0.3, "uniform", 0))), 2).levels_error is None


def test_quantiles_are_samples_and_their_intervals_hold() -> None:
    assert [quantile(range(1, 201), share) for share in (0.5, 0.9, 0.99)] == [100, 180, 198]
    assert quantile([7], 0.99) == 7
    low, high = interval(range(200), 0.5)
    assert low is not None
    assert high is not None
    assert low < 100 < high
    assert interval(range(200), 0.99)[1] is None
    assert interval([1], 0.5) == (None, None)
    # Of many sets of samples, the interval has the quantile in 9 of 10 or more.
    random = np.random.default_rng(0)
    held = 0
    for _ in range(400):
        ends = interval(np.sort(random.integers(0, 10**6, 50)).tolist(), 0.9)
        held += (ends[0] or 0) <= 900_000 <= (ends[1] or 10**6)
    assert held >= 360


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"variation": None}, "platform.variation: missing"),
        ({"profile": "astra-sim"}, "expected physical"),
        ({"network_model": "flow"}, "slow_nics has no effect in network model flow"),
        ({"samples": 0}, "samples: got 0, expected 1 or more"),
        ({"samples": 10**7}, "expected at most"),
        ({"seed": -1}, "seed: got -1"),
        ({"workers": True}, "workers: got"),
    ],
)
def test_what_cannot_be_sampled_is_refused(change: dict[str, Any], says: str) -> None:
    varied = platform(4, change.pop("variation", WIDE))
    with pytest.raises(InputError, match=says):
        armillary.sample(trace(4), varied, **{"samples": 2, **change})


def test_a_step_alone_warns_that_variation_has_no_effect() -> None:
    timeline = armillary.simulate(trace(4), platform(4, Variation(Clock(0.1))))
    assert any("variation has no effect" in warning for warning in timeline.info["warnings"])


def test_large_samples_are_retimed_and_compared_with_simulations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = {
        "platform": {
            "network": [
                {"topology": "Switch", "size": 4, "bandwidth": "400 GB/s", "latency": "1 us"},
                {"topology": "Switch", "size": 8, "bandwidth": "50 GB/s", "latency": "5 us"},
            ],
            "npu": {"peak": "300 TFLOP/s", "memory": {"bandwidth": "2 TB/s"}},
            "variation": {"clock": {"spread": "9 %"}, "slow_nics": {"share": "5 %", "loses": "50 %"}},
        },
        "workload": {
            "generate": {
                "model": "llama-2-7b", "batch": 16, "sequence": 512, "parallel": {"tp": 4, "pp": 2}
            }
        },
    }  # fmt: skip
    path = tmp_path / "study.yaml"
    path.write_text(json.dumps(study))
    loaded = load_study(path)
    work = study_trace(loaded)
    simulated = armillary.sample(work, loaded.platform, 4)
    monkeypatch.setattr(sampling, "MOST_NODES", 100)
    retimed = armillary.sample(work, loaded.platform, 4)
    assert (simulated.method, retimed.method) == ("simulated", "retimed")
    assert retimed.retiming_error is not None
    assert retimed.checks > 0
    assert retimed.ticks == pytest.approx(simulated.ticks, rel=0.03)
    assert (armillary.sample(work, loaded.platform, 4, workers=2).ticks == retimed.ticks).all()


def test_a_last_group_that_is_smaller_is_said() -> None:
    four = platform(4, None)
    assert "10 % of groups of 3 NPUs (the last 1) take" in says("stragglers", Stragglers(0.1, 0.2, 3), four)
    assert says("clock", Clock(0.1, per=3), four).endswith("for each 3 NPUs (the last 1)")
    assert says("clock", Clock(0.1, per=2), four).endswith("for each 2 NPUs")
