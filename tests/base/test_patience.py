"""A run that begins interpreted and goes on as machine code gives the same ticks, wherever it changes over."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.base import patience
from armillary.base.jit import Mode, cache_folder
from armillary.base.patience import Patience
from armillary.engine.astra_sim.program import lower as lower_astra_sim
from armillary.engine.astra_sim.run import execute as execute_astra_sim
from armillary.engine.common.result import timeline_of
from armillary.engine.messages.lower import lower_messages
from armillary.engine.messages.run import execute as execute_messages
from armillary.engine.messages.stages import stages_of
from armillary.engine.physical.lower import lower
from armillary.engine.physical.program import execute
from armillary.engine.transport.congestion import Congestion
from tests.engine.common import fold_cases
from tests.engine.messages.programs import programs
from tests.engine.physical.programs import Case, cases

EVENTS = st.sampled_from([1, 2, 3, 5, 8, 13, 21, 34, 55])


def both(program: Any, platform: Any, run: Any, events: int) -> list[Any]:
    """Return the result interpreted, and that of a run that changes over after so many events."""
    found = []
    for mode in ("interpreted", None):
        # Machine code that another test has loaded would be used from the start.
        with patch.multiple(
            patience,
            SLICE=events,
            LINKING=0.0,
            LOADING=0.0,
            COMPILING=0.0,
            is_loaded=lambda *_: False,
            _spent={},
        ):
            timeline = timeline_of(program, run(mode), platform, {})
        spans = [[column.tolist() for column in timeline.spans(c)] for c in range(len(timeline.finish))]
        found.append((timeline.finish_ticks.tolist(), spans))
    return found


@settings(max_examples=20)
@given(cases(), EVENTS)
def test_the_fluid_network_changes_over(case: Case, events: int) -> None:
    program = lower(case.trace(), case.platform, fold_ranks=True)
    one, other = both(program, case.platform, lambda mode: execute(program, mode), events)
    assert one == other


@settings(max_examples=20)
@given(programs(), EVENTS)
def test_messages_change_over(case: Case, events: int) -> None:
    program = lower_messages(case.trace(), case.platform, stages_of(case.platform))
    one, other = both(
        program, case.platform, lambda mode: execute_messages(program, Congestion(), mode), events
    )
    assert one == other


@settings(max_examples=20)
@given(fold_cases.cases(), EVENTS)
def test_astra_sim_changes_over(case: Any, events: int) -> None:
    platform = case.platform()
    program = lower_astra_sim(case.trace(), platform, fold_ranks=True)
    one, other = both(program, platform, lambda mode: execute_astra_sim(program, mode), events)
    assert one == other


@pytest.mark.parametrize(
    ("kept", "noted", "limit"),
    [("code", "", 0.5), ("nbc", "", 1.0), ("", "", 9.0), ("", "6.5", 2.5), ("", "damaged", 9.0)],
)
def test_a_kernel_is_interpreted_for_as_long_as_its_machine_code_takes(
    kept: str, noted: str, limit: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = cache_folder() / "made"
    folder.mkdir(parents=True)
    if kept == "nbc":
        (folder / "somewhere_kernel.run-1.abc.nbc").touch()
    if kept == "code":
        (cache_folder() / "somewhere_kernel.run.abc.code").touch()
    if noted:
        (cache_folder() / "somewhere_kernel.seconds").write_text(noted)
    clock = [100.0]
    monkeypatch.setattr(patience.time, "thread_time", lambda: clock[0])
    with patch.multiple(patience, LINKING=0.5, LOADING=1.0, COMPILING=9.0, _spent={}):

        def begun(work: float, mode: Mode | None = None) -> Patience:
            return Patience("there.somewhere_kernel", "", mode, work)

        assert begun(1.1 * limit).mode == "compiled" and begun(1e9, "interpreted").mode == "interpreted"
        first = begun(0.4)
        clock[0] += 0.6 * limit
        assert first.mode == "interpreted" and not first.is_over()
        first.end()
        if 0.6 * limit > 1.0:
            # Another process, which has the time of this one from its file.
            patience._spent.clear()
        second = begun(0.0)
        clock[0] += 0.3 * limit
        assert not second.is_over()
        clock[0] += max(0.2 * limit, 1.0)
        assert second.is_over() and second.mode == "compiled" and not second.is_over()
