"""Phases of multi-dimensional collectives, their sizes and their queues."""

from __future__ import annotations

import pytest

from armillary.base.errors import InputError
from armillary.engine.astra_sim.collective import Phase, next_size, plan, queue_cycle
from armillary.platform.collectives import Algorithm

RING = Algorithm("ring")
THREE = [RING, Algorithm("direct", 2), Algorithm("halvingDoubling")]


def brief(phases: tuple[Phase, ...]) -> list[tuple[int, str, str]]:
    return [(p.dim, p.operation, p.family) for p in phases]


@pytest.mark.parametrize("optimization", ["baseline", "localBWAware"])
def test_one_phase_per_dimension(optimization: str) -> None:
    for operation in ("reduce-scatter", "all-to-all"):
        phases = plan(operation, THREE, (2, 3, 4), optimization)
        assert brief(phases) == [(d, operation, "all") for d in (0, 1, 2)]
    assert brief(plan("all-gather", THREE, (2, 3, 4), optimization)) == [
        (d, "all-gather", "all") for d in (2, 1, 0)
    ]
    assert plan("all-reduce", THREE, (2, 3, 4))[1] == Phase(1, 1, 3, "all-reduce", "direct", 2, "all")


def test_local_bandwidth_aware_all_reduce() -> None:
    phases = plan("all-reduce", THREE, (2, 3, 4), "localBWAware")
    assert brief(phases) == [
        (0, "reduce-scatter", "first"),
        (1, "reduce-scatter", "first"),
        (2, "all-reduce", "first"),
        (1, "all-gather", "last"),
        (0, "all-gather", "last"),
    ]
    assert brief(plan("all-reduce", [RING], (4,), "localBWAware")) == [(0, "all-reduce", "first")]


def test_unused_dimensions_are_left_out() -> None:
    phases = plan("all-reduce", [RING] * 4, (2, 1, 4, 8), "localBWAware", (True, True, True, False))
    assert brief(phases) == [
        (0, "reduce-scatter", "first"),
        (2, "all-reduce", "first"),
        (0, "all-gather", "last"),
    ]
    assert plan("all-reduce", [RING], (4,), involved=(False,)) == ()
    assert brief(plan("all-gather", [RING] * 2, (2, 4), involved=(True,))) == [(0, "all-gather", "all")]
    assert brief(plan("all-gather", [RING], (2, 4))) == [(0, "all-gather", "all")]


def test_one_algorithm_over_all_npus_ends_the_list() -> None:
    one = Algorithm("oneDirect", 3)
    assert plan("all-reduce", [one], (2, 4)) == (Phase(-1, 0, 8, "all-reduce", "direct", 3),)
    assert plan("all-reduce", [RING, one], (2, 4))[1] == Phase(-1, 1, 8, "all-reduce", "direct", 3)
    assert len(plan("all-reduce", [one, RING], (2, 4))) == 1


@pytest.mark.parametrize("count", [0, 3])
def test_wrong_number_of_algorithms(count: int) -> None:
    with pytest.raises(InputError, match=rf"{count} algorithm\(s\) for 2 network dimension"):
        plan("all-reduce", [RING] * count, (2, 4))


def test_sizes_of_the_next_phase() -> None:
    assert next_size("reduce-scatter", 1003, 8) == 125
    assert next_size("all-gather", 125, 8) == 1000
    assert next_size("all-reduce", 1003, 8) == next_size("all-to-all", 1003, 8) == 1003
    assert next_size("reduce-scatter", 1003, 8, "doubleBinaryTree") == 1003


def test_queues() -> None:
    assert {family: queue_cycle(family, 1) for family in ("all", "first", "last")} == {
        "all": ((0, False),),
        "first": ((0, False),),
        "last": ((0, True),),
    }
    assert queue_cycle("all", 3) == ((0, False), (1, True), (2, True))
    assert queue_cycle("first", 4) == ((0, False), (1, False))
    assert queue_cycle("last", 4) == ((2, True), (3, True))
