"""The study of switch buffers: its rounds, its points, and its command."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from armillary.cli import main
from armillary.engine.transport.tcp import Tcp
from armillary.engine.transport.transport import Congestion
from armillary.platform.topology import Shortest, leaf_spine
from armillary.study.reproduce.rounds import Algorithm, Round, flat, hierarchical, run
from armillary.study.reproduce.switch_buffer import Machine, Point, findings, least_buffer, sweep

MACHINE = Machine(8, 4, 100.0, 12.5, 250.0, 1000.0)


def has_all(rounds: list[Round], npus: int, half: int) -> bool:
    """Tell whether after `half` rounds someone has heard of everyone, and after all every NPU has."""
    heard = [{npu} for npu in range(npus)]
    for number, one in enumerate(rounds):
        if number == half and not any(len(them) == npus for them in heard):
            return False
        before = [set(them) for them in heard]
        for source, target in zip(one.source.tolist(), one.target.tolist(), strict=True):
            heard[target] |= before[source]
    return all(len(them) == npus for them in heard)


@pytest.mark.parametrize("algorithm", ["direct", "ring"])
def test_rounds_are_an_all_reduce(algorithm: Algorithm) -> None:
    for rounds in (flat(8, 8000, algorithm), hierarchical(8, 4, 8000, algorithm)):
        assert has_all(rounds, 8, len(rounds) // 2)
        sent = np.concatenate([np.repeat(one.source, one.size) for one in rounds])
        assert np.bincount(sent).tolist() == [2 * 7 * 1000] * 8
    across = [
        one for one in hierarchical(8, 4, 8000, algorithm) if (one.source // 4 != one.target // 4).any()
    ]
    assert sum(int(one.size.sum()) for one in across) == 8 * 2 * 1000


def test_a_round_begins_when_the_one_before_is_there() -> None:
    """A ring on links of which one is slow: it holds up its neighbours one by one."""
    routing = Shortest(leaf_spine(1, 1, 4, 10.0, 100.0))
    ends, use = run(flat(4, 4000, "ring"), Congestion(), routing, mode="interpreted")
    # A message of 1000 bytes takes 100 ns on a link, and cuts through.
    assert ends.tolist() == [(step + 1) * 300_000 for step in range(6)]
    assert use.size.sum() == 4 * 6 * 1000 * 2


def test_small_buffers_cost_the_flat_one_more() -> None:
    points = sweep(MACHINE, Tcp("newreno", min_rto=5), 1 << 20, [16 << 10, 1 << 22], repeats=1)
    slow, fast = (each[0].time / each[1].time for each in points.values())
    assert slow > 2
    assert points["flat"][0].dropped > points["flat"][1].dropped == 0
    assert points["flat"][1].time > 1.5 * points["hierarchical"][1].time
    assert points["flat"][0].depth <= 16 << 10
    # Two links, 6 of 8 of what is reduced and gathered, at 100 Gbit/s
    assert points["flat"][1].time > 2 * (1 << 20) / 8 * 4 / 12.5 * 1000
    assert fast >= 1


def test_findings_say_what_the_points_say() -> None:
    def points(*times: int) -> list[Point]:
        return [Point(1024 << number, time, 0.5 / (number + 1), 0, 0) for number, time in enumerate(times)]

    assert least_buffer(points(900, 109, 100)) == 2048
    assert least_buffer(points(100, 150, 100)) == 4096
    said = findings({"flat": points(900, 400, 100), "hierarchical": points(50, 120, 100)})
    assert said[0] == "hierarchical is faster with 2 of 3 buffers"
    assert "flat 4 KiB, hierarchical 4 KiB" in said[1]


def test_the_command_prints_a_table_and_draws(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    arguments = [
        "--npus",
        "4",
        "--group",
        "2",
        "--size",
        "100KB",
        "--buffers",
        "16KiB,1MiB",
        "--repeats",
        "1",
    ]
    done = CliRunner().invoke(
        main, ["reproduce", "switch-buffer", *arguments, "--plot", str(tmp_path / "a.png")]
    )
    assert done.exit_code == 0, done.output
    assert "buffer per port" in done.output
    assert "16 KiB" in done.output
    assert (tmp_path / "a.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["--group", "3"], "--group is 3, expected a divisor of 4 NPUs: 1, 2, 4"),
        (["--buffers", "100 B"], "buffer of the link from global 0 to npu 0 is 100 bytes"),
        (["--size", "7"], "--size: "),
    ],
)
def test_what_cannot_be_is_refused(option: list[str], message: str) -> None:
    done = CliRunner().invoke(main, ["reproduce", "switch-buffer", "--npus", "4", "--group", "2", *option])
    assert done.exit_code == 2
    assert message in done.output + done.stderr
