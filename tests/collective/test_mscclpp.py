"""MSCCL++ plans: right sums, times of the closed form, what hangs or is wrong is said with its line."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import armillary
from armillary.base.errors import InputError
from armillary.collective.mscclpp_plan import ExecutionPlan
from armillary.collective.mscclpp_read import read_plan
from armillary.collective.mscclpp_run import check_plan
from armillary.collective.mscclpp_traces import plan_graphs
from armillary.collective.mscclpp_write import plan_of, plan_of_messages
from armillary.convert import front_end
from armillary.platform import Dimension, Platform
from armillary.trace import NodeType, Trace, nodes_of

Part = dict[str, Any]
OPERATIONS = ("all-reduce", "all-gather", "reduce-scatter")
HOP = 500.0
RATE, MEMORY = 400.0, 2000.0
MACHINE = Platform((Dimension("node", "Switch", 8, RATE, HOP),))


def span(buffer: str | int, index: int, size: int = 1) -> Part:
    return {("buffer_id" if isinstance(buffer, int) else "type"): buffer, "index": index, "size": size}


def op(name: str, src: list[Part], dst: list[Part], **more: Any) -> Part:
    return {"name": name, "src_buff": src, "dst_buff": dst, "channel_type": "memory", **more}


def sync(name: str, kind: str = "memory") -> Part:
    return {"name": name, "channel_ids": [0], "channel_type": kind}


def pair(
    ops: Callable[[int], list[list[Part]]], chunks: tuple[int, int, int] = (2, 2, 4), **more: Any
) -> Part:
    """Return a plan of two GPUs, each with a channel of both kinds and all buffers of the other."""
    gpus = []
    for gpu in range(2):
        refs = [{"access_channel_type": kind, "remote_buffer_ids": [0, 1, 2]} for kind in ("memory", "port")]
        gpus.append({
            "id": gpu, **dict(zip(("input_chunks", "output_chunks", "scratch_chunks"), chunks, strict=True)),
            "threadblocks": [
                {"id": at, "ops": block, "remote_buffer_refs": refs,
                 "channels": [{"channel_type": kind, "channel_ids": [0]} for kind in ("memory", "port")]}
                for at, block in enumerate(ops(gpu))
            ],
            "channels": [{"channel_type": kind, "connected_to": [1 - gpu]} for kind in ("memory", "port")],
            "remote_buffers": [{"rank": 1 - gpu, "type": kind, "access_channel_types": ["memory"]} for kind in "ios"],
            "semaphores": [{"init_value": 0}],
        })  # fmt: skip
    return {
        "name": "pair",
        "collective": "allreduce",
        "protocol": "Simple",
        "inplace": True,
        "gpus": gpus,
    } | more


def ticks(plan: ExecutionPlan, size: int) -> int:
    trace = Trace.from_ranks(plan_graphs(plan, size, MEMORY))
    return int(armillary.simulate(trace, MACHINE, network_model="flow").finish_ticks.max())


@pytest.mark.parametrize("protocol", ["Simple", "LL"])
@pytest.mark.parametrize("name", ["ring", "direct", "halvingDoubling"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_written_algorithms_compute_what_they_say(name: str, operation: str, protocol: Any) -> None:
    for n in (2, 4, 8):
        plan = read_plan(plan_of(name, operation, n, protocol))
        check_plan(plan)
        # The executor has no more.
        assert max(len(block) for gpu in plan.blocks for block in gpu) <= 64


@pytest.mark.parametrize("size", [1 << 14, 1 << 20, 1 << 27])
@pytest.mark.parametrize(("name", "steps", "share"), [("ring", 14, 1), ("direct", 2, 7)])
def test_times_of_eight_gpus_are_those_of_the_closed_form(
    name: str, steps: int, share: int, size: int
) -> None:
    chunk, latency = size / 8, 2 * HOP
    sums = 7 * 3 * chunk / MEMORY
    simple = latency + steps * (share * chunk / RATE + 2 * latency) + sums
    packets = steps * (2 * share * chunk / RATE + latency) + sums + 7 * 2 * chunk / MEMORY
    assert ticks(read_plan(plan_of(name, "all-reduce", 8, "Simple")), size) == pytest.approx(simple, rel=0.05)
    assert ticks(read_plan(plan_of(name, "all-reduce", 8, "LL")), size) == pytest.approx(packets, rel=0.05)


def test_packets_win_below_and_signals_above_one_size() -> None:
    both = [read_plan(plan_of("ring", "all-reduce", 8, protocol)) for protocol in ("Simple", "LL")]  # type: ignore[arg-type]
    better = [
        "LL" if ticks(both[1], 1 << bits) < ticks(both[0], 1 << bits) else "Simple"
        for bits in range(16, 27, 2)
    ]
    assert better == sorted(better) and set(better) == {"LL", "Simple"}
    # A step of 1/8 of the bytes: one more latency against twice the time on the wire.
    edge = 8 * RATE * 2 * HOP
    assert edge / 2 < 1 << (16 + 2 * better.index("Simple")) < edge * 4


@given(st.data())
@settings(deadline=None, max_examples=25)
def test_any_rounds_written_are_the_sums_of_the_rounds(data: st.DataObject) -> None:
    """A random order of adding everything up at random roots, and of passing the sums on along random trees."""
    n, parts = data.draw(st.integers(2, 5)), data.draw(st.integers(1, 3))
    rounds: list[list[tuple[int, int, tuple[int, ...], bool]]] = []
    for part in range(parts):
        order = data.draw(st.permutations(range(n)))
        inward = [
            (order[at], data.draw(st.sampled_from(order[:at])) if at > 1 else order[0]) for at in range(1, n)
        ]
        rounds += [[(source, target, (part,), True)] for source, target in reversed(inward)]
        rounds += [[(target, source, (part,), False)] for source, target in inward]
    protocol = data.draw(st.sampled_from(["Simple", "LL"]))
    check_plan(read_plan(plan_of_messages("tree", "all-reduce", n, parts, rounds, protocol)))  # type: ignore[arg-type]


def test_reads_of_remote_memory_ports_groups_and_barriers() -> None:
    """The two GPUs exchange by get, and by a put through a port; both halves of a group of thread blocks add."""

    def ops(gpu: int) -> list[list[Part]]:
        mine, other = gpu, 1 - gpu
        first = [
            op("copy", [span("i", other)], [span("s", other)]),
            sync("signal"),
            sync("wait"),
            op("get", [span(2, mine)], [span("s", 2 + mine)]),
            {"name": "sem_release", "semaphore_ids": [0]},
            {"name": "barrier", "barrier_id": 3, "num_threadblocks": 2},
            op(
                "re",
                [span("i", mine), span("s", 2 + mine)],
                [span("i", mine)],
                tbg_info={"tb_id": 0, "tbg_size": 2},
            ),
            {"name": "barrier", "barrier_id": 4, "num_threadblocks": 2},
            op("pwsf", [span("i", mine)], [span(0, mine)], channel_type="port", channel_ids=[0]),
            sync("wait", "port"),
        ]
        second = [
            {"name": "sem_acquire", "semaphore_ids": [0]},
            {"name": "barrier", "barrier_id": 3, "num_threadblocks": 2},
            op(
                "re",
                [span("i", mine), span("s", 2 + mine)],
                [span("i", mine)],
                tbg_info={"tb_id": 1, "tbg_size": 2},
            ),
            {"name": "barrier", "barrier_id": 4, "num_threadblocks": 2},
        ]
        return [first, second]  # fmt: skip

    plan = read_plan(pair(ops))
    check_plan(plan)
    graphs = plan_graphs(plan, 1 << 20, MEMORY, sync=100.0)
    sent = sum(
        int(next(value for name, _, value in node.attrs if name == "comm_size"))
        for graph in graphs for node in nodes_of(graph) if node.type == NodeType.COMM_SEND_NODE
    )  # fmt: skip
    # Each gets half a MiB and puts half a MiB; two signals and a request.
    assert sent == 2 * ((1 << 20) + 3 * 8)
    result = armillary.simulate(Trace.from_ranks(graphs), Platform((Dimension("a", "Switch", 2, RATE, HOP),)))
    assert result.finish_ticks.min() > 4 * 2 * HOP


def test_fused_operations() -> None:
    def ops(gpu: int) -> list[list[Part]]:
        mine, other = gpu, 1 - gpu
        return [[
            op("ppkt", [span("i", other)], [span(2, other)]),
            op("recspkt", [span("i", mine), span("s", mine)], [span("i", mine), span("s", 2), span(2, 3)]),
            op("upkt", [span("s", 3)], [span("i", other)]),
        ]]  # fmt: skip

    plan = read_plan(pair(ops, protocol="LL"))
    check_plan(plan)
    assert (
        armillary.simulate(
            Trace.from_ranks(plan_graphs(plan, 4096)), Platform((Dimension("a", "Ring", 2, RATE, HOP),))
        ).finish_ticks.min()
        > 2 * HOP
    )

    def both(gpu: int) -> list[list[Part]]:
        mine = gpu
        return [[
            op("copy", [span("i", 0, 2)], [span("s", 0, 2)]), sync("signal"), sync("wait"),
            op("rres", [span("i", mine), span(2, mine)], [span("i", mine), span(0, mine)]),
            sync("signal"), sync("wait"),
        ]]  # fmt: skip

    check_plan(read_plan(pair(both)))


PLAN = plan_of("ring", "all-reduce", 2, "Simple")


def ops_of(plan: Part, gpu: int = 0) -> list[Part]:
    found: list[Part] = plan["gpus"][gpu]["threadblocks"][0]["ops"]
    return found


def named(plan: Part, name: str) -> Part:
    return next(each for each in ops_of(plan) if each["name"] == name)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda plan: plan.update(colective=1), "colective: unknown key .did you mean 'collective'"),
        (lambda plan: plan.update(collective="allreduc"), "did you mean 'allreduce'"),
        (lambda plan: plan.update(protocol="LL128"), "protocol: got 'LL128', expected one of Simple, LL"),
        (lambda plan: plan["gpus"].pop(), "got 1, expected 2 to 4096"),
        (lambda plan: plan["gpus"][1].update(id=0), "gpu 0 is there twice"),
        (lambda plan: ops_of(plan).append({"name": "glres"}), "works in an NVLink switch"),
        (lambda plan: ops_of(plan).append({"name": "sum"}), "name: got 'sum', expected one of"),
        (lambda plan: named(plan, "put")["dst_buff"][0].update(buffer_id=9), "a whole number from 0 to"),
        (lambda plan: named(plan, "put")["src_buff"][0].update(index=4), "of buffer i of gpu 0, which has 4"),
        (lambda plan: named(plan, "put").update(src_buff=[]), "put without src_buff"),
        (lambda plan: named(plan, "signal").update(channel_ids=[]), "expected at least one channel"),
        (lambda plan: named(plan, "re").update(dst_buff=[span(0, 0)]), "re writes gpu 1, expected a local buffer"),
        (lambda plan: plan["gpus"][0].update(scratch_chunks=1 << 30), "scratch_chunks"),
        (lambda plan: named(plan, "put").update(chanel_type="port"), "unknown key .did you mean 'channel_type'"),
        (lambda plan: named(plan, "re").update(reduce_op="max"), r"reduce_op: got sum, expected max, as of gpus\[0\]"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(change: Callable[[Part], Any], words: str) -> None:
    plan = copy.deepcopy(PLAN)
    change(plan)
    with pytest.raises(InputError, match=words):
        read_plan(plan)


def unfilled(plan: Part) -> None:
    plan["gpus"][0]["scratch_chunks"] += 1
    named(plan, "re")["src_buff"][1]["index"] = plan["gpus"][0]["scratch_chunks"] - 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda plan: ops_of(plan).remove(named(plan, "signal")), "never runs: thread block 0 of gpu"),
        (lambda plan: named(plan, "re").update(src_buff=[span("i", 0)]), "is no all-reduce: chunk"),
        (unfilled, "which nothing has filled"),
        (lambda plan: plan.update(collective="allgather"), "are no all-gather"),
        (lambda plan: plan.update(collective="custom"), "cannot check a custom"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_found(change: Callable[[Part], Any], words: str) -> None:
    plan = copy.deepcopy(PLAN)
    change(plan)
    with pytest.raises(InputError, match=words):
        check_plan(read_plan(plan))


def test_converting_warns_of_what_a_plan_does_not_do(tmp_path: Path) -> None:
    wrong = copy.deepcopy(PLAN)
    named(wrong, "re").update(src_buff=[span("i", 0)])
    (tmp_path / "plan.json").write_text(json.dumps(wrong))
    found = front_end("mscclpp").convert([tmp_path / "plan.json"], size="1 MiB")
    assert "is no all-reduce" in found.warnings[0] and found.trace.n_ranks == 2
    with pytest.raises(InputError, match="expected at least 64 bytes"):
        front_end("mscclpp").convert([tmp_path / "plan.json"], size="8 B")


def test_what_moves_twice_and_unknown_keys_are_said() -> None:
    plan = copy.deepcopy(PLAN)
    put = named(plan, "put")
    put["priority"] = 3
    ops_of(plan).insert(ops_of(plan).index(put), copy.deepcopy(put))
    warnings = read_plan(plan).warnings
    assert len(warnings) == 2
    assert "priority: key of no known operation, not read" in warnings[0]
    assert "it moves twice" in warnings[1]
    assert not read_plan(PLAN).warnings


def test_converting_warns_of_a_size_that_the_plan_is_not_for(tmp_path: Path) -> None:
    plan = copy.deepcopy(PLAN) | {"min_message_size": 1 << 10, "max_message_size": 1 << 20}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    convert = front_end("mscclpp").convert
    assert not convert([tmp_path / "plan.json"], size="1 MiB").warnings
    [warning] = convert([tmp_path / "plan.json"], size="2 MiB").warnings
    assert "2097152 bytes: MSCCL++ takes this plan for 1024 to 1048576" in warning
