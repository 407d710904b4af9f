"""One phase: the recurrence and the messages give the same ticks, from any starts."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.engine.astra_sim import layout as lk
from armillary.engine.astra_sim.collective import Schedule, schedule_for
from armillary.engine.astra_sim.phase_costs import PhaseCosts, Timing, evaluate
from armillary.platform.network import Dimension

OPERATIONS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")


@st.composite
def phases(draw: Any) -> tuple[Schedule, PhaseCosts]:
    """A schedule lowered on a one-dimensional machine or a strided group of a two-dimensional one."""
    n = draw(st.integers(2, 17))
    algorithm = draw(st.sampled_from(["ring", "direct", "halvingDoubling", "doubleBinaryTree"]))
    try:
        schedule = schedule_for(
            algorithm, draw(st.sampled_from(OPERATIONS)), n, window=draw(st.none() | st.integers(1, n)),
            index=draw(st.integers(0, 1)), local=draw(st.booleans()), reverse=draw(st.booleans()),
        )  # fmt: skip
    except InputError:
        assume(False)
        raise
    topology = draw(st.sampled_from(["Ring", "FullyConnected", "Switch"]))
    stride = draw(st.sampled_from([1, 2]))
    dimensions = (
        Dimension(
            "outer", topology, n, draw(st.sampled_from([1.5, 50.0])), draw(st.sampled_from([0.0, 0.7, 500.0]))
        ),
    )
    if stride == 2:
        dimensions = (Dimension("inner", "Ring", 2, 10.0, 3.0), *dimensions)
    timing = Timing(dimensions, draw(st.sampled_from([0.0, 5e10])), draw(st.booleans()))
    costs = PhaseCosts(timing)
    size = draw(st.sampled_from([1, 1000, 65536]))
    members = np.arange(n) * stride
    costs.add(schedule, size, members, draw(st.sampled_from([0, 1, 10])), uniform=draw(st.booleans()))
    return schedule, costs


def starts_of(schedule: Schedule, draw: Any) -> np.ndarray[Any, Any]:
    ticks = st.sampled_from([0, 1, 10, 510, 520]) | st.integers(0, 3000)
    return np.array(draw(st.lists(ticks, min_size=schedule.n, max_size=schedule.n)), np.int64)


@settings(max_examples=150, deadline=None)
@given(phases(), st.data())
def test_recurrence_and_messages_agree(phase: tuple[Schedule, PhaseCosts], data: Any) -> None:
    schedule, costs = phase
    starts = starts_of(schedule, data.draw)
    by_phase = evaluate(costs.relocated, schedule, starts, "interpreted")
    by_message = evaluate(costs.relocated, schedule, starts, "interpreted", messages=True)
    assert (by_phase == by_message).all()
    assert (by_phase[:, 0] >= starts).all()


@settings(max_examples=100, deadline=None)
@given(phases(), st.integers(0, 10**6))
def test_equal_starts_are_known_in_advance(phase: tuple[Schedule, PhaseCosts], tick: int) -> None:
    schedule, costs = phase
    found = evaluate(costs.relocated, schedule, np.full(schedule.n, tick), "interpreted", messages=True)
    table = costs.relocated(0)
    rows, at = int(table[lk.PC_EQUAL_ROWS]), int(table[lk.PC_EQUAL])
    known = table[at : at + 3 * rows].reshape(rows, 3)
    assert (found == tick + np.broadcast_to(known, found.shape)).all()


@settings(max_examples=100, deadline=None)
@given(phases(), st.data())
def test_a_later_start_never_ends_anything_earlier(phase: tuple[Schedule, PhaseCosts], data: Any) -> None:
    schedule, costs = phase
    starts = starts_of(schedule, data.draw)
    later = starts.copy()
    later[data.draw(st.integers(0, schedule.n - 1))] += data.draw(st.integers(1, 2000))
    before, after = (evaluate(costs.relocated, schedule, s, "interpreted")[:, 0] for s in (starts, later))
    assert (after >= before).all()
