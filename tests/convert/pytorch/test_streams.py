"""Kernels wait for their launch, their stream, events of other streams and, for communication, the work before."""

from __future__ import annotations

from typing import Any

import pytest

from armillary.base.errors import InputError
from armillary.convert.pytorch.rank import Rank, build
from armillary.convert.pytorch.steps import Step
from tests.convert.pytorch.recording import Recording, tensor
from tests.convert.pytorch.test_steps import replay

US = 1000
T = tensor(1, 1000, device="cuda:0")
PG = "<Object>"


def step_of(rank: Rank, name: str) -> Step:
    """Return the step of a kernel, call or operator."""
    return next(step for step in rank.steps if step.name == name and step.kind != "part")


def waits(rank: Rank, name: str) -> set[str]:
    """Return the names of what a step waits for."""
    return {wait.name for wait in step_of(rank, name).waits}


def recording() -> Recording:
    rec = Recording()
    rec.op("step", 0, 2000 * US, annotation=True)
    return rec


def test_more_kernels_than_a_device_runs_at_once_are_refused() -> None:
    rec = recording()
    for i in range(1, 258):
        rec.op("aten::mm", 10 * i * US, (10 * i + 5) * US)
        rec.launch((10 * i + 1) * US, (10 * i + 2) * US, ((10 * i + 3) * US, (9000 - 2 * i) * US))
    with pytest.raises(InputError, match=r"device.json: stream 7 of device 0: more than 256 kernels"):
        build(rec.linked())


def test_a_kernel_waits_for_its_launch_and_the_kernel_before_it() -> None:
    rec = recording()
    rec.op("aten::mm", 10 * US, 50 * US)
    rec.launch(20 * US, 30 * US, (60 * US, 100 * US), name="k1")
    rec.op("aten::add", 60 * US, 90 * US)
    rec.launch(70 * US, 80 * US, (100 * US, 150 * US), name="k2")
    rank = build(rec.linked())
    assert "aten::mm" in waits(rank, "k1") | {"aten::mm"}
    assert "k1" in waits(rank, "k2")
    assert step_of(rank, "k1").item is not None
    assert {step_of(rank, name).end - step_of(rank, name).begin for name in ("k1", "k2")} == {
        40 * US,
        50 * US,
    }


def test_a_kernel_can_start_before_its_operator_ends() -> None:
    rec = recording()
    rec.op("aten::conv", 10 * US, 900 * US)
    rec.launch(20 * US, 30 * US, (40 * US, 100 * US), name="k1")
    rank = build(rec.linked())
    assert all(wait.end <= rank.start + 40 * US for wait in step_of(rank, "k1").waits)
    assert step_of(rank, "k1").waits, "the operator is cut where the launch ended"


def test_streams_run_beside_each_other_unless_told_to_wait() -> None:
    for told in (False, True):
        rec = recording()
        rec.op("aten::mm", 10 * US, 300 * US)
        rec.launch(20 * US, 21 * US, (30 * US, 100 * US), name="first", stream=7)
        rec.launch(30 * US, 31 * US, (100 * US, 140 * US), name="after the event", stream=7)
        if told:
            rec.stream_wait(20, 7, (25 * US, 26 * US), (40 * US, 41 * US))
        rec.launch(50 * US, 51 * US, (120 * US, 250 * US), name="other", stream=20)
        rec.launch(60 * US, 61 * US, (250 * US, 260 * US), name="next", stream=20)
        rank = build(rec.linked())
        assert ("first" in waits(rank, "other")) == told
        assert "after the event" not in waits(rank, "other")
        assert "first" not in waits(rank, "next"), "the order of its stream says so already"


@pytest.mark.parametrize(
    ("call", "kernel"),
    [
        ("cudaDeviceSynchronize", (30, 500)),
        ("cudaStreamSynchronize", (30, 500)),
        ("hipStreamSynchronize", (30, 500)),
        ("cudaEventSynchronize", (30, 500)),
        ("hipDeviceSynchronize", (30, 90)),
    ],
)
def test_a_call_that_waits_ends_after_the_kernels_it_waited_for(call: str, kernel: tuple[int, int]) -> None:
    rec = recording()
    rec.op("aten::mm", 10 * US, 50 * US)
    rec.launch(20 * US, 21 * US, (kernel[0] * US, kernel[1] * US), name="k1")
    rec.call(call, 100 * US, 510 * US)
    rec.op("aten::after", 520 * US, 530 * US)
    rank = build(rec.linked())
    assert "k1" in waits(rank, call)
    step_of(rank, "k1").begin += (kernel[1] - kernel[0]) * US  # a kernel that takes no time
    end = replay(rank)[id(step_of(rank, "aten::after"))]
    assert (end < 200 * US) == (kernel[1] > 100), "the call was as long as the kernel"


def test_a_copy_to_the_host_blocks_only_if_the_call_lasted_as_long() -> None:
    for blocking in (False, True):
        rec = recording()
        rec.op("aten::copy_", 10 * US, 400 * US)
        until = 350 if blocking else 40
        rec.launch(
            20 * US,
            until * US,
            (100 * US, 340 * US),
            name="Memcpy DtoH",
            call="cudaMemcpyAsync",
            cat="gpu_memcpy",
        )
        rec.op("aten::item", 500 * US, 510 * US)
        rank = build(rec.linked())
        assert any(step.kind == "call" for step in rank.steps) == blocking
        if blocking:
            assert "Memcpy DtoH" in waits(rank, "cudaMemcpyAsync")


