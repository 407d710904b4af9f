"""Greedy schedulers, the bound, the search and the times of plans, against brute force and the simulator."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import permutations, product
from math import ceil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import armillary
from armillary.base.jit import Mode
from armillary.collective.chunk_order import (
    SCHEDULABLE,
    WITHIN,
    Level,
    Order,
    chunk_routes,
    greedy,
    loads,
)
from armillary.collective.chunk_order.alone import Alone
from armillary.collective.chunk_order.bound import best_shares, cheapest
from armillary.collective.chunk_order.choose import chunks_for
from armillary.collective.chunk_order.online import online_greedy
from armillary.collective.chunk_order.search import least_time, search
from armillary.collective.rounds import plain_sizes
from armillary.engine.common.network import CollectiveCall, Communicator
from armillary.engine.physical.costs import costs_of, levels_of
from armillary.platform.collectives import CHUNK_ORDERS
from armillary.platform.memory import LocalMemory
from armillary.platform.model import Collectives, Npu, Platform
from armillary.platform.network import Dimension, Port
from armillary.trace import CollectiveType, GraphBuilder, Trace

GREEDY = {
    "baseline": greedy.baseline,
    "round-robin": greedy.round_robin,
    "themis": greedy.themis,
    "themis-flex": greedy.themis_flex,
}
KINDS = {
    "all-reduce": CollectiveType.ALL_REDUCE,
    "reduce-scatter": CollectiveType.REDUCE_SCATTER,
    "all-gather": CollectiveType.ALL_GATHER,
    "all-to-all": CollectiveType.ALL_TO_ALL,
}


def levels(operation: str, *dims: tuple[int, float, float]) -> list[Level]:
    """Return levels of rings of (members, bytes per ns, latency ns)."""
    scale = {"all-gather": lambda n: n}.get(operation, lambda n: 1)
    return [
        Level(n, scale(n) * (n - 1) / n / rate, latency, 2 * (n - 1) / n / rate, latency, 2 * latency)
        for n, rate, latency in dims
    ]


@dataclass(frozen=True)
class Rounded:
    """What phases cost if that of each level is known."""

    operation: str
    levels: tuple[Level, ...]

    def rows(self, size: int, order: Order) -> list[int]:
        steps = chunk_routes(self.operation, self.levels, order)
        turn = len(order) - 1 if self.operation == "all-reduce" else None
        result = []
        for i, step in enumerate(steps):
            level = self.levels[step.level]
            ns = ceil(step.moving * size)
            result += [step.level, int(level.turn_least if i == turn else level.least), ns, ns]
        return result


def alone_on(operation: str, found: list[Level], within: str, mode: Mode = "interpreted") -> Alone:
    return Alone(len(found), within, Rounded(operation, tuple(found)), mode)


@st.composite
def machines(draw: st.DrawFn, least: int = 1) -> tuple[str, list[Level]]:
    operation = draw(st.sampled_from(SCHEDULABLE))
    dims = draw(
        st.lists(
            st.tuples(st.integers(2, 9), st.sampled_from([0.5, 1.0, 3.0, 7.5]), st.sampled_from([0.0, 40.0])),
            min_size=least,
            max_size=4,
        )
    )
    return operation, levels(operation, *dims)


@given(machines(), st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0]), min_size=4, max_size=4))
def test_the_cheapest_order_is_that_of_all_permutations(
    machine: tuple[str, list[Level]], price: list[float]
) -> None:
    operation, found = machine

    def cost(order: tuple[int, ...]) -> float:
        return float(np.dot(price[: len(found)], loads(operation, found, order)))

    least = min(map(cost, permutations(range(len(found)))))
    assert cost(cheapest(operation, found, price[: len(found)])) == pytest.approx(least, abs=1e-9)


@given(machines(), st.lists(st.floats(0.01, 1), min_size=24, max_size=24))
def test_shares_reach_the_bound_and_no_others_beat_it(
    machine: tuple[str, list[Level]], weights: list[float]
) -> None:
    operation, found = machine
    shares = best_shares(operation, found)
    assert sum(shares.share.values()) == pytest.approx(1)
    reached = sum(x * np.array(loads(operation, found, order)) for order, x in shares.share.items())
    assert max(reached) == pytest.approx(shares.time)
    orders = list(permutations(range(len(found))))
    other = np.array(weights[: len(orders)]) / sum(weights[: len(orders)])
    mixed = sum(x * np.array(loads(operation, found, order)) for order, x in zip(orders, other, strict=True))
    assert max(mixed) >= shares.time * (1 - 1e-9)


def test_equal_ports_are_used_in_full() -> None:
    """A square of equal ports has one optimum: half of the bytes each way, and no port ever idle."""
    shares = best_shares("all-reduce", levels("all-reduce", (32, 500.0, 0.0), (32, 500.0, 0.0)))
    assert shares.share == pytest.approx({(0, 1): 0.5, (1, 0): 0.5})
    assert shares.time == pytest.approx(2 * (1 - 1 / 1024) / 1000)


@pytest.mark.parametrize("how", GREEDY)
@pytest.mark.parametrize(("size", "chunks"), [(0, 4), (1, 4), (1000, 7), (10**9, 64)])
@pytest.mark.parametrize("operation", SCHEDULABLE)
def test_plans_cover_every_byte_once(how: str, size: int, chunks: int, operation: str) -> None:
    found = levels(operation, (4, 10.0, 5.0), (3, 5.0, 5.0), (2, 1.0, 5.0))
    plan = chunks_for(how, "fifo", operation, found, size, chunks, Rounded(operation, tuple(found)))
    assert sum(each for each, _ in plan) == size
    assert all(sorted(order) == [0, 1, 2] for _, order in plan)
    assert min(each for each, _ in plan) >= min(size, 1)


def test_themis_takes_the_least_loaded_level_first() -> None:
    """By hand: 1 byte costs the first level of an order 1/2 ns, the second 1/4."""
    found = [Level(2, 0.5, 0.0), Level(2, 0.5, 0.0)]
    plan = greedy.themis("reduce-scatter", found, [64, 64, 64])
    assert [order for _, order in plan] == [(0, 1), (1, 0), (0, 1)]


def test_round_robin_begins_one_level_later_each_time() -> None:
    plan = greedy.round_robin("all-gather", levels("all-gather", *[(2, 1.0, 0.0)] * 3), [1] * 4)
    assert [order for _, order in plan] == [(2, 1, 0), (1, 0, 2), (0, 2, 1), (2, 1, 0)]


def test_flexible_chunks_even_the_loads_out() -> None:
    found = levels("reduce-scatter", (16, 200.0, 0.0), (8, 100.0, 0.0), (4, 50.0, 0.0))
    plan = greedy.themis_flex("reduce-scatter", found, plain_sizes(10**9, 64))
    sizes = {each for each, _ in plan}
    assert len(sizes) > 2 and max(sizes) == 10**9 // 64 and len(plan) <= 4 * 64


def platform(dims: list[tuple[str, int, float]], **keys: object) -> Platform:
    made = tuple(
        Dimension(f"d{i}", topology, n, rate, 500.0, Port(rate, rate))  # type: ignore[arg-type]
        for i, (topology, n, rate) in enumerate(dims)
    )
    return Platform(made, collectives=Collectives(**keys))  # type: ignore[arg-type]


@st.composite
def spaces(draw: st.DrawFn) -> tuple[Platform, str, int]:
    """Return a machine of two to four dimensions, an operation and bytes that do not divide evenly."""
    dims = draw(
        st.lists(
            st.tuples(
                st.sampled_from(["Ring", "Switch", "FullyConnected"]),
                st.sampled_from([2, 3, 4, 8]),
                st.sampled_from([10.0, 40.0, 75.0, 33.3]),
            ),
            min_size=2,
            max_size=4,
        )
    )
    chunks, within = draw(st.sampled_from([1, 6, 16])), draw(st.sampled_from(WITHIN))
    machine = platform(dims, chunks=chunks, within_dimension=within)
    if draw(st.booleans()):
        machine = replace(machine, npu=Npu(memory=LocalMemory(300.0)))
    if draw(st.booleans()):
        auto = ("auto",) * len(dims)
        algorithms = {"all-reduce": auto, "all-gather": auto}
        machine = replace(machine, collectives=replace(machine.collectives, algorithms=algorithms))
    return machine, draw(st.sampled_from(SCHEDULABLE)), draw(st.sampled_from([777, 9_600_001, 10**9]))


def simulated(machine: Platform, operation: str, size: int, how: str) -> int:
    graph = GraphBuilder()
    graph.collective("c", KINDS[operation], size)
    machine = replace(machine, collectives=replace(machine.collectives, chunk_order=how))
    return armillary.simulate(Trace.replicate(graph.graph(), machine.npus), machine).total_ticks


@settings(deadline=None, max_examples=40)
@given(spaces(), st.sampled_from([*GREEDY, "online-greedy"]))
def test_a_plan_alone_takes_as_long_as_its_simulation(space: tuple[Platform, str, int], how: str) -> None:
    machine, operation, size = space
    n, chunks, within = (
        len(machine.dimensions),
        machine.collectives.chunks,
        machine.collectives.within_dimension,
    )
    job, everyone = CollectiveCall(0, operation, size, None), Communicator(0, np.arange(machine.npus), True)
    costs = costs_of(job, everyone, machine)
    found = levels_of(costs, size, chunks)
    if how == "online-greedy" and operation != "all-gather":
        plan = online_greedy(operation, n, plain_sizes(size, chunks), within, costs)
    else:
        how = "baseline" if how == "online-greedy" else how
        plan = chunks_for(how, within, operation, found, size, chunks, costs)
    total = simulated(machine, operation, size, how)
    assert total == Alone(n, within, costs).time(plan)
    assert least_time(operation, found, size) <= total + 1


@settings(deadline=None, max_examples=12)
@given(spaces())
def test_no_scheduler_is_better_than_optimal_where_both_are_simulated(
    space: tuple[Platform, str, int],
) -> None:
    times = {how: simulated(*space, how) for how in CHUNK_ORDERS.built_in}
    assert times["optimal"] == min(times.values())
    if space[1] != "all-to-all":
        assert times["auto"] == min(times["baseline"], times["themis"])


def test_equal_volumes_of_other_orders_are_a_tie() -> None:
    """Conv-3D, 1 GB, smallest first: times of 1/16 of 1/8 and of 1/8 of 1/16 must not differ by rounding."""
    machine = platform(
        [("Ring", 16, 200.0), ("FullyConnected", 8, 100.0), ("Switch", 4, 50.0)],
        chunks=64,
        within_dimension="smallest-first",
    )
    times = {how: simulated(machine, "all-reduce", 10**9, how) for how in ("themis", "optimal")}
    assert times["optimal"] < times["themis"]


@settings(deadline=None, max_examples=25)
@given(machines(least=2), st.sampled_from(WITHIN), st.integers(1, 6))
def test_the_search_is_never_worse_than_the_greedy_and_never_better_than_the_bound(
    machine: tuple[str, list[Level]], within: str, chunks: int
) -> None:
    operation, found = machine
    sizes = plain_sizes(6_000, chunks)
    best = search(
        operation, found, sizes, within, Rounded(operation, tuple(found)), tries=60, mode="interpreted"
    )
    alone = alone_on(operation, found, within)
    assert best.time == alone.time(best.chunks)
    assert best.time <= min(alone.time(plan(operation, found, sizes)) for plan in GREEDY.values())
    assert sum(size for size, _ in best.chunks) == 6_000
    assert best.time >= int(least_time(operation, found, 6_000))


def test_the_search_finds_the_best_of_all_plans_of_three_chunks() -> None:
    found = levels("reduce-scatter", (4, 2.0, 3.0), (2, 1.0, 7.0))
    alone = alone_on("reduce-scatter", found, "fifo")
    orders = list(permutations(range(2)))
    every = min(alone.time([(100, o) for o in chosen]) for chosen in product(orders, repeat=3))
    costs = Rounded("reduce-scatter", tuple(found))
    assert (
        search("reduce-scatter", found, [100] * 3, "fifo", costs, tries=400, mode="interpreted").time <= every
    )


@pytest.mark.parametrize("within", WITHIN)
def test_both_kernels_time_alike(within: str) -> None:
    found = levels("all-reduce", (4, 2.0, 3.0), (2, 1.0, 7.0), (3, 0.5, 1.0))
    plan = greedy.themis_flex("all-reduce", found, [1000] * 12)
    times = {alone_on("all-reduce", found, within, mode).time(plan) for mode in ("interpreted", "compiled")}
    assert len(times) == 1


def test_auto_is_the_better_of_baseline_and_themis() -> None:
    """Of an all-reduce of 24 bytes latency is all: Themis that spreads it loses nothing; of 1 GB it wins."""
    found = levels("all-reduce", (16, 200.0, 500.0), (8, 100.0, 500.0), (4, 50.0, 500.0))
    for size in (24, 10**9):
        plans = {
            how: chunks_for(how, "fifo", "all-reduce", found, size, 8, Rounded("all-reduce", tuple(found)))
            for how in ("baseline", "themis", "auto")
        }
        alone = alone_on("all-reduce", found, "fifo")
        times = {how: alone.time(plan) for how, plan in plans.items()}
        assert times["auto"] == min(times["baseline"], times["themis"])
