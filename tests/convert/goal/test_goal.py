"""GOAL schedules: their grammar, LogGOPSim's published and worked-out times, and the traces made of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import armillary
from armillary.base.errors import InputError
from armillary.convert import front_end
from armillary.convert.goal.loggops import Model, simulate
from armillary.convert.goal.schedule import read_schedule
from armillary.platform.model import Platform
from armillary.platform.network import Dimension
from armillary.trace import check, nodes_of

from .packed import packed

BINOMIAL = """\
num_ranks 8

rank 0 {
l1: recv 1024b from 4
l2: recv 1024b from 2
l3: recv 1024b from 1
}
rank 1 {
l1: recv 1024b from 5
l2: recv 1024b from 3
l3: send 1024b to 0
l3 requires l1
l3 requires l2
}
""" + "".join(
    f"rank {rank} {{\nl1: recv 1024b from {rank + 4}\nl2: send 1024b to {to}\nl2 requires l1\n}}\n"
    for rank, to in ((2, 0), (3, 1))
) + "".join(f"rank {rank} {{\nsend 1024b to {rank - 4}\n}}\n" for rank in range(4, 8))  # fmt: skip
PING = "num_ranks 2\nrank 0 {\nsend 1b to 1\n}\nrank 1 {\nrecv 1b from 0\n}\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "x.goal"
    path.write_text(text)
    return path


def ends(folder: Path, text: str, **model: int) -> tuple[int, ...]:
    return simulate(read_schedule(written(folder, text)), Model(**model)).ends


def test_published_times(tmp_path: Path) -> None:
    """LogGOPSim's README: a binomial reduction of 1,024 bytes on 8 ranks."""
    assert ends(tmp_path, BINOMIAL) == (34914, 24776, 13138, 13138, 1500, 1500, 1500, 1500)
    assert ends(tmp_path, PING) == (1500, 5500)


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        # o; then L and o after it: the receiver's CPU is busy for o and (s - 1) G.
        (2, (10, 10 + 100 + 10 + 3)),
        # Above S the sender ends when the message is matched, at its arrival.
        (9, (10 + 100, 10 + 100 + 10 + 24)),
    ],
)
def test_rendezvous(tmp_path: Path, size: int, expected: tuple[int, int]) -> None:
    assert ends(tmp_path, PING.replace("1b", f"{size}b"), L=100, o=10, g=5, G=3, S=8) == expected


def test_cpus_run_side_by_side_and_gaps_count(tmp_path: Path) -> None:
    calc = "num_ranks 1\nrank 0 {\na: calc 100\nb: calc 50 cpu 1\nc: calc 10 cpu 1\nc requires a\n}\n"
    assert ends(tmp_path, calc) == (110,)
    assert ends(tmp_path, calc.replace("c requires a", "c irequires a")) == (100,)
    # The second send waits for the NIC's gap.
    two = (
        "num_ranks 2\nrank 0 {\nsend 1b to 1\nsend 1b to 1\n}\nrank 1 {\nrecv 1b from 0\nrecv 1b from 0\n}\n"
    )
    assert ends(tmp_path, two, L=0, o=1, g=100) == (101, 102)


def run(path: Path) -> Any:
    return front_end("goal").convert([path])


def test_a_trace_of_a_schedule(tmp_path: Path) -> None:
    made = run(written(tmp_path, BINOMIAL))
    assert made.facts["loggops_ns"][0] == 34914 and "1.5 µs to 34.91 µs" in made.statements[0]
    assert made.trace.n_ranks == 8 and not [
        each for each in [x for graph in made.trace.graphs for x in check(graph)] if each.severity == "error"
    ]
    machine = Platform((Dimension("a", "Switch", 8, 1.0, 100.0),))
    # Three levels: of 1,024 bytes at 1 byte per ns, over two links; at rank 0 messages of different times.
    assert armillary.simulate(made.trace, machine).total_ticks == 3 * (1024 + 200)


def test_wildcards_take_what_comes_first(tmp_path: Path) -> None:
    text = (
        "num_ranks 3 // three\nrank 0 {\na: recv 4b from -1 tag -1\nb: recv 8b from -1\nb requires a\n}\n"
        "/* two\nlines */\nrank 1 {\na: calc 9000\nb: send 8b to 0\nb requires a\n}\nrank 2 {\nsend 4b to 0 tag 7\n}\n"
    )
    made = run(written(tmp_path, text))
    first, second = nodes_of(made.trace.graph(0))
    assert [{name: value for name, _, value, *_ in node.attrs}["comm_src"] for node in (first, second)] == [
        2,
        1,
    ]
    assert (
        armillary.simulate(made.trace, Platform((Dimension("a", "Ring", 3, 1.0, 0.0),))).total_ticks == 9008
    )


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("num_ranks 2", "ranks 2", "x.goal:1: got 'ranks 2', expected 'num_ranks N'"),
        ("num_ranks 2", "num_ranks 0", "num_ranks: got '0'"),
        ("num_ranks 2", "num_ranks " + "9" * 5000, "num_ranks: got '999"),
        ("rank 1 {", "rank 0 {", "x.goal:5: got 'rank 0 {', expected 'rank r {' of another rank"),
        ("rank 1 {", "rank 5 {", "x.goal:5: rank: got '5'"),
        ("send 1b to 1", "sent 1b to 1", "x.goal:3: got 'sent 1b to 1', expected a send"),
        ("send 1b to 1", "send 1b from 1", "expected send … to"),
        ("send 1b to 1", "send 1b to 0", "a message of rank 0 to itself"),
        ("send 1b to 1", "send 1b to -1", "got -1"),
        ("send 1b to 1", "a: send 1b to 1\nb requires a", "x.goal:4: no label b above"),
        ("send 1b to 1", "a: send 1b to 1\na requires a", "requires itself"),
        ("send 1b to 1", "a: send 1b to 1\na: calc 1", "is there twice"),
        ("recv 1b from 0", "recv 1b from 0 tag 3", "never end: they wait"),
        ("recv 1b from 0", "calc 5", "sends without one: 1"),
        ("}\nrank 1", "rank 1", "x.goal:4: got 'rank 1 {', expected a send"),
    ],
)
def test_what_is_no_schedule(tmp_path: Path, old: str, new: str, words: str) -> None:
    with pytest.raises(InputError) as error:
        run(written(tmp_path, PING.replace(old, new, 1)))
    assert words in str(error.value)