def test_nccl_runs_after_the_compute_that_was_launched_before_it() -> None:
    rec = recording()
    rec.op("aten::mm", 10 * US, 50 * US)
    rec.launch(20 * US, 21 * US, (30 * US, 300 * US), name="gemm")
    rec.op("c10d::allreduce_", 60 * US, 200 * US, inputs=([T], PG, PG, "<None>", False, -1))
    rec.op("record_param_comms", 70 * US, 190 * US, inputs=([T], 1, ["0", "default"], 0, "allreduce"))
    rec.op("nccl:all_reduce", 80 * US, 180 * US, inputs=(T,), annotation=True)
    rec.launch(
        100 * US, 110 * US, (300 * US, 700 * US), name="ncclDevKernel_AllReduce_Sum_f32_RING_LL", stream=40
    )
    rec.op("aten::add", 210 * US, 250 * US)
    rec.launch(220 * US, 221 * US, (310 * US, 400 * US), name="later")
    rank = build(rec.linked())
    (comm,) = [step for step in rank.steps if step.kind == "comm"]
    assert comm.name.startswith("nccl")
    assert (comm.track, comm.end - comm.begin) == (40, 400 * US)
    assert "gemm" in {wait.name for wait in comm.waits}
    assert comm.name not in waits(rank, "later"), "nothing said that it waits"


def test_two_kernels_of_one_collective_are_one_communication() -> None:
    rec = recording()
    rec.op("c10d::alltoall_", 60 * US, 200 * US, inputs=([T], [T], PG, True, -1))
    for at in (0, 1):
        start = 300 + 100 * at
        name = "ncclDevKernel_SendRecv"
        rec.launch((70 + at) * US, (80 + at) * US, (start * US, (start + 90) * US), name=name, stream=40)
    rank = build(rec.linked())
    assert [step.kind for step in rank.steps if step.name == "ncclDevKernel_SendRecv"] == ["comm", "kernel"]


def test_no_step_waits_for_one_that_is_issued_later() -> None:
    rec = recording()
    for at in range(20):
        start = 30 * at
        rec.op("aten::mm", start * US, (start + 20) * US, tid=1 + at % 2)
        rec.launch(
            (start + 5) * US, (start + 8) * US, ((start + 9) * US, (start + 60) * US), stream=7 + at % 3
        )
    rank = build(rec.linked())
    replay(rank)
    assert sum(step.kind == "kernel" for step in rank.steps) == 20


def many_waits(count: int) -> Recording:
    rec = Recording()
    rec.op("step", 0, 20 * count * US, annotation=True)
    for at in range(count):
        start = 10 * at * US
        rec.launch(start + 1000, start + 2000, (start + 2000, start + 3000), name="a", stream=7)
        rec.stream_wait(20, 7, (start + 3000, start + 3100), (start + 4000, start + 4100))
        rec.launch(start + 5000, start + 6000, (start + 6000, start + 7000), name="b", stream=20)
    return rec


def test_each_wait_of_a_stream_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from armillary.convert.pytorch import tracks

    looked: list[Any] = []
    before = tracks.Streams.before
    monkeypatch.setattr(tracks.Streams, "before", lambda *a: looked.append(a) or before(*a))
    counts = []
    for count in (100, 200):
        linked = many_waits(count).linked()
        looked.clear()
        build(linked)
        counts.append(len(looked))
    assert counts[1] < 2.5 * counts[0]


def test_kernels_without_correlation_follow_what_the_cpu_did_before() -> None:
    rec = recording()
    rec.op("aten::mm", 10 * US, 50 * US)
    rec.launch(20 * US, 21 * US, (30 * US, 100 * US), name="k1")
    rec.launch(24 * US, 25 * US, (200 * US, 300 * US), name="k2")
    for event in rec.events:
        event["args"]["correlation"] = 0
    linked = rec.linked()
    assert linked.report()["device_ops_linked"] == 0
    rank = build(linked)
    assert {step.name for step in rank.steps if step.kind == "kernel"} == {"k1", "k2"}
    assert "aten::mm" in waits(rank, "k2"), "the last CPU step before it stands for its launch"


def test_messages_launched_together_take_one_kernel_and_are_all_communication() -> None:
    rec = recording()
    for at, name in enumerate(("c10d::send", "c10d::recv_")):
        start = (10 + 20 * at) * US
        rec.op(name, start, start + 10 * US, inputs=([tensor(at + 1, 100, device="cuda:0")], PG, 1, at))
    rec.op("nccl:coalesced", 60 * US, 90 * US, annotation=True)
    rec.launch(70 * US, 80 * US, (100 * US, 400 * US), name="ncclDevKernel_SendRecv", stream=20)
    rank = build(rec.linked())
    comms = {step.source.kind: step for step in rank.steps if step.kind == "comm"}  # type: ignore[union-attr]
    assert set(comms) == {"SEND", "RECV"}
    assert not [step for step in rank.steps if step.kind == "kernel"]
    lengths = sorted(step.end - step.begin for step in comms.values())
    assert lengths == [0, 300 * US]
