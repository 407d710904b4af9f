"""Long work says how far it is, and ends where it takes too long: by the clock, or by its own forecast."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from numba.core import event

import armillary
from armillary import allow
from armillary.base import allowed
from armillary.base.allowed import Pace, listening
from armillary.base.errors import InputError
from armillary.cli import main

COLLECTIVE = "workload: {collective: all-reduce, size: 64 KiB}\n"
DIMENSIONS = (
    "platform: {network: [{topology: Ring, size: 4, bandwidth: 50 GB/s, latency: 1 us}]}\nprofile: %s\n"
)
GRAPH = (
    "platform: {topology: {kind: leaf-spine, leaves: 2, spines: 1, npus_per_leaf: 2, bandwidth: 50 GB/s, "
    "latency: 1 us}}\n"
)


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def thread_time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(allowed, "time", made)
    return made


def test_it_is_told_how_far_work_is_and_how_long_the_rest_takes(clock: Clock) -> None:
    told: list[str] = []
    with listening(told.append):
        work = Pace("the work", 1000, "steps", "less of it")
        for clock.now, done in ((1.9, 19), (2.0, 20), (2.5, 25), (300.0, 750), (500.0, 2000)):
            work.at(done)
    assert told == [
        "the work: 20 of about 1,000 steps after 2 s, about 98 s more",
        "the work: 750 of about 1,000 steps after 5 min, about 100 s more",
        "the work: about 2,000 steps after 8 min, about 0 s more",
    ]


def test_what_takes_hours_is_refused_soon(clock: Clock) -> None:
    work = Pace("the work", 1e6, "steps", "less of it")
    clock.now = 29.0
    work.at(1000)
    clock.now = 31.0
    with pytest.raises(InputError) as refused:
        work.at(1000)
    assert str(refused.value) == (
        "the work: about 9 h of processor time by its pace (1,000 of about 1 M steps took 31 s), expected at most "
        "40 min: less of it (ARMILLARY_LIMITS=14 raises all limits)"
    )
    with allow(limits=14):
        work.at(1000)


def test_a_compiler_is_no_part_of_the_work(clock: Clock) -> None:
    """On a slow machine with no kernels kept, the first call of one compiles for half a minute."""
    allowed.leave_out_compiler()
    work = Pace("the work", 1e6, "steps", "less of it")
    with event.trigger_event("numba:compile"), event.trigger_event("numba:compile"):
        clock.now = 100.0
    clock.now = 129.0
    work.at(1)
    clock.now = 131.0
    with pytest.raises(InputError, match="1 of about 1 M steps took 31 s"):
        work.at(1)


def test_an_estimate_that_was_too_low_lets_nothing_run_for_ever(clock: Clock) -> None:
    work = Pace("the work", 10, "steps", "less of it")
    clock.now = 2399.0
    work.at(1000)
    clock.now = 2401.0
    with pytest.raises(InputError, match="the work: 40 min of processor time"):
        work.at(1000)


def test_compiled_code_comes_back_about_twice_a_second(clock: Clock) -> None:
    work, done = Pace("the work", 1e7, "steps", "less of it"), 0
    taken = []
    for seconds_each in [1e-7] * 12 + [1e-5] * 20:
        count = work.slice(1 << 21)
        done += count
        clock.now += count * seconds_each
        work.at(done)
        taken.append(count * seconds_each)
    assert taken[11] > 0.1 and max(taken) > 1
    assert taken[-1] < 1


@pytest.mark.parametrize(
    ("study", "loops"),
    [
        (COLLECTIVE + DIMENSIONS % "physical", ("lowering", "network model analytical")),
        (COLLECTIVE + DIMENSIONS % "astra-sim", ("profile astra-sim",)),
        (COLLECTIVE + GRAPH, ("lowering", "leaf-spine: routes")),
    ],
)
def test_every_loop_has_a_pace(
    study: str, loops: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(allowed, "FIRST_WORD", 0.0)
    monkeypatch.setattr(allowed, "NEXT_WORD", 0.0)
    path, told = tmp_path / "study.yaml", list[str]()
    path.write_text(study)
    with listening(told.append):
        armillary.run(path)
    for loop in loops:
        assert any(f"{loop}: " in each for each in told), told
    monkeypatch.setattr(allowed, "MOST_SECONDS", 1e-9)
    done = CliRunner().invoke(main, ["run", str(path)])
    assert isinstance(done.exception, SystemExit) and done.exit_code == 2, done.output
    assert "of processor time by its pace" in done.output
    assert done.output.count("\n") == 1
