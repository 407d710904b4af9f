"""Steps wait for what they waited for: replayed, threads end when they did, and every kernel runs as long as it did."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.convert.pytorch.rank import Rank, build
from armillary.convert.pytorch.steps import APART, SHORT, Step
from tests.convert.pytorch.recording import Recording

US = 1000
CPU = ("cpu", "part", "host", "gap", "call")
Spans = list[tuple[int, int]]


def replay(rank: Rank) -> dict[int, int]:
    """Return when each step ends if it starts as soon as all that it waits for has ended."""
    ends: dict[int, int] = {}
    for step in rank.steps:
        assert all(id(wait) in ends for wait in step.waits), f"{step.name} comes before what it waits for"
        assert step.end >= step.begin
        ends[id(step)] = max((ends[id(wait)] for wait in step.waits), default=0) + step.end - step.begin
    return ends


def check_exact(rank: Rank) -> None:
    ends = replay(rank)
    for step in rank.steps:
        if step.kind in CPU:
            assert ends[id(step)] == step.end - rank.start, f"{step.name} at {step.end - rank.start}"


def named(rank: Rank, name: str) -> Step:
    return next(step for step in rank.steps if step.name == name and step.kind != "part")


def nested(low: int, high: int) -> st.SearchStrategy[Spans]:
    """Spans in µs within a stretch of time; any may lie inside others."""
    pairs = st.tuples(st.integers(low, high), st.integers(low, high)).map(lambda p: (min(p), max(p)))
    return st.lists(pairs, max_size=10)


@st.composite
def recordings(draw: st.DrawFn, other_threads: int = 2) -> Recording:
    """One rank: a step on thread 1 with operators inside, and operators on other threads at any time in it."""
    rec = Recording()
    length = draw(st.integers(50, 3000)) * US
    rec.op("ProfilerStep#1", 0, length, annotation=True)
    for tid in range(1, 2 + draw(st.integers(0, other_threads))):
        for at, (start, end) in enumerate(draw(nested(0, length // US))):
            rec.op(f"t{tid}_{at}", start * US, end * US, tid=tid)
    return rec


@given(recordings(other_threads=0))
def test_one_thread_ends_when_it_did(rec: Recording) -> None:
    rank = build(rec.linked())
    check_exact(rank)
    assert sum(step.end - step.begin for step in rank.steps) == rank.end - rank.start
    assert Counter(step.name for step in rank.steps if step.kind == "cpu") == Counter(
        op.name for op in rec.ops
    )


@given(recordings())
def test_all_threads_end_when_they_did(rec: Recording) -> None:
    rank = build(rec.linked())
    check_exact(rank)
    assert Counter(step.name for step in rank.steps if step.kind == "cpu") == Counter(
        op.name for op in rec.ops
    )


@st.composite
def with_kernels(draw: st.DrawFn) -> Recording:
    """The same with launches, kernels on two streams in order, and calls that wait for them."""
    rec = draw(recordings(other_threads=1))
    length = rec.ops[0].end
    ready = {7: 0, 20: 0}
    times = sorted(draw(st.lists(st.integers(1, length // US - 5), max_size=8, unique=True)))
    for at in times:
        start = at * US
        if draw(st.integers(0, 3)) == 0:
            until = max([start + US, *ready.values()])
            if until < length:
                rec.call("cudaDeviceSynchronize", start, until)
            continue
        stream = draw(st.sampled_from([7, 20]))
        begin = max(ready[stream], start + draw(st.integers(1, 40)) * US)
        ready[stream] = begin + draw(st.integers(1, 200)) * US
        rec.launch(start, start + US // 2, (begin, ready[stream]), stream=stream, name=f"k{at}")
    return rec


@given(with_kernels())
def test_no_step_ends_later_than_measured(rec: Recording) -> None:
    """But for those that found room on a full device while another kernel drained: they wait for all of that one."""
    rank = build(rec.linked())
    ends = replay(rank)
    kernels = [step for step in rank.steps if step.kind == "kernel"]
    drained = sum(max([0, *(wait.end - step.begin for wait in step.waits)]) for step in kernels)
    assert all(ends[id(step)] <= step.end - rank.start + drained for step in rank.steps)


@given(with_kernels())
def test_kernels_run_as_long_as_they_did_and_in_the_order_of_their_streams(rec: Recording) -> None:
    rank = build(rec.linked())
    busy: Counter[Any] = Counter()
    last: dict[int, Step] = {}
    for step in rank.steps:
        if step.kind == "kernel":
            busy[step.track, step.name] += step.end - step.begin
            assert step.track not in last or last[step.track] in step.waits
            last[step.track] = step
    measured = {
        (event["args"]["stream"], event["name"]): round(event["dur"] * US)
        for event in rec.events
        if event["cat"] == "kernel"
    }
    assert busy == measured


def test_an_operators_time_after_its_children_is_a_step_of_its_own_if_it_is_long() -> None:
    rec = Recording()
    rec.op("outer", 0, 10 * SHORT)
    rec.op("inner", SHORT, 2 * SHORT)
    rec.op("next", 10 * SHORT + 5, 10 * SHORT + 10)
    rank = build(rec.linked())
    assert [
        (step.name, step.kind, step.begin - rank.start, step.end - rank.start) for step in rank.steps
    ] == [
        ("outer", "cpu", 0, SHORT),
        ("inner", "cpu", SHORT, 2 * SHORT),
        ("outer", "part", 2 * SHORT, 10 * SHORT),
        ("next", "cpu", 10 * SHORT, 10 * SHORT + 10),
    ]


def test_time_without_record_is_of_the_host_where_it_is_long_and_nothing_ends_in_it() -> None:
    rec = Recording()
    rec.op("a", 0, 10)
    rec.op("b", 10 + SHORT, 20 + SHORT)
    assert [step.kind for step in build(rec.linked()).steps] == ["cpu", "host", "cpu"]


@pytest.mark.parametrize(("end", "kinds"), [(100, ["gap", "host"]), (350, ["gap"])])
def test_time_without_record_is_a_gap_until_the_last_end_that_it_can_be_a_wait_for(
    end: int, kinds: list[str]
) -> None:
    rec = Recording()
    rec.op("a", 0, 50 * US)
    rec.launch(10 * US, 20 * US, (30 * US, end * US))
    rec.op("b", 400 * US, 420 * US)
    steps = build(rec.linked()).steps
    assert [step.kind for step in steps if step.kind in ("gap", "host")] == kinds


BACKWARD = "autograd::engine::evaluate_function: AddBackward0"


def forked(**more: Any) -> Recording:
    """The main thread waits without record while another one runs backwards."""
    rec = Recording()
    rec.op("forward", 0, 400 * US)
    rec.op(BACKWARD, 500 * US, 900 * US, tid=2)
    rec.op("aten::mul", 600 * US, 700 * US, tid=2)
    rec.op("optimizer", 950 * US, 1000 * US, **more)
    return rec


def test_fork_and_join_of_two_threads() -> None:
    rank = build(forked().linked())
    check_exact(rank)
    backward, optimizer = named(rank, BACKWARD), named(rank, "optimizer")
    assert any(wait.track == 1 for wait in backward.waits), "forked by the main thread"
    before = {id(wait) for wait in optimizer.waits}
    gaps = [step for step in rank.steps if id(step) in before]
    reached = [wait for step in (*gaps, optimizer) for wait in step.waits]
    assert any(wait.track == 2 for wait in reached), "joined by it"
    gap = sum(step.end - step.begin for step in rank.steps if step.kind == "gap")
    assert gap < 200 * US, "the time in which it waited is no gap"


def test_a_faster_backward_lets_the_main_thread_go_on_earlier() -> None:
    rank = build(forked().linked())
    named(rank, "aten::mul").begin += 90 * US
    assert replay(rank)[id(named(rank, "optimizer"))] == 910 * US


def test_a_thread_that_starts_when_no_other_is_at_work_follows_the_last_one() -> None:
    rec = Recording()
    rec.op("forward", 0, 400 * US)
    rec.op(BACKWARD, 500 * US, 900 * US, tid=2)
    rank = build(rec.linked())
    check_exact(rank)
    assert max(replay(rank).values()) == 900 * US


@pytest.mark.parametrize("pause", [APART // 2, 3 * APART])
def test_a_pause_of_a_worker_is_a_wait_for_the_main_thread(pause: int) -> None:
    rec = Recording()
    rec.op("step", 0, 10 * APART, annotation=True)
    rec.op("first", APART, 2 * APART, tid=2)
    rec.op("second", 2 * APART + pause, 4 * APART + pause, tid=2)
    rank = build(rec.linked())
    check_exact(rank)
    second = named(rank, "second")
    assert any(wait.track == 1 for wait in second.waits) == (pause > APART)
