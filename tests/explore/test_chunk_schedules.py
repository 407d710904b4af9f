"""Comparing chunk schedulers, and its command."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from armillary.base.errors import InputError
from armillary.cli import main
from armillary.engine import simulate
from armillary.explore import chunk_schedules
from armillary.platform.model import Collectives, Platform
from armillary.platform.network import Dimension, Port
from armillary.trace import GraphBuilder, Trace

SQUARE = Platform(
    tuple(Dimension(name, "Switch", 8, 100.0, 500.0, Port(100.0, 100.0)) for name in ("inner", "outer")),
    collectives=Collectives(chunks=16),
)
FILE = """
platform:
  network:
    - {name: inner, topology: Switch, size: 8, bandwidth: 100 GB/s, latency: 500 ns}
    - {name: outer, topology: Switch, size: 8, bandwidth: 100 GB/s, latency: 500 ns}
  npu: {memory: {bandwidth: 100 TB/s}}
  collectives: {chunks: 16}
"""


def test_a_square_is_used_in_full_by_all_but_the_baseline() -> None:
    """The baseline moves 8 of 9 of all bytes in the inner dimension: at most 9/16 of both ports are used."""
    found = chunk_schedules.compare(SQUARE, "all-reduce", 100_000_000)
    assert 0.5 < found["baseline"].used <= 9 / 16
    assert all(found[how].used > 0.9 for how in found if how != "baseline")
    least = chunk_schedules.bound(SQUARE, "all-reduce", 100_000_000)
    assert least == pytest.approx(2 * 100_000_000 * (1 - 1 / 64) / 200)
    assert all(each.time >= least for each in found.values())
    assert min(each.time for each in found.values()) == found["optimal"].time
    assert found["auto"].time == min(found["baseline"].time, found["themis"].time)


def test_orders_are_named_by_their_dimensions() -> None:
    themis = chunk_schedules.under(SQUARE, "themis")
    assert sorted(chunk_schedules.orders(themis, "all-reduce", 1_600)) == [
        ("inner > outer", 8, 800),
        ("outer > inner", 8, 800),
    ]
    assert chunk_schedules.orders(SQUARE, "all-gather", 1_600) == [("outer > inner", 16, 1_600)]


def test_what_cannot_be_scheduled_is_refused() -> None:
    with pytest.raises(InputError, match="got 'broadcast', expected one of all-reduce"):
        chunk_schedules.scheduled(SQUARE, "broadcast", 100)
    with pytest.raises(InputError, match="one NPU"):
        chunk_schedules.scheduled(Platform((Dimension("d", "Switch", 1, 1.0, 0.0),)), "all-reduce", 100)


def test_online_greedy_refuses_more_levels_than_it_has_orders_for() -> None:
    dims = tuple(Dimension(f"d{i}", "Ring", 2, 1.0, 0.0) for i in range(7))
    deep = Platform(dims, collectives=Collectives(chunk_order="online-greedy"))
    with pytest.raises(InputError, match="online-greedy over 7 dimensions; expected at most 6"):
        chunk_schedules.scheduled(deep, "all-reduce", 100)
    themis = chunk_schedules.under(deep, "themis")
    assert chunk_schedules.scheduled(themis, "all-reduce", 100_000).time > 0


def test_any_grid_of_dimensions_is_scheduled_and_folds() -> None:
    """Groups that span two of three dimensions, of sizes that are no power of two."""
    sizes = (3, 5, 2)
    dims = tuple(
        Dimension(f"d{i}", "Ring", n, rate, 100.0, Port(rate, rate))
        for i, (n, rate) in enumerate(zip(sizes, (10.0, 20.0, 5.0), strict=True))
    )
    groups = {k + 1: tuple(r for r in range(30) if r // 15 == k) for k in range(2)}
    graphs = []
    for rank in range(30):
        graph = GraphBuilder(rank=rank)
        graph.all_reduce("c", 1_000_003, group=1 + rank // 15)
        graphs.append(graph.graph())
    trace = Trace.from_ranks(graphs)
    times = {}
    for how in ("baseline", "themis", "online-greedy"):
        platform = Platform(dims, collectives=Collectives(chunks=16, chunk_order=how), groups=groups)  # type: ignore[arg-type]
        times[how] = simulate(trace, platform).total_ticks
        assert times[how] == simulate(trace, platform, fold=False).total_ticks
    assert times["themis"] < times["baseline"] > times["online-greedy"]


def test_messages_follow_the_plan_too() -> None:
    graph = GraphBuilder()
    graph.all_reduce("c", 10_000_000)
    trace = Trace.replicate(graph.graph(), 64)
    times = {}
    for how in ("baseline", "themis", "online-greedy"):
        platform = replace(SQUARE, collectives=replace(SQUARE.collectives, chunk_order=how))  # type: ignore[arg-type]
        times[how] = simulate(trace, platform, network_model="congestion").total_ticks
    assert times["themis"] < 0.7 * times["baseline"] > times["online-greedy"]


def test_the_command_prints_times_and_orders(tmp_path: Path) -> None:
    (tmp_path / "square.yaml").write_text(FILE)
    path = str(tmp_path / "square.yaml")
    done = CliRunner().invoke(main, ["collective", "schedule", path, "--size", "100 MB", "--chunks", "8"])
    assert done.exit_code == 0, done.output
    assert "8 chunks, earliest-phase; no order beats 984.4 µs" in done.output
    assert "themis-flex" in done.output and "outer > inner" in done.output


@pytest.mark.parametrize("size", ["0", "1 parsec"])
def test_a_size_that_is_none_is_refused(tmp_path: Path, size: str) -> None:
    (tmp_path / "square.yaml").write_text(FILE)
    path = str(tmp_path / "square.yaml")
    done = CliRunner().invoke(main, ["collective", "schedule", path, "--size", size])
    assert done.exit_code == 2 and "--size" in done.output


def test_the_study_file_says_which_scheduler(tmp_path: Path) -> None:
    for order, right in (("themis", True), ("themes", False)):
        text = FILE.replace("chunks: 16", f"chunks: 16, chunk_order: {order}, within_dimension: fifo")
        (tmp_path / "a.yaml").write_text(text + "workload: {collective: all-reduce, size: 1 MB}\n")
        done = CliRunner().invoke(main, ["run", str(tmp_path / "a.yaml")])
        assert done.exit_code == (0 if right else 2), done.output
    assert "chunk_order" in done.output and "'themis'" in done.output
    (tmp_path / "a.yaml").write_text(
        text.replace("themes", "themis") + "workload: {collective: all-reduce, size: 1 MB}\n"
    )
    done = CliRunner().invoke(main, ["run", str(tmp_path / "a.yaml"), "--profile", "astra-sim"])
    assert done.exit_code == 2 and "chunk_order" in done.output


@pytest.mark.parametrize("how", ["auto", "optimal"])
def test_plans_of_very_many_chunks_are_refused(how: str) -> None:
    many = replace(SQUARE, collectives=replace(SQUARE.collectives, chunks=10**6))
    with pytest.raises(
        InputError, match=f"collectives: chunks: got 1000000, expected at most 2048 with chunk_order {how}"
    ):
        chunk_schedules.scheduled(chunk_schedules.under(many, how), "all-reduce", 10**9)
    with pytest.raises(InputError, match="with chunk_order optimal"):
        chunk_schedules.compare(many, "all-reduce", 10**9)
