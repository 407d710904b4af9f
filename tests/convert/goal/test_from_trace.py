"""Traces as GOAL schedules: the messages of their collectives, what they leave out, and files that read back."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

import armillary
from armillary.base.errors import InputError
from armillary.collective import rounds_for
from armillary.convert import front_end
from armillary.convert.goal.from_trace import schedule_of
from armillary.convert.goal.loggops import Model, simulate
from armillary.convert.goal.operation import ANY, Operation
from armillary.convert.goal.schedule import read_schedule
from armillary.convert.goal.write import write_schedule
from armillary.platform import Collectives, Platform
from armillary.platform.memory import RemoteMemory
from armillary.platform.network import Dimension, InNetwork
from armillary.trace import GraphBuilder, NodeType, Trace

from .packed import packed


def machine(*sizes: int, topology: str = "Switch", chunks: int = 1, **algorithms: str) -> Platform:
    dimensions = tuple(Dimension(f"d{at}", topology, size, 50.0, 500.0) for at, size in enumerate(sizes))
    names = {name.replace("_", "-"): (value,) for name, value in algorithms.items()}
    return Platform(dimensions, collectives=Collectives(algorithms=names, chunks=chunks))


def collective(npus: int, operation: str = "all_reduce", size: int = 1 << 20) -> Trace:
    step = GraphBuilder()
    getattr(step, operation)("it", size=size)
    return Trace.replicate(step.graph(), ranks=npus)


@st.composite
def schedules(draw: st.DrawFn) -> list[list[Operation]]:
    """Any schedule: operations of a rank wait for earlier ones and for later ones, without a circle."""
    count = draw(st.integers(2, 4))
    small = st.integers(0, 255)
    ranks = []
    for rank in range(count):
        operations = []
        for _ in range(draw(st.integers(0, 6))):
            kind = draw(st.sampled_from(("send", "recv", "calc")))
            amount = draw(st.integers(0, 2**59))
            if kind == "calc":
                operations.append(Operation("calc", amount, cpu=draw(small)))
                continue
            peers, tags = st.sampled_from([r for r in range(count) if r != rank]), st.integers(0, 2**31 - 1)
            if kind == "recv":
                peers, tags = peers | st.just(ANY), tags | st.just(ANY)
            operations.append(
                Operation(kind, amount, draw(peers), draw(tags), draw(small), draw(small))  # type: ignore[arg-type]
            )
        order = draw(st.permutations(range(len(operations))))
        for place, number in enumerate(order[1:], 1):
            others = st.sets(st.sampled_from(order[:place]), max_size=3)
            operations[number].ended, operations[number].started = (sorted(draw(others)) for _ in range(2))
        ranks.append(operations)
    return ranks


@given(schedules())
@settings(max_examples=60)
def test_what_is_written_reads_back(
    tmp_path_factory: pytest.TempPathFactory, ranks: list[list[Operation]]
) -> None:
    folder = tmp_path_factory.mktemp("goal")
    for suffix in (".goal", ".bin"):
        path = folder / f"x{suffix}"
        write_schedule(path, ranks)
        assert read_schedule(path) == ranks
    data = (folder / "x.bin").read_bytes()
    # The tests' own writer does not count CPUs and NICs.
    assert data[:12] + data[14:] == packed(ranks)[:12] + packed(ranks)[14:]
    assert data[12] == max((each.cpu for operations in ranks for each in operations), default=0)


@st.composite
def programs(draw: st.DrawFn) -> list[list[Operation]]:
    """A schedule whose messages are all received, in the order in which they are sent; sends are eager."""
    count, small = draw(st.integers(1, 4)), st.integers(0, 255)
    ranks: list[list[Operation]] = [[] for _ in range(count)]

    def add(rank: int, *what: Any) -> None:
        own = ranks[rank]
        before = draw(st.sets(st.sampled_from(range(len(own))), max_size=2)) if own else set()
        own.append(Operation(*what, draw(small), draw(st.integers(0, 2)), sorted(before)))

    for _ in range(draw(st.integers(1, 10))):
        source, tag, size = (
            draw(st.integers(0, count - 1)),
            draw(st.integers(0, 2)),
            draw(st.integers(1, 9999)),
        )
        if count == 1 or draw(st.booleans()):
            ranks[source].append(Operation("calc", draw(st.integers(0, 10**6)), cpu=draw(small)))
            continue
        target = (source + draw(st.integers(1, count - 1))) % count
        add(source, "send", size, target, tag)
        add(target, "recv", size, source, tag)
    return ranks


@given(programs())
@settings(max_examples=60, deadline=None)
def test_a_schedule_is_the_same_after_it_was_a_trace(
    tmp_path_factory: pytest.TempPathFactory, ranks: list[list[Operation]]
) -> None:
    """Its CPUs and NICs, too: calc of CPU 0 was of CPU 3 then. Messages have tags of their own."""
    path = tmp_path_factory.mktemp("goal") / "x.bin"
    write_schedule(path, ranks)
    try:
        before = simulate(ranks)
    except InputError:
        # A receive may take the message that was meant for the next one.
        reject()
    sizes = [ranks[rank][at].amount == ranks[a][b].amount for (rank, at), (a, b) in before.took.items()]
    found = schedule_of(front_end("goal").convert([path]).trace, machine(len(ranks))).ranks
    assert simulate(found).ends == before.ends
    if all(sizes):
        assert [[replace(each, tag=0) for each in own] for own in found] == [
            [replace(each, tag=0) for each in own] for own in ranks
        ]


def test_a_cpu_that_no_schedule_has() -> None:
    step = GraphBuilder()
    step.add(
        "kernel",
        NodeType.COMP_NODE,
        [("is_cpu_op", "bool", True), ("goal_cpu", "int64", 256)],
        duration_micros=1,
    )
    with pytest.raises(InputError, match=r"kernel.* on rank 0: goal_cpu: got 256, expected 0 to 255"):
        schedule_of(Trace.replicate(step.graph(), ranks=2), machine(2))


@pytest.mark.parametrize(
    ("operation", "name"),
    [("all_reduce", "ring"), ("all_reduce", "halvingDoubling"), ("all_gather", "ring"), ("all_to_all", "direct"),
     ("all_reduce", "doubleBinaryTree"), ("reduce_scatter", "direct")],
)  # fmt: skip
@pytest.mark.parametrize("chunks", [1, 3])
def test_collectives_send_the_messages_of_their_algorithm(operation: str, name: str, chunks: int) -> None:
    size, called = 1 << 20, operation.replace("_", "-")
    found = schedule_of(collective(8, operation, size), machine(8, chunks=chunks, **{operation: name})).ranks
    sent, received = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
    for rank, operations in enumerate(found):
        for each in operations:
            if each.kind == "send":
                sent[rank, each.peer] += each.amount
            elif each.kind == "recv":
                received[each.peer, rank] += each.amount
    assert sent == received
    wanted = Counter[tuple[int, int]]()
    rounds = rounds_for(name, called, 8)
    for part in rounds.expanded():
        columns = (part.source, part.target, part.numerator, part.denominator)
        for a, b, over, under in zip(*(column.tolist() for column in columns), strict=True):
            wanted[a, b] += ceil(Fraction(over, under) * size)
    # A message of each chunk is whole bytes; trees cut chunks to the size.
    assert all(abs(sent[pair] - wanted[pair]) <= 64 * chunks for pair in wanted | sent)
    # It ends: every receive finds its message.
    assert min(simulate(found).ends) > 0


@pytest.mark.parametrize("topology", ["Switch", "FullyConnected"])
@pytest.mark.parametrize("sizes", [(4,), (4, 2)])
@pytest.mark.parametrize("operation", ["all_reduce", "all_to_all"])
def test_a_schedule_moves_as_the_collective_does(
    tmp_path: Path, topology: str, sizes: tuple[int, ...], operation: str
) -> None:
    """Converted back, its messages take as long as those of the collective in a network that moves messages."""
    platform = machine(*sizes, topology=topology)
    trace = collective(platform.npus, operation, 4 << 20)
    write_schedule(tmp_path / "x.goal", schedule_of(trace, platform).ranks)
    back = front_end("goal").convert([tmp_path / "x.goal"]).trace
    wanted, took = (
        armillary.simulate(each, platform, network_model="flow").total_ticks for each in (trace, back)
    )
    assert took == pytest.approx(wanted, rel=0.01)


def test_computations_streams_and_messages() -> None:
    first, second = GraphBuilder(rank=0), GraphBuilder(rank=1)
    time = [("is_cpu_op", "bool", False), ("duration_ns", "int64", 3000)]
    begin = first.add("kernel", NodeType.COMP_NODE, time, duration_micros=3)
    first.add("side", NodeType.COMP_NODE, [*time, ("stream", "int64", 7)], duration_micros=3)
    first.send(1, 100, 5, after=[begin])
    first.send(1, 200, 5, after=[begin])
    second.recv(0, 200, 5)
    second.recv(0, 100, 5)
    trace = Trace.from_ranks([first.graph("a"), second.graph("b")])
    found = schedule_of(trace, replace(machine(2), stragglers={1: 50.0}))
    kernel, side, *sends = found.ranks[0]
    assert (kernel.kind, kernel.amount, side.amount) == ("calc", 3000, 3000) and kernel.cpu != side.cpu
    assert [each.ended for each in sends] == [[0], [0]]
    # A message goes by its size, too; in GOAL by its tag alone.
    start, *receives = found.ranks[1]
    assert (start.kind, start.amount) == ("calc", 50) and all(each.ended == [0] for each in receives)
    assert {each.amount: each.tag for each in sends} == {each.amount: each.tag for each in receives}
    assert sends[0].tag != sends[1].tag and not found.warnings


def test_collectives_of_a_communicator_follow_each_other() -> None:
    step = GraphBuilder()
    step.all_reduce("a", size=1000)
    step.all_reduce("b", size=1000)
    ranks = schedule_of(Trace.replicate(step.graph(), ranks=2), machine(2)).ranks
    sends = [each for each in ranks[0] if each.kind == "send"]
    assert sends[0].tag != sends[-1].tag
    second = next(each for each in sends if each.tag == sends[-1].tag)
    assert second.ended and not sends[0].ended


def test_what_is_left_out_is_said() -> None:
    first, second = GraphBuilder(rank=0), GraphBuilder(rank=1)
    first.send(1, 100, 5)
    second.add("kernel", NodeType.COMP_NODE, [("is_cpu_op", "bool", False)], duration_micros=3)
    found = schedule_of(Trace.from_ranks([first.graph("a"), second.graph("b")]), machine(2))
    assert found.ranks[0] == [] and "that nobody receives: 1" in found.warnings[-1]
    fitted = armillary.load_platform("dgx-h100")
    assert "collectives.fit" in schedule_of(collective(fitted.npus), fitted).warnings[-1]


POOL = RemoteMemory("per-npu", 1000, 100)
ADDING = Dimension("d0", "Switch", 4, 50.0, 500.0, in_network=InNetwork())


def memory_access() -> Trace:
    step = GraphBuilder()
    step.add("weights", NodeType.MEM_LOAD_NODE, [("tensor_size", "int64", 1000)])
    return Trace.replicate(step.graph(), ranks=2)


def unlike() -> Trace:
    first, second = GraphBuilder(rank=0), GraphBuilder(rank=1)
    first.all_reduce("a", size=1000)
    second.all_reduce("a", size=2000)
    return Trace.from_ranks([first.graph("a"), second.graph("b")])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: (unlike(), machine(2)), "of 1000 bytes on one rank and all-reduce of 2000 bytes on another"),
        (lambda: (memory_access(), replace(machine(2), remote_memory=POOL)), "accesses remote memory"),
        (
            lambda: (collective(4), replace(machine(4, all_reduce="in-switch"), dimensions=(ADDING,))),
            "in-switch",
        ),
        (
            lambda: (
                collective(4),
                replace(machine(2, 2), collectives=Collectives(chunk_order="online-greedy", chunks=4)),
            ),
            "online-greedy",
        ),
        (lambda: (collective(3), machine(2)), "3 ranks"),
    ],
)
def test_what_no_schedule_can_say(make: Any, words: str) -> None:
    trace, platform = make()
    with pytest.raises(InputError, match=words):
        schedule_of(trace, platform)


@pytest.mark.parametrize(
    ("text", "words"),
    [("q=1", "got 'q', expected one of L, o, g, G, O, S"), ("L=1,L=2", "each once"), ("L", "got ''"),
     ("L=-1", "got '-1'"), ("L=1e9", "got '1e9'"), ("G=0.0000001", "at most 6 digits"),
     ("L=" + "9" * 5000, "below 10")],
)  # fmt: skip
def test_parameters_that_are_none(text: str, words: str) -> None:
    with pytest.raises(InputError) as error:
        Model.of(text)
    assert words in str(error.value) and len(str(error.value)) < 300


def test_parameters_of_a_fast_network() -> None:
    """Two ranks exchange halves twice."""
    model = Model.of("L=500,o=0,g=0,G=0.02,S=999999999")
    halves = schedule_of(collective(2, size=2000), machine(2, all_reduce="ring")).ranks
    # The first byte is there after L; the receiver is busy for the others before it sends.
    assert set(simulate(halves, model).ends) == {ceil(2 * (500 + 999 * Fraction("0.02")))}
    assert Model.of("") == Model()
