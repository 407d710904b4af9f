"""Waiting is told from communication where the other rank is known, and still adds up."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.report import breakdown, waited_for
from armillary.report.critical import NEEDS_ALL, Late


def test_the_example(timeline):
    late = Late(timeline)
    assert [breakdown(timeline, cls, late).waiting for cls in range(3)] == [100, 0, 360]
    assert waited_for(timeline, 2) == [(1, 360)]
    assert waited_for(timeline, 1) == []


def two(early, late):
    compute = {"kind": "compute", "start": 0, "end": late["start"]}
    return [{"nodes": [early]}, {"nodes": [compute, late | {"parents": [0]}]}]


def member(start, end, label="all-reduce", **more):
    return {"kind": "collective", "label": label, "size": 8, "start": start, "end": end} | more


def test_groups_and_operations(build):
    def wait(label):
        return breakdown(build(two(member(0, 50, label), member(20, 50, label))), 0).waiting

    assert wait("all-reduce@2") == wait("barrier") == wait("reduce-scatter-block") == 20
    assert wait("broadcast") == wait("gather@1") == 0  # a root may leave before the others come
    wrong = build(two(member(0, 10), member(20, 50)))
    assert breakdown(wrong, 0).communication == 10  # ended before the other began: not the same one


def test_compute_hides_waiting(build):
    first = [member(0, 50), {"kind": "compute", "start": 5, "end": 15}]
    made = build([{"nodes": first}, *two(member(0, 50), member(20, 50))[1:]])
    assert breakdown(made, 0).parts() == {
        "compute": 10, "cpu": 0, "communication": 30, "waiting": 10, "memory": 0, "idle": 0}  # fmt: skip
    assert breakdown(made, 0).communication_hidden == 10
    assert waited_for(made, 0) == [(1, 10)]


def message(kind, start, end, peer, size=8):
    return {"kind": kind, "start": start, "end": end, "peer": peer, "size": size}


def test_a_receive_waits_for_its_send(build):
    receives = [message("recv", 0, 60, 2), message("recv", 0, 90, 2)]
    sends = [message("send", 30, 60, 0), message("send", 80, 90, 0)]
    made = build([{"nodes": receives}, {"nodes": sends}], rank_class=[0, 0, 1, 1])
    # The first message is in flight from 30 to 60, the second from 80 to 90.
    assert breakdown(made, 0).parts()["waiting"] == 30 + 20
    assert waited_for(made, 0) == [(1, 50)]
    unknown = build([{"nodes": [message("recv", 0, 60, -1)]}, {"nodes": sends}])
    assert breakdown(unknown, 0).communication == 60
    fewer = build([{"nodes": receives[:1]}, {"nodes": sends}], rank_class=[0, 0, 1, 1])
    assert breakdown(fewer, 0).communication == 60
    several = [message("send", 30, 60, 0), message("send", 80, 90, 1)]
    assert (
        breakdown(build([{"nodes": receives}, {"nodes": several}], rank_class=[0, 0, 1, 1]), 0).waiting == 0
    )


def test_ranks_of_a_class_wait_for_each_other(build):
    nodes = [message("recv", 0, 60, 2), message("send", 40, 60, 1)]
    made = build([{"nodes": nodes}], rank_class=[0, 0, 0])
    # The receive waited until 40 with nothing else open.
    assert breakdown(made, 0).parts()["waiting"] == 40
    assert waited_for(made, 0) == [(0, 40)]


classes = st.lists(
    st.lists(
        st.builds(
            lambda kind, label, start, length, peer: {
                "kind": kind, "label": label, "size": 8, "start": start, "end": start + length, "peer": peer
            },
            st.sampled_from(["collective", "send", "recv", "compute", "memory"]),
            st.sampled_from([*NEEDS_ALL[:2], "all-reduce@1", "broadcast"]),
            st.integers(-1, 30),
            st.integers(0, 20),
            st.integers(0, 2),
        ),
        max_size=8,
    ),
    min_size=3,
    max_size=3,
)  # fmt: skip


@settings(deadline=None)
@given(classes)
def test_it_adds_up_whatever_was_late(build, classes):
    made = build([{"nodes": nodes, "finish": 60} for nodes in classes])
    alone = [build([{"nodes": nodes, "finish": 60}], rank_class=[0, 0, 0]) for nodes in classes]
    for cls in range(3):
        found = breakdown(made, cls)
        assert sum(found.parts().values()) == 60
        assert min(found.parts().values()) >= 0
        assert sum(ticks for _, ticks in waited_for(made, cls, limit=99)) == found.waiting
        lone = breakdown(alone[cls], 0)
        assert found.communication + found.waiting == lone.communication + lone.waiting
        assert found.communication_hidden == lone.communication_hidden
