"""Communication on threads of a backend: when it runs, behind what, and who waits for it."""

from __future__ import annotations

import pytest

from armillary.convert.pytorch.rank import Rank, build
from armillary.convert.pytorch.steps import SHORT, Step
from tests.convert.pytorch.recording import Recording, tensor
from tests.convert.pytorch.test_steps import check_exact

US = 1000
PG = "<Object>"
ALL_REDUCE = (
    "c10d::allreduce_(Tensor[] tensors, __torch__.torch.classes.c10d.ProcessGroup process_group, "
    "__torch__.torch.classes.c10d.ReduceOp reduce_op, Tensor? sparse_indices, bool async_op=True, int timeout=-1) "
    "-> (Tensor[], __torch__.torch.classes.c10d.Work)"
)
T = tensor(1, 1000)


def comms(rank: Rank) -> list[Step]:
    return [step for step in rank.steps if step.kind == "comm"]


def reduce(
    rec: Recording, start: int, end: int, event: tuple[int, int], *, thread: int = 99, tid: int = 1
) -> None:
    """Add an all-reduce that is issued from `start` to `end` and runs on a thread of gloo; times in us."""
    given = ([T], PG, PG, "<None>", False, -1)
    rec.op("c10d::allreduce_", start * US, end * US, tid=tid, inputs=given, schema=ALL_REDUCE)
    rec.gloo("gloo:all_reduce", start * US + 1, event[0] * US, event[1] * US, tid=thread)
    rec.ops[-1].tid = tid


def recording() -> Recording:
    rec = Recording()
    rec.op("step", 0, 2000 * US, annotation=True)
    return rec


def test_takes_the_time_of_the_event_on_the_stream_of_its_thread() -> None:
    rec = recording()
    reduce(rec, 100, 120, (110, 500))
    rank = build(rec.linked())
    (comm,) = comms(rank)
    assert (comm.name, comm.track, comm.end - rank.start) == ("gloo:all_reduce", 99, 500 * US)
    assert comm.begin - rank.start >= 100 * US
    assert all(wait.end <= rank.start + 110 * US for wait in comm.waits)
    check_exact(rank)


def test_the_next_one_of_a_thread_waits_for_the_one_before() -> None:
    rec = recording()
    reduce(rec, 100, 120, (110, 500))
    reduce(rec, 200, 220, (500, 700))
    reduce(rec, 300, 320, (310, 400), thread=98)
    first, other, second = sorted(comms(build(rec.linked())), key=lambda step: step.begin)
    assert (first.track, other.track, second.track) == (99, 98, 99)
    assert first in second.waits
    assert first not in other.waits


