"""Groups that only the threads of gloo tell apart."""

from __future__ import annotations

from armillary.convert.pytorch.job import convert_job
from armillary.convert.pytorch.process_groups import groups_of_threads
from tests.convert.pytorch.recording import Recording, tensor
from tests.convert.pytorch.test_process_groups import group, groups_of

ALL = {"0": (1,), "1": (0,), "2": (0,)}


def test_two_threads_for_each_group_in_the_order_of_the_groups() -> None:
    found = groups_of_threads({8: ALL, 9: ALL, 15: {"2": (0,)}, 16: ALL}, ["0", "1", "2"])
    assert found == {8: "0", 9: "0", 15: "2", 16: "2"}
    assert groups_of_threads({8: {"1": (0,)}, 9: ALL, 30: ALL}, ["0", "1", "2"])[30] == "2"


def test_nothing_where_no_assignment_fits() -> None:
    assert groups_of_threads({8: {"2": (0,)}, 9: {"1": (0,)}}, ["0", "1", "2"]) == {}
    assert groups_of_threads({at: {"1": (0,)} for at in range(3)}, ["0", "1", "2"]) == {}
    assert groups_of_threads({8: {}}, ["0"]) == {}
    assert groups_of_threads({}, []) == {}


def rank(number: int) -> Recording:
    """Return a reduction over all, one over the rank's pair, and one over ranks 1 and 2; none says which."""
    pair = [number % 2, number % 2 + 2]
    groups = [group("0", [0, 1, 2, 3], "default_pg"), group(str(1 + number % 2), pair)]
    rec = Recording(rank=number, world=4, groups=groups)
    threads = [90, 92]
    if number in (1, 2):
        groups.append(group("3", [1, 2]))
        threads.append(95)
    for at, tid in enumerate(threads):
        inputs = ([tensor(at, 1000)], "<Object>", "<Object>", "<None>", False, -1)
        rec.op("c10d::allreduce_", 1000 * at, 1000 * at + 900, inputs=inputs)
        rec.gloo("gloo:all_reduce", 1000 * at + 10, 1000 * at + 20, 1000 * at + 800, tid=tid)
    return rec


def test_groups_of_a_job() -> None:
    converted = convert_job([rank(number).linked() for number in range(4)])
    assert [groups_of(converted, at) for at in range(4)] == [
        [None, (0, 2)],
        [None, (1, 3), (1, 2)],
        [None, (0, 2), (1, 2)],
        [None, (1, 3)],
    ]


def test_messages_are_done_by_the_thread_that_sends_them() -> None:
    rec = Recording(rank=0, world=2, groups=[group("0", [0, 1], "default_pg"), group("1", [1, 0])])
    for at in range(2):
        inputs = ([tensor(at, 1000)], "<Object>", 1, 0)
        rec.op("c10d::send", 2000 * at, 2000 * at + 900, inputs=inputs)
        rec.gloo("gloo:send", 2000 * at + 10, 2000 * at + 20, 2000 * at + 800, tid=1)
        rec.op(
            "c10d::barrier",
            2000 * at + 1000,
            2000 * at + 1900,
            inputs=(tensor(9, 1, 1), "<Object>", [], False, -1),
        )
        rec.gloo("gloo:barrier", 2000 * at + 1010, 2000 * at + 1020, 2000 * at + 1800, tid=90 + at)
    converted = convert_job([rec.linked(), rec.linked()])
    assert converted.groups == {}, "the default group is the likelier one for barriers"