def test_operations_that_wait_for_each_other(tmp_path: Path) -> None:
    circle = "num_ranks 1\nrank 0 {\na: calc 1\nb: calc 1\na requires b\nb requires a\n}\n"
    with pytest.raises(InputError, match="2 operations never end"):
        run(written(tmp_path, circle))
    with pytest.raises(InputError, match="ends within rank 0"):
        run(written(tmp_path, "num_ranks 1\nrank 0 {\n"))
    with pytest.raises(InputError, match="blocks of 1 of 40,000 ranks"):
        run(written(tmp_path, "num_ranks 40000\nrank 0 {\na: calc 1\n}\n"))
    with pytest.raises(InputError, match="ends before num_ranks"):
        run(written(tmp_path, "// nothing\n"))


WILD = "num_ranks 2\nrank 0 {\na: recv 4b from -1 tag -1\nb: calc 7 cpu 1\nb irequires a\n}\n"
WILD += "rank 1 {\nsend 4b to 0 tag 3 nic 1\n}\n"


@pytest.mark.parametrize("text", [BINOMIAL, PING, WILD])
def test_binary_as_text(tmp_path: Path, text: str) -> None:
    ranks = read_schedule(written(tmp_path, text))
    path = tmp_path / "x.bin"
    path.write_bytes(packed(ranks))
    assert read_schedule(path) == ranks
    assert run(path).facts == run(written(tmp_path, text)).facts


@pytest.mark.parametrize(
    ("at", "value", "words"),
    [
        (8, b"\xff\xff\xff\xff", "has a table of 4294967295 ranks"),
        (8, b"\x00\x00\x00\x00", "has a table of 0 ranks"),
        (14, b"\x00\x00\x00\x00", "rank 0: its part is bytes 0 to"),
        (22, b"\xff\xff\xff\xff", "rank 0: its part is bytes"),
        (8 + 38, b"\xff\xff\xff\x00", "16.78 M of them"),
        (8 + 38, b"\x02\x00\x00\x00", "2 operations do not fit"),
        (8 + 38 + 12 + 4, b"\x09", "operation 0: got type 9"),
        (8 + 38 + 12 + 5, b"\x00", "got rank 0, expected another of 2"),
        (8 + 38 + 12 + 9, b"\xff" * 8, "expected less than"),
        (8 + 38 + 12, b"\x05", "waits for 5 operations, and 0 say that it does"),
        (8 + 38 + 12 + 23, b"\x03", "more operations wait than the 0"),
    ],
)
def test_binary_that_is_damaged(tmp_path: Path, at: int, value: bytes, words: str) -> None:
    path = tmp_path / "x.bin"
    data = packed(read_schedule(written(tmp_path, PING)))
    path.write_bytes(data[:at] + value + data[at + len(value) :])
    with pytest.raises(InputError) as error:
        run(path)
    assert words in str(error.value) and "\n" not in str(error.value)


def test_binary_that_was_cut(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    data = packed(read_schedule(written(tmp_path, BINOMIAL)))
    for size in range(8, len(data), 7):
        path.write_bytes(data[:size])
        with pytest.raises(InputError):
            run(path)


def test_starts_that_wait_for_starts(tmp_path: Path) -> None:
    """What starts with another, which starts with a third, waits for what the third waits for."""
    path = tmp_path / "a.goal"
    path.write_text(
        "num_ranks 1\nrank 0 {\nd: calc 1000 cpu 3\nc: calc 1 cpu 2\nb: calc 1 cpu 1\na: calc 1\n"
        "c requires d\nb irequires c\na irequires b\n}\n"
    )
    nodes = nodes_of(front_end("goal").convert([path]).trace.graph(0))
    assert [node.data_deps for node in nodes] == [[], [0], [0], [0]]


def test_messages_of_no_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.goal"
    path.write_text(PING.replace("1b", "0b"))
    made = front_end("goal").convert([path])
    assert any("1 byte in the trace: 1" in text for text in made.warnings)
    assert not [problem for rank in range(2) for problem in check(made.trace.graph(rank))]


def test_a_receive_of_another_size_takes_the_message_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "x.goal"
    path.write_text("num_ranks 2\nrank 0 {\nsend 10b to 1\n}\nrank 1 {\nrecv 5000b from 0\n}\n")
    made = front_end("goal").convert([path])
    assert any("not that of their message" in text for text in made.warnings)
    (node,) = nodes_of(made.trace.graph(1))
    assert ("comm_size", 10) in [(each[0], each[2]) for each in node.attrs]
