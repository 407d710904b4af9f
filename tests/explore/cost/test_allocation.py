"""Allocations: closed forms, a grid of all splits, and what the simulator says."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary import simulate
from armillary.base.errors import InputError
from armillary.cli import main
from armillary.explore.cost.allocation.compare import compare
from armillary.explore.cost.allocation.solve import allocate, in_steps, spend
from armillary.explore.cost.allocation.traffic import Traffic, traffic_of
from armillary.platform import Dimension, Platform
from armillary.platform.files.native import load_study
from armillary.platform.network import Port
from armillary.trace import GraphBuilder, Trace


def traffic(
    volume: list[list[float]], chunks: float = np.inf, count: list[list[float]] | None = None
) -> Traffic:
    v = np.array(volume, float)
    n = np.ones((1, len(v))) if count is None else np.array(count, float)
    return Traffic(v, np.full(len(v), chunks), np.zeros(len(v)), n)


def test_one_pipelined_collective_gets_bandwidth_in_proportion_to_its_bytes() -> None:
    found = allocate(traffic([[6e6, 3e6, 1e6]]), np.ones(3), 1000.0)
    assert found.bandwidth == pytest.approx([600, 300, 100], rel=1e-5)
    assert found.time == pytest.approx(1e4, rel=1e-6) and found.gap < 1e-6


def test_collectives_on_different_dimensions_follow_the_square_root() -> None:
    # Minimise a/x + b/y with p x + q y = B: x = B sqrt(a/p) / (sqrt(a p) + sqrt(b q)).
    a, b, p, q, budget = 9e6, 1e6, 2.0, 5.0, 1e3
    found = allocate(traffic([[a, 0], [0, b]]), np.array([p, q]), budget)
    root = np.sqrt(a * p) + np.sqrt(b * q)
    assert found.bandwidth == pytest.approx(
        [budget * np.sqrt(a / p) / root, budget * np.sqrt(b / q) / root], rel=1e-3
    )
    assert found.time == pytest.approx(root**2 / budget, rel=1e-6) and found.gap < 1e-6
    # One chunk is one after the other, too.
    assert allocate(traffic([[a, b]], 1.0), np.array([p, q]), budget).time == pytest.approx(
        found.time, rel=1e-6
    )


def test_limits_hold_and_what_is_fixed_stays() -> None:
    none = np.full(3, np.inf)
    found = allocate(traffic([[6e6, 3e6, 1e6]]), np.ones(3), 1000.0, np.array([1.0, 1, 400]), none)
    assert found.bandwidth == pytest.approx([400, 200, 400], rel=1e-4)
    found = allocate(
        traffic([[6e6, 3e6, 0]]), np.ones(3), 1000.0, np.array([1.0, 1, 50]), np.array([500.0, 900, 900])
    )
    assert found.bandwidth[0] == pytest.approx(500) and found.bandwidth.sum() == pytest.approx(1000)
    with pytest.raises(
        InputError, match="the least bandwidths cost 1,200, expected at most the budget of 1,000"
    ):
        spend(np.ones(3), 1000, np.ones(3), np.full(3, 400.0), none)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from([0.0, 1, 2, 5, 20]), min_size=3, max_size=3), min_size=1, max_size=5),
    st.lists(st.floats(0.5, 20), min_size=3, max_size=3),
    st.sampled_from([1.0, 4.0, np.inf]),
    st.integers(1, 3),
    st.integers(0, 10**6),
)
def test_no_split_of_a_fine_grid_is_better(
    volume: list[list[float]], price: list[float], chunks: float, classes: int, seed: int
) -> None:
    count = np.random.default_rng(seed).integers(0, 4, (classes, len(volume))).tolist()
    case = traffic(volume, chunks, count)
    prices, budget, n = np.array(price), 100.0, 40
    found = allocate(case, prices, budget)
    assert prices @ found.bandwidth <= budget * (1 + 1e-9)
    assert found.time <= found.bound * (1 + 1e-6) + 1e-12
    assert found.time == pytest.approx(case.time(found.bandwidth))
    for x, y in product(range(1, n), repeat=2):
        if x + y < n:
            split = np.array([x, y, n - x - y]) / n * budget / prices
            assert case.time(split) >= found.bound * (1 - 1e-9)


def test_steps_are_multiples_and_not_far_from_the_best() -> None:
    case, price = traffic([[6e6, 3e6, 1e6], [0, 0, 2e6]]), np.ones(3)
    best = allocate(case, price, 1000.0)
    found = in_steps(case, price, 1000.0, best, 25.0, np.ones(3), np.full(3, np.inf))
    assert (found.bandwidth % 25 == 0).all() and found.bandwidth.sum() == 1000
    every = [
        case.time(np.array([x, y, 1000 - x - y], float))
        for x in range(25, 1000, 25)
        for y in range(25, 1000 - x, 25)
    ]
    assert found.time <= min(every) * 1.02 and found.bound <= min(every)
    most = np.array([310.0, np.inf, np.inf])
    assert (
        in_steps(case, price, 1000.0, found, 25.0, np.ones(3), np.array([700.0, 260, 900])).bandwidth[1]
        <= 250
    )
    with pytest.raises(InputError, match="no multiples of 25 GB/s are within the limits"):
        in_steps(case, price, 1000.0, best, 25.0, np.array([305.0, 1, 1]), most)


STUDY = """
workload: {collective: all-reduce, size: 256 MB}
platform:
  network:
    - {name: package, topology: Ring, size: 4, bandwidth: 100 GB/s, latency: 100 ns}
    - {name: node, topology: FullyConnected, size: 4, bandwidth: 100 GB/s, latency: 100 ns}
    - {name: pod, topology: Switch, size: 8, bandwidth: 100 GB/s, latency: 100 ns}
  collectives: {chunks: 64}
