"""The study of Themis: its closed form, its bars, and its command."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from armillary.cli import main
from armillary.evidence.reproduce.themis import Assumptions, closed_form, read_machines, run

SMALL = (("W-2D", (("Switch", 32, 500.0), ("Switch", 32, 500.0))),
         ("Conv-3D", (("Ring", 16, 200.0), ("FullyConnected", 8, 100.0), ("Switch", 8, 50.0))))  # fmt: skip
EQUAL = (("W-1D-500", (("Switch", 512, 500.0),)), ("W-2D", (("Switch", 32, 250.0), ("Switch", 16, 250.0))))


def test_the_closed_form_of_a_square_is_a_half_and_a_little() -> None:
    """2 · 31/32 and 2 · 31/1024 of the bytes, at the same bandwidth: (1 + 1/32) / 2."""
    assert closed_form(Assumptions().platform(SMALL[0][1])) == pytest.approx(33 / 64)


def test_claims_hold_with_the_defaults_and_not_with_few_chunks() -> None:
    """The bars of this project: 95 % of the bound on average, 90 % each, 2 points to the closed form."""
    good = run(Assumptions(machines=SMALL, equal=EQUAL))
    verdicts = {claim.text: claim.verdict for claim in good.claims}
    assert verdicts["Themis is within 95 % of the bound on average, within 90 % on each machine"] == "holds"
    assert verdicts["The baseline is within 2 points of its closed form"] == "holds"
    assert verdicts["Themis changes nothing in one dimension"] == "holds"
    assert verdicts["With equal bandwidth per NPU, times are near equal whatever the dimensions"] == "holds"
    assert [grid.header[0] for grid in good.grids] == ["scheduler", "scheduler", "machine"]
    few = run(Assumptions(machines=SMALL, equal=EQUAL, chunks=3))
    assert few.claims[5].verdict == "does not hold"


def test_machines_are_read_from_text() -> None:
    read = read_machines("a b: Ring 4 200 GB/s, Switch 2 1 GB/s; c: Switch 8 400 Gb/s")
    assert read == (("a b", (("Ring", 4, 200.0), ("Switch", 2, 1.0))), ("c", (("Switch", 8, 50.0),)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: Ring 4", "expected 'NAME: TOPOLOGY NPUS BANDWIDTH"),
        ("a: Rng 4 1 GB/s", "did you mean 'Ring'"),
        ("a: Ring 4 1 GB/s; a: Ring 2 1 GB/s", "'a' twice"),
        ("a: Ring 4 1 GB/s", "a has one dimension"),
    ],
)
def test_bad_machines_are_refused(text: str, message: str) -> None:
    done = CliRunner().invoke(main, ["validate", "reproduce", "themis", "--machines", text])
    assert done.exit_code == 2
    assert "--machines" in done.output and message in done.output


def test_the_command_prints_and_draws(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    arguments = ["--machines", "W: Switch 4 50 GB/s, Switch 4 50 GB/s", "--size", "10 MB", "--chunks", "8"]
    arguments += ["--equal", "W-1D: Switch 16 100 GB/s; W: Switch 4 50 GB/s, Switch 4 50 GB/s"]
    done = CliRunner().invoke(
        main, ["validate", "reproduce", "themis", *arguments, "--plot", str(tmp_path / "a.png")]
    )
    assert done.exit_code == 0, done.output
    assert "baseline, closed form" in done.output and "ISCA 2022, Themis" in done.output
    assert (tmp_path / "a.png").stat().st_size > 10_000
