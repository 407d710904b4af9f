"""Folded or not, phases or messages, interpreted or compiled, as registered: the same ticks for every rank and node."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary import simulate
from armillary.base.errors import StuckError
from armillary.base.jit import Mode
from armillary.engine.astra_sim.program import Lowered, lower
from armillary.engine.astra_sim.run import execute
from armillary.engine.astra_sim.settled import is_known, run_astra_sim
from armillary.engine.common.diagnose import check_finished
from armillary.engine.common.lowered import Run
from armillary.engine.common.result import timeline_of
from armillary.platform.files.astra_sim_keys import INTRA_DIMENSION
from armillary.platform.model import Platform

from .fold_cases import KINDS, Case, cases, tied_cases

VARIANTS: list[tuple[bool, bool, Mode]] = [
    (True, False, "interpreted"),
    (True, False, "compiled"),
    (True, True, "compiled"),
    (False, False, "compiled"),
    (False, True, "compiled"),
    (False, True, "interpreted"),
]
Outcome = dict[int, Any] | str


def outcome(case: Case, fold: bool, messages: bool, mode: Mode) -> tuple[Outcome, bool]:
    """Return `result`, and whether it is known to be that of the order of registration."""
    platform = case.platform()
    lowered = lower(case.trace(), platform, fold_ranks=fold, messages=messages)
    run = execute(lowered, mode)
    return result(lowered, run, platform), is_known(lowered, run) and not lowered.carries


def as_registered(case: Case, mode: Mode) -> Outcome:
    """Return `result` where every message of every rank is moved, in the order in which events were registered."""
    platform = case.platform()
    lowered = lower(case.trace(), platform, listed=True)
    run = execute(lowered, mode)
    while carried := lowered.wanted(run):
        lowered = lower(case.trace(), platform, listed=True, carried=carried)
        run = execute(lowered, mode)
    return result(lowered, run, platform)


def result(lowered: Lowered, run: Run, platform: Platform) -> Outcome:
    """Return for every rank its finish, the spans of its nodes and those of its phases, or "stuck"."""
    try:
        check_finished(lowered, run)
    except StuckError:
        return "stuck"
    timeline = timeline_of(lowered, run, platform, {})
    found = {}
    for rank, cls in enumerate(timeline.rank_class.tolist()):
        start, end = timeline.spans(cls)
        rows = timeline.phases(cls)
        columns = (
            timeline.phase_node,
            timeline.phase_chunk,
            timeline.phase_index,
            timeline.phase_dim,
            timeline.phase_start,
            timeline.phase_end,
        )
        found[rank] = (
            int(timeline.finish_ticks[rank]), start.tolist(), end.tolist(),
            sorted(zip(*(column[rows].tolist() for column in columns), strict=True)),
        )  # fmt: skip
    return found


def check(case: Case) -> None:
    """All variants, and the order of registration, agree on every rank, unless they know that the order is in doubt.

    Then a simulation takes the order of registration. Three rings, all of which take no time, and 5 chunks both ways
    are such a case: not folded, ranks take their chunks in another order and wait for each other.
    """
    expected, settled = outcome(case, *VARIANTS[0])
    for variant in VARIANTS[1:]:
        found, sure = outcome(case, *variant)
        assert found == expected or not (settled or sure), f"fold, messages, mode = {variant}"
    if settled:
        assert as_registered(case, "compiled") == expected


def test_bundles_that_take_no_time_have_their_turn_within_the_tick() -> None:
    """Rank 1 ends a collective in the tick in which it starts it, and a receive in between."""
    ring = ["ring", "ring"]
    case = Case(
        {"topology": ["Ring", "Ring"], "npus_count": [4, 2], "bandwidth": [50.0, 50.0], "latency": [500.0, 500.0]},
        {
            "scheduling-policy": "FIFO", "endpoint-delay": 0, "active-chunks-per-dimension": 1,
            "preferred-dataset-splits": 1, "local-mem-bw": 0,
            **{f"{kind}-implementation": ring for kind in KINDS},
        },
        None,
        {"1": list(range(8))},
        ("--num-queues-per-dim=1", "--rendezvous-protocol=false"),
        (
            ("pipeline", (), 1, 0, 1),
            ("pipeline", (0,), 1, 0, 1),
            ("collective", (), 0, 1, None, None, None),
            ("collective", (2,), 1, 1, [False, True], None, None),
            ("collective", (3,), 0, 1, None, None, ["1"] * 8),
        ),
    )  # fmt: skip
    check(case)


def test_a_message_that_was_there_before_its_receive_is_taken_when_the_tick_has_run() -> None:
    """Rank 0 ends two chunk steps at 4,020 ns; the first posts the receive of a message of 3,020 ns.

    Were it taken at once, the second chunk step would count it, and send one message more.
    """
    case = Case(
        {"topology": ["Switch"], "npus_count": [4], "bandwidth": [50.0], "latency": [500.0]},
        {
            "scheduling-policy": "FIFO", "endpoint-delay": 10, "active-chunks-per-dimension": 1,
            "preferred-dataset-splits": 1, "local-mem-bw": 0,
            **{f"{kind}-implementation": ["direct2"] for kind in KINDS},
        },
        None,
        None,
        ("--num-queues-per-dim=1", "--rendezvous-protocol=false"),
        (("pipeline", (), 1, 0, 1), ("collective", (0,), 0, 1, None, None, None)),
    )  # fmt: skip
    check(case)
    expected, _ = outcome(case, *VARIANTS[0])
    assert [expected[rank][0] for rank in range(4)] == [6050, 6040, 6050, 6050]


def test_messages_that_come_in_the_tick_of_their_receive_are_taken_in_the_order_of_registration() -> None:
    """On links of less than a tick the direct algorithm ends after 4 ns; with the receives first it would take 5."""
    case = Case(
        {"topology": ["Ring"], "npus_count": [4], "bandwidth": [50.0], "latency": [0.6]},
        {
            "scheduling-policy": "FIFO", "endpoint-delay": 1, "active-chunks-per-dimension": 1,
            "preferred-dataset-splits": 1, "local-mem-bw": 0,
            **{f"{kind}-implementation": ["direct"] for kind in KINDS},
        },
        None,
        {"1": list(range(4))},
        ("--num-queues-per-dim=1", "--rendezvous-protocol=false"),
        (("collective", (), 0, 1, None, None, None),),
    )  # fmt: skip
    check(case)
    assert not outcome(case, *VARIANTS[0])[1]


def test_ranks_that_may_be_stuck_by_a_tie_are_run_in_the_order_of_registration() -> None:
    """Evaluated by phases, ranks wait for each other before the tie that led there is seen."""
    everyone = ["1"] * 4
    case = Case(
        {"topology": ["Ring", "Ring"], "npus_count": [2, 2], "bandwidth": [50.0] * 2, "latency": [500.0] * 2},
        {
            "scheduling-policy": "FIFO", "endpoint-delay": 10, "active-chunks-per-dimension": 1,
            "preferred-dataset-splits": 1, "local-mem-bw": 0,
            **{f"{kind}-implementation": ["ring", "ring"] for kind in KINDS},
        },
        None,
        {"1": [0, 1, 2, 3]},
        ("--num-queues-per-dim=1", "--rendezvous-protocol=true"),
        (
            ("shift", (), 1, 1, 0),
            ("shift", (), 2, 1, 0),
            ("collective", (1,), 1, 1, None, None, everyone),
            ("compute", (), [0, 2], [0, 1, 0]),
            ("collective", (3,), 1, 1, None, None, everyone),
            ("collective", (4,), 0, 1, None, None, None),
            ("collective", (5,), 0, 1, None, None, None),
            ("collective", (), 0, 1, None, None, everyone),
        ),
    )  # fmt: skip
    check(case)
    lowered, run = run_astra_sim(case.trace(), case.platform(), fold=True, messages=False, contention=False)
    assert lowered.finished(run)


@settings(max_examples=60, deadline=None)
@given(cases())
def test_variants_agree_to_the_tick(case: Case) -> None:
    check(case)


GREEDY = ("offlineGreedy", "offlineGreedyFlex")


@settings(max_examples=40, deadline=None)
@given(cases(), st.sampled_from(GREEDY), st.sampled_from([*INTRA_DIMENSION]))
def test_modes_agree_where_work_of_the_greedy_scheduler_is_left_over(
    case: Case, across: str, within: str
) -> None:
    """Only the order of registration tells which rank is the first to begin a collective."""
    system = case.system | {"inter-dimension-scheduling": across, "intra-dimension-scheduling": within}
    steps = tuple(
        ("collective", (number - 1,) if number else (), number % 3 or 2, 1 << 16, None, None, None)
        if step[0] != "compute" else (*step[:3], [0])
        for number, step in enumerate(case.steps)
    )  # fmt: skip
    case = replace(case, system=system, groups=None, steps=steps)
    check(case)
    assert as_registered(case, "interpreted") == as_registered(case, "compiled")


@settings(max_examples=60, deadline=None)
@given(tied_cases())
def test_what_the_fast_path_does_not_doubt_is_as_registered(case: Case) -> None:
    expected, settled = outcome(case, fold=True, messages=False, mode="compiled")
    registered = as_registered(case, "compiled")
    if settled:
        assert registered == expected
    timeline = simulate(case.trace(), case.platform(), profile="astra-sim") if registered != "stuck" else None
    if timeline is not None:
        assert timeline.finish_ticks.tolist() == [registered[rank][0] for rank in range(case.npus)]


@settings(max_examples=60, deadline=None)
@given(cases(zero=True))
def test_variants_agree_where_things_take_no_time(case: Case) -> None:
    check(case)


@pytest.mark.slow
@settings(max_examples=3000, deadline=None)
@given(cases())
def test_variants_agree_at_length(case: Case) -> None:
    check(case)
