"""The study of switch buffers: its points, and its command."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from armillary.cli import main
from armillary.evidence.reproduce.switch_buffer import Assumptions, Point, claims, least_buffer, run, sweep


def test_small_buffers_cost_the_flat_one_more() -> None:
    points = sweep(Assumptions(npus=8, group=4, size=1 << 20, buffers=(16 << 10, 1 << 22), repeats=1), 1, 5e6)
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
    seeds = [
        {"flat": points(900, 400, 110), "hierarchical": points(50, 120, 100)},
        {"flat": points(900, 100, 105), "hierarchical": points(100, 100, 100)},
    ]
    faster, less = claims(seeds)
    # All seeds agree with the first and the third buffer; of the second one does.
    assert [case.interval for case in faster.cases] == [(9, 18), (1, 400 / 120), (1.05, 1.1)]
    assert (faster.verdict, [case.agrees for case in faster.cases]) == ("partly", [True, False, True])
    # As much in the one seed, half in the other.
    assert (less.cases[0].interval, less.verdict) == ((0.5, 1.0), "partly")


def test_a_timeout_is_what_the_ratio_is_made_of() -> None:
    """One step drops and the other does not: the ratio grows by what the timeout grows."""
    chosen = Assumptions(npus=8, group=4, size=1 << 20, buffers=(128 << 10, 1 << 22), repeats=1)
    short, long = (sweep(chosen, 1, rto) for rto in (5e6, 5e8))
    over = [points["flat"][0].time / points["hierarchical"][0].time for points in (short, long)]
    assert short["hierarchical"][0].dropped == 0 < short["flat"][0].dropped
    assert over[1] > 20 * over[0]
    assert short["flat"][1] == long["flat"][1]


def test_intervals_are_over_seeds() -> None:
    chosen = Assumptions(
        npus=8, group=4, size=1 << 20, buffers=(16 << 10, 1 << 22), repeats=1, seeds=(1, 2), min_rto=5e6
    )
    outcome = run(chosen)
    first, last = outcome.claims[0].cases
    assert first.interval[0] < first.interval[1] and last.interval[0] > 1
    assert outcome.grids[1].header[1:] == ("ratio, 5 ms", "flat waits", "hierarchical waits")


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
        "--seeds",
        "1",
    ]
    done = CliRunner().invoke(
        main, ["validate", "reproduce", "switch-buffer", *arguments, "--plot", str(tmp_path / "a.png")]
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
    done = CliRunner().invoke(
        main, ["validate", "reproduce", "switch-buffer", "--npus", "4", "--group", "2", *option]
    )
    assert done.exit_code == 2
    assert message in done.output + done.stderr
