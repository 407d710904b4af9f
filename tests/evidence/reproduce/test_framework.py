"""What all reproductions share: assumptions become options, claims become verdicts, and a page needs nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import click
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.base.units import format_time, parse_time
from armillary.cli.validate.reproduce import STUDIES
from armillary.cli.validate.reproduce.studies import study_command
from armillary.evidence.reproduce.assumptions import about, assumed, flag, read, variations
from armillary.evidence.reproduce.judge import (
    DEFINITION,
    VERDICTS,
    Case,
    Expected,
    above,
    at_least,
    at_most,
    below,
    joined,
    judge,
    numbers,
    ours,
    percent,
    share,
    stated,
    stated_share,
)
from armillary.evidence.reproduce.outcome import Claim, Grid, Outcome, changed
from armillary.evidence.reproduce.page import write_page
from armillary.evidence.reproduce.readers import several, time, whole
from armillary.evidence.reproduce.summary import study


@dataclass(frozen=True)
class Assumptions:
    """Of a study of what a wait costs."""

    wait: float = assumed("2 us", parse_time, "a guess", others=("500 ns", "2 us"))
    times: int = assumed("3", whole, "three is a crowd", others=("1",))
    how: str = assumed("slowly", str, "the usual way", choices=("slowly", "fast"))


def run(chosen: Assumptions) -> Outcome:
    """Wait."""
    if chosen.times == 1:
        raise InputError("--times: once is never")
    total = chosen.wait * chosen.times

    def draw(figure: Any) -> None:
        figure.subplots().bar(["wait"], [total])

    grid = Grid("Waits", ("what", "time"), (("<all>", format_time(total)),))
    claim = Claim("Waiting takes > 4 us", "a book", "so it is", (Case("", total, above(4000, format_time)),))
    return Outcome(f"{chosen.times} waits", (grid,), (claim,), draw)


@pytest.fixture
def command() -> click.Command:
    return study_command("wait", Assumptions, run, "Wait.")


def call(command: click.Command, *words: str) -> Result:
    return CliRunner().invoke(command, words, env={"COLUMNS": "100"})


def test_assumptions_are_read_and_varied_one_at_a_time() -> None:
    assert read(Assumptions, {"wait": "1 ms"}) == Assumptions(wait=1e6)
    assert about(Assumptions)["times"].why == "three is a crowd"
    # The default is no variation of itself.
    assert [(name, text) for name, text, _ in variations(Assumptions())] == [
        ("wait", "500 ns"),
        ("times", "1"),
    ]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("wait", "5", "--wait: got '5', which has no unit"),
        ("times", "0", "--times: got '0', expected a whole"),
    ],
)
def test_a_bad_value_is_one_error(name: str, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(Assumptions, {name: text})


def test_the_command_prints_tables_verdicts_and_the_sweep(command: click.Command) -> None:
    result = call(command, "--sweep")
    assert result.exit_code == 0, result.output
    assert "3 waits" in result.output and "<all>  6 µs" in result.output
    assert "1: holds -> does not hold" in result.output
    assert "cannot be: --times: once is never" in result.output
    assert call(command, "--how", "badly").exit_code == 2
    assert "[default: 2 us]" in call(command, "--help").output


def test_files_are_complete(command: click.Command, tmp_path: Path) -> None:
    page, drawn = tmp_path / "wait.html", tmp_path / "wait.png"
    result = call(command, "--html", str(page), "--plot", str(drawn), "--wait", "1 us")
    assert result.exit_code == 0, result.output
    assert drawn.read_bytes().startswith(b"\x89PNG")
    text = page.read_text()
    assert "&lt;all&gt;" in text and 'class="verdict red"' in text and "1 us (default 2 us)" in text
    for link in ("<script", "<link", 'src="http', "@import"):
        assert link not in text
    svg = text[text.index("<svg") : text.index("</svg>") + 6]
    assert ElementTree.fromstring(svg).tag.endswith("svg")


def test_pages_are_the_same_each_time(tmp_path: Path) -> None:
    pages = [tmp_path / "one.html", tmp_path / "two.html"]
    for page in pages:
        write_page("wait", run(Assumptions()), Assumptions, page)
    assert pages[0].read_bytes() == pages[1].read_bytes()


def test_one_file_is_not_written_twice(command: click.Command, tmp_path: Path) -> None:
    same = str(tmp_path / "wait.svg")
    result = call(command, "--plot", same, "--html", same)
    assert isinstance(result.exception, InputError) and "writes the same file" in str(result.exception)
    assert not Path(same).exists()


def test_changed_names_claims_by_their_place() -> None:
    assert changed(run(Assumptions()), run(Assumptions())) == "none"
    assert changed(run(Assumptions()), run(Assumptions(wait=1.0))) == "1: holds -> does not hold"


@pytest.mark.parametrize(
    "module", [study(name) for name in STUDIES], ids=lambda module: module.__name__.rpartition(".")[2]
)
def test_every_assumption_has_a_reason_alternatives_and_bounds(module: Any) -> None:
    for name, known in about(module.Assumptions).items():
        assert not known.why[0].islower() and known.why.endswith(".") and len(known.why) > 15, name
        for text in known.others:
            assert known.parse(text) != known.parse(known.text), name
            assert not known.choices or text in known.choices, name
        if not known.choices:
            unit = known.text.partition(",")[0].partition(" ")[2]
            for bad in ("", "nonsense", f"-1 {unit}".strip(), f"{'9' * 30} {unit}".strip(), "1,,2"):
                with pytest.raises(InputError, match=f"^{flag(name)}: got "):
                    read(module.Assumptions, {name: bad})


def cases(expected: Expected, *ours: float | tuple[float, float]) -> tuple[Case, ...]:
    return tuple(Case(f"case {at}", each, expected) for at, each in enumerate(ours))


def test_a_verdict_follows_from_numbers_and_the_printed_range() -> None:
    assert judge(()) == "open"
    expected = stated(4.6)
    assert judge(cases(expected, 4.33, 4.6, 5.05)) == "holds"
    assert judge(cases(expected, 4.33, 2.0)) == "partly"
    assert judge(cases(expected, 4.1, 5.1, float("inf"), float("nan"))) == "does not hold"
    # An interval agrees as a whole, or reaches into the range.
    assert judge(cases(expected, (4.2, 5.0))) == "holds"
    assert judge(cases(expected, (3.0, 6.0))) == judge(cases(expected, (5.0, 9.0))) == "partly"
    assert judge(cases(expected, (5.1, 9.0))) == "does not hold"


def test_a_share_and_the_rest_are_judged_alike() -> None:
    for part in (0.7, 0.877, 0.05):
        for found in (0.788, 0.942, 0.72, part - 0.049, part + 0.051):
            rest = judge(cases(stated_share(1 - part), 1 - found))
            assert judge(cases(stated_share(part), found)) == rest
    assert judge(cases(stated_share(0.7), 0.788)) == "does not hold"


def test_orders_and_bounds_are_ranges() -> None:
    """An order is strict, a bound is not."""
    assert [judge(cases(above(1), each)) for each in (1.01, 1.0)] == ["holds", "does not hold"]
    assert [judge(cases(below(1), each)) for each in (0.99, 1.0)] == ["holds", "does not hold"]
    assert judge(cases(above(1), (1.0, 1.2))) == "partly"
    assert judge(cases(at_most(1), 1.0)) == judge(cases(at_least(1), 1.0)) == "holds"
    assert judge(cases(at_least(1), float("inf"))) == "holds"


@given(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9), st.floats(-1e9, 1e9), st.booleans())
def test_an_interval_agrees_if_both_ends_do(one: float, two: float, number: float, order: bool) -> None:
    low, high = sorted((one, two))
    for expected in (stated(number), above(number) if order else at_most(number)):
        ends = [judge(cases(expected, each)) == "holds" for each in (low, high)]
        assert (judge(cases(expected, (low, high))) == "holds") == all(ends)
        if any(ends):
            assert judge(cases(expected, (low, high))) != "does not hold"


def test_what_is_printed_beside_a_verdict() -> None:
    few = cases(stated(4.6), 4.33, (2.0, 2.5))
    assert numbers(few) == "4.60x ± 10 %"
    assert ours(few) == "case 0 4.33x, case 1 2.00x to 2.50x"
    assert ours(few * 4) == "2.00x to 4.33x; 4 of 8 agree"
    assert numbers((Case("a", 1, at_most(1)), Case("b", 1, above(2)))) == "at most 1.00x, above 2.00x"
    assert numbers(cases(stated_share(0.7, digits=0), 0.8)) == "70 % ± 5 points"
    assert all(word in DEFINITION for word in VERDICTS) and "± 10 %" in DEFINITION


def test_how_numbers_are_worded() -> None:
    assert (percent(1.032), percent(0.99999), share(0.7877), share(0.7, 0)) == (
        "+3.2 %",
        "+0.0 %",
        "78.8 %",
        "70 %",
    )
    assert (joined(["a"]), joined(["a", "b", "c"])) == ("a", "a, b and c")


def test_lists_have_each_value_once() -> None:
    assert several(whole)("4, 8,4") == (4, 8)
    with pytest.raises(ValueError, match="got '2 s', expected 0 ns to 1 s"):
        time("2 s")
