"""Schedules against a list scheduler: bubbles of the textbooks, no deadlock, activations in flight."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.workload.pipeline.tasks import SCHEDULES, Task, in_flight, tasks, weight_versions

UNIT = {"F": 1, "B": 2, "W": 0}
SPLIT = {"F": 1, "B": 1, "W": 1}

# Of the other see test_dualpipe.py.
FROM_ONE_END = tuple(each for each in SCHEDULES if each != "dualpipe")


def finish_times(order: list[list[Task]], virtual: int, cost: dict[str, int]) -> list[dict[Task, int]]:
    """Run every rank's tasks as soon as it is free and their inputs are there, with free communication."""
    stages = len(order)
    deepest = stages * virtual - 1
    done: list[dict[Task, int]] = [{} for _ in order]
    clock = [0] * stages

    def inputs(rank: int, task: Task) -> list[tuple[int, Task]]:
        place = task.chunk * stages + rank
        if task.kind == "W":
            return [(rank, task._replace(kind="B"))]
        if task.kind == "F":
            before = [] if place == 0 else [place - 1]
            return [(p % stages, Task("F", task.microbatch, p // stages)) for p in before]
        own = [(rank, task._replace(kind="F"))]
        after = [] if place == deepest else [place + 1]
        return own + [(p % stages, Task("B", task.microbatch, p // stages)) for p in after]

    moved = True
    while moved:
        moved = False
        for rank, mine in enumerate(order):
            while len(done[rank]) < len(mine):
                task = mine[len(done[rank])]
                if any(need not in done[at] for at, need in inputs(rank, task)):
                    break
                ready = max((done[at][need] for at, need in inputs(rank, task)), default=0)
                clock[rank] = max(clock[rank], ready) + cost[task.kind]
                done[rank][task] = clock[rank]
                moved = True
    assert [len(each) for each in done] == [len(mine) for mine in order], "deadlock"
    return done


def idle(schedule: str, p: int, v: int, m: int, cost: dict[str, int]) -> Fraction:
    """Return the share of time in which the first rank does nothing; chunks are a v-th of a stage."""
    order = tasks(schedule, p, v, m)
    total = max(max(each.values()) for each in finish_times(order, v, cost))
    busy = {sum(cost[task.kind] for task in mine) for mine in order}
    assert len(busy) == 1
    return Fraction(total - busy.pop(), total)


sizes = st.tuples(st.integers(1, 6), st.integers(1, 4), st.integers(1, 12))


@given(sizes)
def test_textbook_bubbles(size):
    """Megatron-LM (arXiv 2104.04473, §2.2): (p-1)/m of the work, divided by v if interleaved."""
    p, v, m = size
    for schedule in ("gpipe", "1f1b", "pipedream"):
        assert idle(schedule, p, 1, m, UNIT) == Fraction(p - 1, m + p - 1)
    assert idle("interleaved", p, v, m * p, UNIT) == Fraction(p - 1, v * m * p + p - 1)


@given(sizes)
def test_zero_bubble_leaves_a_third_of_the_bubble(size):
    """(p-1)(F + B - W), against (p-1)(F + B + W) of 1F1B (arXiv 2401.10241, Table 1)."""
    p, _, m = size
    m += 2 * p
    assert idle("zero-bubble", p, 1, m, SPLIT) == Fraction(p - 1, 3 * m + p - 1)


@given(st.sampled_from(FROM_ONE_END), sizes)
def test_everything_is_done_once_and_in_order(schedule, size):
    p, v, m = size
    v, m = (v, m * p) if schedule == "interleaved" else (1, m)
    order = tasks(schedule, p, v, m)
    done = finish_times(order, v, SPLIT)
    kinds = ("F", "B", "W") if schedule == "zero-bubble" else ("F", "B")
    wanted = Counter(Task(kind, i, chunk) for kind in kinds for i in range(m) for chunk in range(v))
    for mine in order:
        assert Counter(mine) == wanted
    for times in done:
        for i in range(m):
            for chunk in range(v):
                own = [times[Task(kind, i, chunk)] for kind in kinds]
                assert own == sorted(own)


@given(st.sampled_from(FROM_ONE_END), sizes)
def test_peaks_in_flight(schedule, size):
    p, v, m = size
    v, m = (v, m * p) if schedule == "interleaved" else (1, m)
    for stage, mine in enumerate(tasks(schedule, p, v, m)):
        held = in_flight(mine, v)
        assert held.shape == (len(mine), v) and (held[-1] == 0).all() and held.min() >= 0
        peak = {
            "gpipe": m,
            "1f1b": min(p - stage, m),
            "pipedream": min(p - stage, m),
            "interleaved": min(2 * (p - stage - 1) + (v - 1) * p + 1, m * v),
            "zero-bubble": min(p, m),
        }[schedule]
        assert held.sum(axis=1).max() == peak
        assert weight_versions(schedule, p, stage, m) == (peak if schedule == "pipedream" else 1)


def test_orders_by_hand():
    """Two stages: Megatron's interleaving of two chunks; ZB-H1 defers W by one on the last stage."""

    def text(schedule, virtual, microbatches):
        found = tasks(schedule, 2, virtual, microbatches)
        return [" ".join(f"{k}{i}{'ab'[c]}" for k, i, c in mine) for mine in found]

    assert text("interleaved", 2, 2) == [
        "F0a F1a F0b F1b B0b B1b B0a B1a",
        "F0a F1a F0b B0b F1b B1b B0a B1a",
    ]
    assert text("zero-bubble", 1, 3) == [
        "F0a F1a B0a W0a F2a B1a W1a B2a W2a",
        "F0a B0a F1a B1a W0a F2a B2a W1a W2a",
    ]


@pytest.mark.parametrize(
    ("given_", "text"),
    [
        (("1f2b", 2, 1, 4), r"schedule '1f2b': expected one of .*did you mean '1f1b'"),
        (("gpipe", 2, 2, 4), "virtual 2: schedule gpipe has none"),
        (("interleaved", 4, 2, 6), r"6 microbatches: .* multiple of pp 4 \(nearest: 4\)"),
        (("interleaved", 4, 2, 7), r"nearest: 8"),
        (("interleaved", 4, 2, 1), r"nearest: 4"),
    ],
)
def test_impossible_schedules(given_, text):
    with pytest.raises(InputError, match=text):
        tasks(*given_)
