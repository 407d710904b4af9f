"""`armillary validate reproduce case2`."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from armillary.cli import main
from armillary.evidence.reproduce import case2
from armillary.evidence.reproduce.case2 import Assumptions, run
from armillary.evidence.reproduce.case_machines import MACHINES
from armillary.evidence.reproduce.case_workloads import ALL_REDUCE, Time


def times(*baseline_greedy_optimiser: int) -> dict[str, Time]:
    return {
        name: Time(total, 0, total, 0)
        for name, total in zip(case2.SCHEDULES, baseline_greedy_optimiser, strict=True)
    }


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Time]]:
    """Times of each machine by schedule, which the study takes for the result of simulations."""
    row = {name: times(100, 100, 100) for name in MACHINES}
    row |= {name: times(150, 104, 102) for name in case2.EQUALS}
    names = (ALL_REDUCE, "GPT-3")
    monkeypatch.setattr(case2, "workloads", lambda chosen: dict.fromkeys(names))
    monkeypatch.setattr(case2, "_physical", lambda trace, name, chosen: row[name])
    astra = {name: dict(zip(case2.ASTRA_SIM, row[name].values(), strict=True)) for name in MACHINES}
    monkeypatch.setattr(case2, "_astra_sim", lambda trace, name, chosen: astra[name])
    return row


def test_all_claims_can_hold(made: dict[str, dict[str, Time]]) -> None:
    assert [claim.verdict for claim in run(Assumptions()).claims] == ["holds"] * 6


@pytest.mark.parametrize(
    ("machine", "each", "turned"),
    [
        ("W-1D-350", (100, 101, 100), {1: "partly"}),
        ("Conv-4D", (150, 120, 102), {4: "partly"}),
        ("Conv-4D", (150, 104, 110), {5: "partly"}),
        ("W-2D", (104, 104, 102), {2: "partly", 3: "partly"}),
    ],
)
def test_each_verdict_follows_from_its_numbers(
    made: dict[str, dict[str, Time]], machine: str, each: tuple[int, int, int], turned: dict[int, str]
) -> None:
    made[machine] = times(*each)
    verdicts = [claim.verdict for claim in run(Assumptions()).claims][:5]
    assert verdicts == [turned.get(number, "holds") for number in range(1, 6)]


def test_what_no_schedule_can_change_is_said(made: dict[str, dict[str, Time]]) -> None:
    made["W-2D"] = times(150, 149, 149)
    near = run(Assumptions()).claims[3]
    assert "GPT-3 on W-2D +49.0 % (its 16 tensor parallel ranks reach 250 GB/s of 500 GB/s)" in near.why


def test_schedules_make_two_dimensions_as_good_as_one() -> None:
    chosen = Assumptions(size=10**8)
    trace = case2.workloads(chosen)[ALL_REDUCE]
    one, two = (case2._physical(trace, name, chosen) for name in ("W-1D-500", "W-2D"))
    assert len({time.total for time in one.values()}) == 1
    assert two["baseline"].total > 1.5 * two["greedy"].total
    for schedule, limit in case2.NEAR.items():
        assert abs(two[schedule].total / one[schedule].total - 1) <= limit


@pytest.mark.slow
def test_the_command(tmp_path: Path) -> None:
    drawn, page = tmp_path / "case2.png", tmp_path / "case2.html"
    result = CliRunner().invoke(
        main, ["validate", "reproduce", "case2", "--plot", str(drawn), "--html", str(page)]
    )
    assert result.exit_code == 0, result.output
    assert drawn.read_bytes().startswith(b"\x89PNG")
    # As docs/how-to/reproduce.md says.
    for text in (
        "Conv-3D 1.62x, W-2D 1.93x, Conv-4D 1.30x",
        "12 of 12 agree",
        "9 of 12 agree",
    ):
        assert text in page.read_text()
