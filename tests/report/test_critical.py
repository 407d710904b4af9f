"""The critical path covers the run without a gap and follows the ranks that were late."""

from __future__ import annotations

import gc
import weakref

from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.report.critical import Late, contributors, critical_path, shares


def walk(timeline, cls):
    names = []
    for step in critical_path(timeline, cls):
        name = str(timeline.table(step.cls).name[step.node]) if step.node >= 0 else "-"
        names.append((step.cls, name, step.start, step.end, step.why))
    return names


def test_it_crosses_to_the_rank_that_entered_last(timeline):
    # Class 1 entered the all-reduce at 400, after a receive of what class 0 sent from tick 100.
    assert walk(timeline, 2) == [
        (0, "forward", 0, 100, "first"),
        (1, "activations", 100, 180, "late send"),
        (1, "forward", 180, 400, "dependency"),
        (2, "gradients", 400, 620, "late rank"),
        (2, "metrics", 620, 650, "dependency"),
    ]
    steps = critical_path(timeline, 2)
    assert shares(timeline, steps) == {
        "compute": 320, "cpu": 0, "communication": 330, "memory": 0, "waiting": 0}  # fmt: skip
    assert contributors(timeline, steps, 2) == [("forward", 320, 2), ("gradients all-reduce", 220, 1)]


def test_a_gap_is_waiting(timeline):
    assert walk(timeline, 1)[-2:] == [
        (1, "-", 620, 650, "waiting"),
        (1, "checkpoint", 650, 700, "dependency"),
    ]


def test_a_busy_slot_holds_up(build):
    nodes = [
        {"kind": "compute", "name": "a", "start": 0, "end": 10},
        {"kind": "compute", "name": "b", "start": 10, "end": 30},
        {"kind": "cpu", "name": "c", "start": 10, "end": 20, "parents": [0]},
        {"kind": "compute", "name": "zero", "start": 30, "end": 30, "parents": [2]},
    ]
    made = build([{"nodes": nodes, "finish": 35}])
    assert walk(made, 0) == [
        (0, "a", 0, 10, "first"),
        (0, "b", 10, 30, "slot"),
        (0, "-", 30, 35, "waiting"),
    ]


def test_two_sends_that_may_be_the_one_are_not_followed(build):
    recv = {"nodes": [{"kind": "recv", "size": 8, "start": 0, "end": 50}]}
    send = {"nodes": [{"kind": "send", "size": 8, "start": 20, "end": 50}]}
    assert [s.why for s in critical_path(build([recv, send]), 0)] == ["waiting", "late send"]
    assert [s.why for s in critical_path(build([recv, send, send]), 0)] == ["first"]


def test_groups_are_followed_only_if_nothing_was_folded(build):
    early = {"nodes": [{"kind": "collective", "label": "all-reduce@2", "start": 0, "end": 50}]}
    late = {"nodes": [{"kind": "compute", "start": 0, "end": 20},
                      {"kind": "collective", "label": "all-reduce@2", "start": 20, "end": 50,
                       "parents": [0]}]}  # fmt: skip
    assert [s.cls for s in critical_path(build([early, late]), 0)] == [0]
    assert [s.cls for s in critical_path(build([early, late], folded=False), 0)] == [1, 0]


def test_an_empty_graph_has_no_path(empty):
    assert critical_path(empty, 0) == []
    assert set(shares(empty, []).values()) == {0}


@st.composite
def classes(draw):
    """Random nodes whose parents come earlier in the graph; times need not make sense."""
    result = []
    for _ in range(draw(st.integers(1, 3))):
        nodes = []
        for i in range(draw(st.integers(0, 8))):
            parents = draw(st.lists(st.integers(0, i - 1), unique=True, max_size=3)) if i else []
            ready = max((nodes[p]["end"] for p in parents), default=0)
            start = ready + draw(st.integers(0, 5))
            kind = draw(st.sampled_from(["compute", "cpu", "collective", "send", "recv", "memory", "none"]))
            label = "all-reduce" if kind == "collective" else ""
            nodes.append({"kind": kind, "label": label, "start": start, "parents": parents,
                          "end": start + draw(st.integers(0, 6)), "size": 1})  # fmt: skip
        result.append({"nodes": nodes})
    return result


@settings(deadline=None)
@given(classes())
def test_the_steps_cover_the_run(build, classes):
    made = build(classes)
    for cls in range(len(classes)):
        steps = critical_path(made, cls)
        edges = [0, *(step.end for step in steps)]
        assert [step.start for step in steps] == edges[:-1]
        assert edges[-1] == made.finish[cls] == sum(shares(made, steps).values())


def test_work_grows_with_the_length_of_a_chain(build, lines):
    def work(n):
        nodes = [
            {"kind": "compute", "start": i, "end": i + 1, "parents": [i - 1] if i else []} for i in range(n)
        ]
        made = build([{"nodes": nodes}])
        assert len(critical_path(made, 0)) == n
        return lines(lambda: critical_path(made, 0))

    assert work(20_000) < 2.5 * work(10_000)


def test_who_is_late_holds_no_run(build):
    """A search looks at thousands of runs, whose arrays would stay until Python looks for cycles."""
    recv = {"nodes": [{"kind": "recv", "size": 8, "start": 0, "end": 50}]}
    send = {"nodes": [{"kind": "send", "size": 8, "start": 20, "end": 50}]}
    timeline = build([recv, send])
    late, gone = Late(timeline), weakref.ref(timeline)
    for cls in range(len(timeline.finish)):
        late.waits(cls)
    gc.disable()
    try:
        del timeline, late
        assert gone() is None
    finally:
        gc.enable()
