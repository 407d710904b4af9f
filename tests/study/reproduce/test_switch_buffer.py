"""The study of switch buffers: its points, and its command."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from armillary.cli import main
from armillary.study.reproduce.switch_buffer import Assumptions, Point, claims, least_buffer, sweep


def test_small_buffers_cost_the_flat_one_more() -> None:
    points = sweep(
        Assumptions(npus=8, group=4, size=1 << 20, buffers=(16 << 10, 1 << 22), min_rto=5e6, repeats=1)
    )
    slow, fast = (each[0].time / each[1].time for each in points.values())
    assert slow > 2
    assert points["flat"][0].dropped > points["flat"][1].dropped == 0
    assert points["flat"][1].time > 1.5 * points["hierarchical"][1].time
    assert points["flat"][0].depth <= 16 << 10
    # Two links, 6 of 8 of what is reduced and gathered, at 100 Gbit/s
    assert points["flat"][1].time > 2 * (1 << 20) / 8 * 4 / 12.5 * 1000
    assert fast >= 1


def test_claims_are_judged_by_the_points() -> None:
    def points(*times: int) -> list[Point]:
        return [Point(1024 << number, time, 0.5 / (number + 1), 0, 0) for number, time in enumerate(times)]

    assert least_buffer(points(900, 109, 100)) == 2048
    assert least_buffer(points(100, 150, 100)) == 4096
    judged = claims({"flat": points(900, 400, 100), "hierarchical": points(50, 120, 100)})
    assert (judged[0].why, judged[0].verdict) == ("with 2 of 3 buffers", "partly")
    assert "flat 4 KiB, hierarchical 4 KiB" in judged[1].why and judged[1].verdict == "partly"


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