def test_what_lies_long_in_the_queue_is_said_so() -> None:
    rec = recording()
    reduce(rec, 100, 120, (120 + SHORT // US + 5, 500))
    queued = [step for step in build(rec.linked()).steps if step.kind == "queued"]
    assert [step.name for step in queued] == ["gloo:all_reduce queued"]
    assert queued[0].end - queued[0].begin >= SHORT


def test_an_operator_that_lasts_until_the_end_waited() -> None:
    rec = recording()
    reduce(rec, 100, 510, (110, 500))
    rec.op("after", 520 * US, 530 * US)
    rank = build(rec.linked())
    (comm,) = comms(rank)
    waiting = [step for step in rank.steps if comm in step.waits]
    assert [(step.name, step.end - step.begin) for step in waiting] == [("c10d::allreduce_", 10 * US)]
    check_exact(rank)


def test_an_operator_that_went_on_did_not_wait() -> None:
    rec = recording()
    reduce(rec, 100, 120, (110, 500))
    rec.op("aten::mm", 130 * US, 1900 * US)
    rank = build(rec.linked())
    (comm,) = comms(rank)
    assert not [step for step in rank.steps if comm in step.waits]


def test_wait_tensor_waits() -> None:
    rec = recording()
    out = tensor(2, 1000)
    schema = "_c10d_functional::all_reduce(Tensor input, str reduce_op, str group_name) -> Tensor"
    rec.op(
        "_c10d_functional::all_reduce",
        100 * US,
        120 * US,
        inputs=(T, "sum", "0"),
        outputs=(out,),
        schema=schema,
    )
    rec.gloo("gloo:all_reduce", 100 * US + 1, 110 * US, 500 * US)
    rec.ops[-1].tid = 1
    rec.op("_c10d_functional::wait_tensor", 200 * US, 510 * US, inputs=(out,), outputs=(out,))
    rank = build(rec.linked())
    (comm,) = comms(rank)
    wait = next(step for step in rank.steps if step.name == "_c10d_functional::wait_tensor")
    assert comm in wait.waits
    assert wait.end - wait.begin == 10 * US


def test_events_without_ids_are_taken_in_order() -> None:
    rec = Recording("1.0.1")
    rec.op("step", 0, 2000 * US, annotation=True)
    reduce(rec, 100, 120, (110, 300))
    reduce(rec, 400, 420, (410, 600))
    rank = build(rec.linked(rf_ids=False))
    assert [(step.begin >= rank.start + 100 * US, step.end - rank.start) for step in comms(rank)] == [
        (True, 300 * US),
        (True, 600 * US),
    ]


def test_without_an_event_it_takes_no_time_where_it_was_issued() -> None:
    rec = recording()
    rec.op("c10d::barrier", 100 * US, 400 * US, inputs=(tensor(9, 1, 1), PG, [], False, -1))
    rank = build(rec.linked())
    (comm,) = comms(rank)
    assert comm.begin == comm.end
    assert comm.end - rank.start == 400 * US
    check_exact(rank)


ADD = "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"
ADD_ = "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)"


def use(rec: Recording, start: int, end: int, name: str = "aten::add", schema: str = ADD) -> None:
    """Let an operator use what is reduced; times in us."""
    rec.op(name, start * US, end * US, inputs=(T, tensor(5, 1000)), outputs=(tensor(6, 1000),), schema=schema)


@pytest.mark.parametrize("ended", [400, 505, 600, 1900])
@pytest.mark.parametrize(("name", "schema"), [("aten::add", ADD), ("aten::add_", ADD_)])
def test_who_uses_the_result_waited_however_late_the_annotation_ends(
    ended: int, name: str, schema: str
) -> None:
    """gloo completes DDP's future before it closes the annotation, which a busy machine can delay."""
    rec = recording()
    reduce(rec, 100, 120, (110, ended))
    rec.op("aten::view", 450 * US, 455 * US)
    use(rec, 500, 510, name, schema)
    use(rec, 520, 530)
    rank = build(rec.linked())
    (comm,) = comms(rank)
    assert comm.end - rank.start == (450 if ended > 500 else ended) * US
    waiting = [step.name for step in rank.steps if comm in step.waits]
    assert waiting[:2] == ["step", name]
    check_exact(rank)


def test_who_uses_the_result_before_it_is_reduced_did_not_wait() -> None:
    rec = recording()
    use(rec, 50, 60)
    reduce(rec, 100, 120, (110, 500))
    (comm,) = comms(rank := build(rec.linked()))
    assert comm.end - rank.start == 500 * US
    assert not any(comm in step.waits for step in rank.steps if step.name == "aten::add")


@pytest.mark.parametrize(
    ("name", "schema"),
    [
        (
            "aten::_has_compatible_shallow_copy_type",
            "aten::_has_compatible_shallow_copy_type(Tensor self, Tensor from) -> bool",
        ),
        ("mine::add", "mine::add(Tensor self, Tensor other) -> Tensor"),
        ("_c10d_functional::wait_tensor", "_c10d_functional::wait_tensor(Tensor tensor) -> Tensor"),
    ],
)
def test_what_needs_no_data_or_may_have_waited_itself_tells_no_end(name: str, schema: str) -> None:
    rec = recording()
    reduce(rec, 100, 120, (110, 900))
    use(rec, 500, 510, name, schema)
    (comm,) = comms(rank := build(rec.linked()))
    assert comm.end - rank.start == 900 * US


def test_what_follows_on_the_backends_thread_lasts_from_the_end_that_was_found() -> None:
    rec = recording()
    reduce(rec, 100, 120, (110, 900))
    use(rec, 500, 510)
    other = tensor(7, 1000)
    rec.op(
        "c10d::allreduce_",
        600 * US,
        620 * US,
        inputs=([other], PG, PG, "<None>", False, -1),
        schema=ALL_REDUCE,
    )
    rec.gloo("gloo:all_reduce", 600 * US + 1, 900 * US, 1200 * US)
    rec.ops[-1].tid = 1
    rank = build(rec.linked())
    first, second = comms(rank)
    assert (first.end - rank.start, second.end - rank.start) == (500 * US, 1200 * US)
    check_exact(rank)