"""


def test_simulation_agrees_with_the_model(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(STUDY)
    found = compare(load_study(path), np.ones(3), 300.0)
    d = 256e6
    moved = [2 * d * 3 / 4, 2 * d / 4 * 3 / 4, 2 * d / 16 * 7 / 8]
    assert found.traffic.volume[0] == pytest.approx(moved, rel=1e-3)
    assert found.best.bandwidth == pytest.approx(300 * np.array(moved) / sum(moved), rel=0.02)
    assert found.equal_run.total_ticks == pytest.approx(found.equal.time, rel=0.02)
    assert found.best_run.total_ticks == pytest.approx(found.best.time, rel=0.03)
    assert found.speedup > 2


def test_links_that_a_sub_group_leaves_idle_count() -> None:
    """Four of eight in a FullyConnected dimension use three of the seven links of their ports."""
    machine = Platform(
        (Dimension("node", "FullyConnected", 8, 1.0, 0.0, Port(70.0, 70.0)),),
        groups={1: (0, 1, 2, 3), 2: (4, 5, 6, 7)},
    )
    graphs = []
    for group in (1, 2):
        builder = GraphBuilder()
        builder.all_reduce("sum", 4 * 10**6, group=group)
        graphs += [builder.graph(f"g{group}")] * 4
    trace = Trace.from_ranks(graphs)
    run = simulate(trace, machine)
    found = traffic_of(trace, machine, run)
    assert found.volume[0] == pytest.approx([2 * 4e6 * 3 / 4 * 7 / 3], rel=1e-4)
    assert found.time(np.array([70.0])) == pytest.approx(run.total_ticks, rel=1e-3)


def test_command(tmp_path: Path) -> None:
    path, out = tmp_path / "study.yaml", tmp_path / "o.json"
    path.write_text(STUDY)
    given = [
        "plan",
        "allocate",
        str(path),
        "--dollars",
        "100 kUSD",
        "--costs",
        "libra",
        "--min",
        "pod=10 GB/s",
    ]
    run = CliRunner().invoke(main, [*given, "--json", str(out)])
    assert run.exit_code == 0, run.output
    found = json.loads(out.read_text())
    each = [128 * 4.0, 128 * 4.0, 128 * 57.4]
    rates = [one["allocated_bytes_per_ns"] for one in found["dimensions"]]
    assert np.dot(each, rates) == pytest.approx(100e3, rel=1e-6)
    assert found["step_ns"]["allocated"] < found["step_ns"]["equal"]
    for more in (["--budget", "1 TB/s"], []):
        bad = CliRunner().invoke(main, ["plan", "allocate", str(path), "--dollars", "1 USD", *more])
        assert bad.exit_code == 2
    bad = CliRunner().invoke(
        main, ["plan", "allocate", str(path), "--budget", "1 TB/s", "--min", "pot=1 GB/s"]
    )
    assert bad.exit_code == 2 and "did you mean 'pod'" in bad.output
