"""Operators that PyTorch recorded inside the one before them."""

from __future__ import annotations

import pytest

from armillary.convert import report
from armillary.convert.pytorch.job import convert_job
from armillary.convert.pytorch.link import Linked
from armillary.convert.pytorch.parents import mend_parents
from tests.convert.pytorch.recording import Recording, tensor

NAMES = ["Optimizer.step", "c10d::broadcast_", "c10d::broadcast_", "c10d::broadcast_"]


def broadcasts() -> Linked:
    """Return three broadcasts in an optimizer; the host trace has each of them inside the one before."""
    rec = Recording(rank=0, world=2)
    rec.op(NAMES[0], 0, 10_000)
    for at in (1000, 3000, 5000):
        inputs = ([tensor(at, 1000)], "<Object>", 0, 0, True, -1)
        rec.op(NAMES[1], at, at + 1000, inputs=inputs)
    linked = rec.linked()
    ours = [node for node in linked.host.nodes if not node.is_structure]
    for node, before in zip(ours[2:], ours[1:], strict=False):
        node.parent = before.id
    return linked


def test_what_began_after_its_parent_had_ended_goes_to_the_one_around_both() -> None:
    linked = broadcasts()
    mend_parents(linked)
    ours = [node for node in linked.host.nodes if not node.is_structure]
    assert [node.name for node in ours] == NAMES
    assert [node.parent for node in ours[1:]] == [ours[0].id] * 3


def test_none_of_the_collectives_is_lost() -> None:
    converted = convert_job([broadcasts()])
    assert report(converted)["comm"] == {"BROADCAST": {"count": 3, "bytes": 12_000}}


def test_a_worker_is_around_nothing_of_another_thread() -> None:
    rec = Recording(rank=0, world=2)
    rec.op("c10d::broadcast_", 0, 100, inputs=([tensor(1, 10)], "<Object>", 0, 0, True, -1))
    rec.gloo("gloo:broadcast", 50, 60, 900)
    rec.op("c10d::broadcast_", 200, 300, inputs=([tensor(2, 10)], "<Object>", 0, 0, True, -1))
    linked = rec.linked()
    _, thread, first, worker, second = linked.host.nodes
    second.parent = worker.id
    mend_parents(linked)
    assert [first.parent, worker.parent, second.parent] == [thread.id, first.id, thread.id]


def test_workers_and_true_children_stay() -> None:
    rec = Recording()
    rec.op("c10d::allreduce_", 0, 100, inputs=([tensor(1, 10)],))
    rec.op("aten::view", 10, 20)
    rec.gloo("gloo:all_reduce", 50, 500, 900)
    linked = rec.linked()
    before = [node.parent for node in linked.host.nodes]
    mend_parents(linked)
    assert [node.parent for node in linked.host.nodes] == before


@pytest.mark.parametrize("recorded", ["backward", "c10d::allreduce_", "gloo:all_reduce"])
def test_what_runs_when_a_worker_is_done_stays_in_its_caller(recorded: str) -> None:
    """PyTorch takes the running operator from the stack of its thread, not the annotation that ended."""
    rec = Recording(rank=0, world=2)
    rec.op("backward", 0, 10_000)
    rec.op("c10d::allreduce_", 100, 200, inputs=([tensor(1, 10)],))
    rec.gloo("gloo:all_reduce", 150, 1200, 900)
    rec.op("aten::native_layer_norm_backward", 1000, 2000)
    rec.op("aten::zeros", 1300, 1600)
    rec.op("aten::zero_", 1400, 1500)
    linked = rec.linked()
    node = {each.name: each for each in linked.host.nodes}
    node["aten::zeros"].parent = node[recorded].id
    mend_parents(linked)
    assert node["aten::zero_"].parent == node["aten::zeros"].id
    assert node["aten::zeros"].parent == node["aten::native_layer_norm_backward"].id
    assert node["aten::native_layer_norm_backward"].parent == node["backward"].id


@pytest.mark.parametrize("begins", [150, 1050, 1150], ids=["before both", "between", "after both"])
def test_an_annotation_that_closes_inside_an_operator_is_around_nothing_of_it(begins: int) -> None:
    """Its worker puts it into the operator that runs when it closes, and what runs in there into it."""
    rec = Recording(rank=0, world=2)
    rec.op("c10d::allreduce_", 100, 200, inputs=([tensor(1, 10)],))
    for at, name, end in sorted(
        [(begins, "gloo:all_reduce", 1600), (1000, "aten::addmm", 3000), (1100, "PythonSubclass", 2900)]
    ):
        rec.gloo(name, at, end, 900) if name.startswith("gloo") else rec.op(name, at, end)
    rec.op("aten::mm", 1300, 2800)
    linked = rec.linked()
    node = {each.name: each for each in linked.host.nodes}
    node["gloo:all_reduce"].parent = node["aten::addmm"].id
    node["PythonSubclass"].parent = node["gloo:all_reduce"].id
    mend_parents(linked)
    assert node["PythonSubclass"].parent == node["aten::addmm"].id
    assert node["aten::mm"].parent == node["PythonSubclass"].id


def test_parents_in_a_circle_of_annotations_end() -> None:
    rec = Recording(rank=0, world=2)
    rec.gloo("gloo:all_reduce", 100, 1600, 900)
    rec.gloo("gloo:broadcast", 200, 1700, 901)
    rec.op("aten::mm", 1300, 2800)
    linked = rec.linked()
    node = {each.name: each for each in linked.host.nodes}
    node["gloo:all_reduce"].parent = node["gloo:broadcast"].id
    node["gloo:broadcast"].parent = node["aten::mm"].parent = node["gloo:all_reduce"].id
    mend_parents(linked)
    assert node["aten::mm"].parent != node["aten::mm"].id


def test_of_whole_microseconds_none_moves_up_or_aside() -> None:
    """A caller and its callee may begin and end together, and one may end when the next begins."""
    rec = Recording()
    rec.op("aten::linear", 1000, 5000)
    rec.op("aten::t", 2000, 2000)
    rec.op("aten::transpose", 2000, 2000)
    rec.op("aten::mm", 2000, 4000)
    rec.op("aten::view", 4000, 5000)
    linked = rec.linked()
    before = [each.parent for each in linked.host.nodes]
    mend_parents(linked)
    assert [each.parent for each in linked.host.nodes] == before
