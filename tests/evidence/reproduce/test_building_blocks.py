"""`armillary validate reproduce building-blocks`."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from armillary.cli import main
from armillary.evidence.reproduce import building_blocks
from armillary.evidence.reproduce.building_blocks import Assumptions, Setting, formula, power, run
from armillary.evidence.reproduce.outcome import Outcome

MIB = 1 << 20


@pytest.fixture(scope="module")
def small() -> Outcome:
    return run(Assumptions(npus=(8,), sizes=(64 << 10, 1 << 30)))


def test_the_formula_is_that_of_textbooks() -> None:
    # Thakur et al. 2005, section 4: 2(n-1) steps of S/n, here half of it each way; log n steps of S/2, S/4, … and back.
    assert formula(Setting("Ring", 8, MIB), "ring", 50.0, 500.0) == 14 * (500 + MIB / 16 / 50)
    assert formula(Setting("FullyConnected", 8, MIB), "direct", 10.0, 500.0) == 2 * (500 + MIB / 8 / 10)
    halves = sum(2 * 500 + MIB / 2**k / 100 for k in (1, 2, 3))
    assert formula(Setting("Switch", 8, MIB), "halvingDoubling", 100.0, 500.0) == pytest.approx(2 * halves)
    # On a ring its partners are 1, 2 and 4 away.
    halves = sum(hops * 500 + MIB / 2**k / 50 for k, hops in ((1, 1), (2, 2), (3, 4)))
    assert formula(Setting("Ring", 8, MIB), "halvingDoubling", 50.0, 500.0) == pytest.approx(2 * halves)


def test_listed_algorithms_meet_no_congestion_and_others_do(small: Outcome) -> None:
    agrees, free, *blocks = small.claims
    assert (agrees.verdict, free.verdict) == ("holds", "holds")
    assert "direct on Ring, is slowed down 8.0x" in free.why
    # For 64 KiB direct has fewer latencies on a Ring and a Switch.
    assert [claim.verdict for claim in blocks] == ["partly", "holds", "partly"]
    assert "direct is 2.3x faster for 64 KiB on 8 NPUs" in blocks[2].why


def test_verdicts_follow_from_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(building_blocks.LISTED, "Ring", "direct")
    outcome = run(Assumptions(npus=(8,), sizes=(1 << 30,)))
    verdicts = [claim.verdict for claim in outcome.claims]
    assert verdicts == ["partly", "partly", "does not hold", "holds", "holds"]


def test_a_number_of_npus_is_a_power_of_two() -> None:
    with pytest.raises(ValueError, match="got '12', expected a power of two from 4 to 256"):
        power("12")


def test_the_command(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    words = [
        "validate",
        "reproduce",
        "building-blocks",
        "--npus",
        "4",
        "--sizes",
        "1 MiB",
        "--html",
        str(page),
    ]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    assert "Switch, 1 MiB" in result.output and "halvingDoubling" in result.output
    assert "<svg" in page.read_text() and "--network-model" in page.read_text()
