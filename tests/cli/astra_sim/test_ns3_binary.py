"""`astra-sim ns3 --ns3-binary`: a stand-in that prints upstream's lines, and what is refused of one that does not.

No build of ASTRA-sim's ns-3 back end is at hand: the stand-in prints the lines that its sources print.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st

import armillary
from armillary import astra_sim
from armillary.base.errors import ConsentError, InputError
from armillary.evidence.ns3_binary import Beside, beside_table, read_finishes, run_binary

Call = Callable[[str], Result]
FLAGS = (
    "astra-sim ns3 --workload-configuration=step --system-configuration=system.json --network-configuration=config.txt "
    "--remote-memory-configuration=memory.json --logical-topology-configuration=logical.json"
)
HEAD = "[2026-03-25 12:00:00.000] [workload] [info] "
# What it first prints, a line of each rank that ends, and what it prints of it besides.
BACK_END = f"""\
print("ASTRA-sim + NS3")
print("There are 4 npus: 4,")
print("maxRtt=2040 maxBdp=102000")
for rank in (2, 0, 1, 3):
    print("{HEAD}sys[%d] finished, %d cycles, exposed communication 9 cycles." % (rank, 1000 + rank // 2))
    print("[2026-03-25 12:00:00.000] [statistics] [info] sys[%d], Wall time: 77" % rank)
print("[2026-03-25 12:00:00.000] [system] [warning] Exiting")
"""


@pytest.fixture
def scratch(inputs: Path) -> Path:
    """Return a folder with the files of the ns-3 back end: four hosts at a switch."""
    (inputs / "star.txt").write_text("5 1 4\n4\n" + "".join(f"{i} 4 400Gbps 0.0005ms 0\n" for i in range(4)))
    (inputs / "config.txt").write_text("TOPOLOGY_FILE star.txt\nCC_MODE 12\nPACKET_PAYLOAD_SIZE 1000\n")
    (inputs / "logical.json").write_text('{"logical-dims": ["4"]}')
    return inputs


def build(folder: Path, source: str) -> Path:
    """Write a program, and return its path."""
    path = folder / "AstraSimNetwork"
    path.write_text(f"#!{sys.executable} -IS\n{source}")
    path.chmod(0o755)
    return path


def test_both_engines_in_one_table(scratch: Path, call: Call) -> None:
    build(scratch, f"import sys\nopen('words', 'w').write('\\n'.join(sys.argv[1:]))\n{BACK_END}")
    result = call(f"{FLAGS} --injection-scale=1.5 --ns3-binary AstraSimNetwork --allow-programs")
    assert result.exit_code == 0, result.output
    alone = call(f"{FLAGS} --injection-scale=1.5 --terse").stdout.splitlines()
    mine = [int(line.split()[2]) for line in alone if "finished" in line]
    lines = result.stdout.splitlines()
    assert lines[0].startswith(f"Last rank: {max(mine):,} cycles here, 1,001 in AstraSimNetwork (+")
    assert lines[1].split() == ["rank", "here", "program", "difference"]
    assert lines[2].split()[:5] == ["0", "to", "1", f"{mine[0]:,}", "1,000"]
    assert lines[3].split()[:5] == ["2", "to", "3", f"{mine[2]:,}", "1,001"]
    # The same files and flags, as its command line takes them.
    assert (scratch / "words").read_text().splitlines() == [
        "--workload-configuration=step", "--system-configuration=system.json", "--network-configuration=config.txt",
        "--logical-topology-configuration=logical.json", "--remote-memory-configuration=memory.json",
        "--injection-scale=1.5",
    ]  # fmt: skip
    assert not (scratch / "log").exists()


def test_it_is_started_with_consent_only(scratch: Path, call: Call) -> None:
    build(scratch, "open('ran', 'w')")
    result = call(f"{FLAGS} --ns3-binary AstraSimNetwork")
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert "--ns3-binary: names the program" in result.stderr and "--allow-programs" in result.stderr
    assert not (scratch / "ran").exists()
    with pytest.raises(ConsentError, match="--ns3-binary: names the program"):
        astra_sim.beside_ns3("AstraSimNetwork", "step", "system.json", "config.txt", "logical.json")


def test_python_gives_the_same(scratch: Path) -> None:
    build(scratch, BACK_END)
    with armillary.allow(programs=True):
        found, log = astra_sim.beside_ns3(
            "AstraSimNetwork", "step", "system.json", "config.txt", "logical.json", "memory.json"
        )
    assert found.theirs == (1000, 1000, 1001, 1001)
    assert list(found.ours) == log.timeline.finish_ticks.tolist()
    assert [(row.first, row.last) for row in found.rows] == [(0, 1), (2, 3)]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import sys; sys.exit('no TOPOLOGY_FILE')", "ended with exit code 1: no TOPOLOGY_FILE"),
        ("", "0 of 4 ranks end in its output, the first that does not is 0"),
        (BACK_END.replace("(2, 0, 1, 3)", "(2, 0, 3)"), "3 of 4 ranks end in its output, the first that does not is 1"),
        (BACK_END.replace("(2, 0, 1, 3)", "(2, 0, 1, 4)"), "got rank 4, expected 0 to 3"),
        (BACK_END.replace("(2, 0, 1, 3)", "(2, 0, 1, 2)"), "rank 2 ends again"),
        (BACK_END.replace("finished, %d", "finished, -%d"), "line 4 of its output"),
        (BACK_END.replace("1000 + ", "10**18 * 99 + "), "cycles, expected at most 9223372036854775807|line 4 of"),
        ("import sys; sys.stdout.buffer.write(b'\\xff\\xfe')", "wrote what is not UTF-8"),
        ("while True: print('x' * 1000000)", "wrote more than 67108864 bytes"),
    ],
)  # fmt: skip
def test_what_is_no_answer_is_refused_in_a_line(scratch: Path, call: Call, source: str, message: str) -> None:
    build(scratch, source)
    result = call(f"{FLAGS} --ns3-binary AstraSimNetwork --allow-programs")
    assert result.exit_code == 2
    last = result.stderr.splitlines()[-1]
    assert last.startswith("armillary: error: --ns3-binary AstraSimNetwork: ")
    assert any(each in last for each in message.split("|"))


def test_one_that_does_not_end_is_ended_with_what_it_has_started(scratch: Path, call: Call) -> None:
    child = "import time; [(open('alive', 'a').write('x'), time.sleep(0.05)) for _ in range(400)]"
    build(
        scratch,
        f"import subprocess, sys, time\nsubprocess.Popen([sys.executable, '-c', {child!r}], start_new_session=True)\n"
        "time.sleep(60)\n",
    )
    began = time.monotonic()
    result = call(f"{FLAGS} --ns3-binary AstraSimNetwork --allow-programs --ns3-timeout 2s")
    assert result.exit_code == 2
    assert "AstraSimNetwork: gave no answer within 2 s" in result.stderr
    assert time.monotonic() - began < 30
    if sys.platform.startswith("linux") and (scratch / "alive").exists():
        size = (scratch / "alive").stat().st_size
        time.sleep(0.3)
        assert (scratch / "alive").stat().st_size == size


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--ns3-binary none --allow-programs", "--ns3-binary: program '"),
        ("--ns3-binary . --allow-programs", "--ns3-binary: program '"),
        ("--ns3-binary AstraSimNetwork --allow-programs --ns3-timeout soon", "--ns3-timeout: "),
    ],
)
def test_wrong_options_are_refused(scratch: Path, call: Call, options: str, message: str) -> None:
    build(scratch, BACK_END)
    result = call(f"{FLAGS} {options}")
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.splitlines()[-1].startswith("armillary: error: ")


def test_a_time_without_a_program_warns(scratch: Path, call: Call) -> None:
    result = call(f"{FLAGS} --terse --ns3-timeout 3s")
    assert result.exit_code == 0
    assert "--ns3-timeout has no effect without --ns3-binary" in result.stderr


def test_a_program_that_is_no_program_is_refused(scratch: Path) -> None:
    path = build(scratch, BACK_END)
    path.write_bytes(b"\x7fELF nothing")
    with (
        armillary.allow(programs=True),
        pytest.raises(InputError, match=r"cannot be started|ended with exit code"),
    ):
        run_binary(path, [], 4, seconds=10)


@given(
    st.permutations(range(5)),
    st.lists(st.integers(0, 2**63 - 1), min_size=5, max_size=5),
    st.text(max_size=40),
)
def test_lines_are_read_in_any_order_beside_others(order: list[int], cycles: list[int], noise: str) -> None:
    other = [] if "finished," in noise else noise.splitlines()
    lines = [
        f"{HEAD}sys[{rank}] finished, {cycles[rank]} cycles, exposed communication 0 cycles."
        for rank in order
    ]
    assert read_finishes("\n".join([*other, *lines, *other]), 5) == cycles


@given(st.text(alphabet="sy[]finshed, 0129cls.\x1b", max_size=60))
def test_any_text_gives_ends_or_a_line(text: str) -> None:
    try:
        read_finishes(f"{HEAD}sys[0] finished,{text}", 1)
    except InputError as error:
        assert "\n" not in str(error)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=60))
def test_rows_hold_every_rank_once(pairs: list[tuple[int, int]]) -> None:
    found = Beside("b", *(tuple(each) for each in zip(*pairs, strict=True)))
    ranks = [rank for row in found.rows for rank in range(row.first, row.last + 1)]
    assert ranks == list(range(len(pairs)))
    assert all(pairs[rank] == (row.ours, row.theirs) for row in found.rows for rank in (row.first, row.last))
    assert found.headline
    assert beside_table(found, 3).row_count <= 4
