"""The kernel, folded or not, interpreted or compiled, against the slow reference: every node, to the tick."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

import armillary
from armillary.base.errors import StuckError
from armillary.base.jit import Mode
from armillary.engine.common.diagnose import check_finished
from armillary.engine.common.result import timeline_of
from armillary.engine.physical.lower import lower
from armillary.engine.physical.program import execute
from armillary.platform.memory import MemoryStage, RemoteMemory
from armillary.platform.model import Collectives, Platform
from armillary.platform.network import Dimension, Port
from armillary.report import bound
from armillary.trace import CollectiveType
from tests.engine.physical.reference.evaluate import simulate_slowly

from .programs import Case, cases

VARIANTS: list[tuple[bool, Mode]] = [(True, "compiled"), (False, "compiled"), (True, "interpreted")]


Outcome = list[tuple[int, dict[int, int], dict[int, int]]] | str


def kernel(case: Case, fold: bool, mode: Mode) -> Outcome:
    """Return (finish, start by node id, end by node id) of every rank, or "stuck"."""
    trace = case.trace()
    program = lower(trace, case.platform, fold_ranks=fold)
    run = execute(program, mode)
    try:
        check_finished(program, run)
    except StuckError:
        return "stuck"
    timeline = timeline_of(program, run, case.platform, {})
    result = []
    for rank, cls in enumerate(timeline.rank_class.tolist()):
        ids = trace.graph(rank).ids.tolist()
        start, end = (dict(zip(ids, column.tolist(), strict=True)) for column in timeline.spans(cls))
        result.append((int(timeline.finish_ticks[rank]), start, end))
    return result


def slowly(case: Case) -> Outcome:
    """Return what the reference says."""
    try:
        return list(zip(*simulate_slowly(case.trace(), case.platform), strict=True))
    except StuckError:
        return "stuck"


def check(case: Case, stuck: bool = False) -> None:
    """Kernel and reference agree on every rank, and nothing is stuck that should not be."""
    expected = slowly(case)
    assert stuck or expected != "stuck"
    for variant in VARIANTS:
        assert kernel(case, *variant) == expected, variant


@settings(deadline=None, max_examples=150)
@given(cases())
def test_orderly_programs_never_get_stuck_and_the_kernel_is_the_reference(case: Case) -> None:
    check(case)


@settings(deadline=None, max_examples=50)
@given(cases(orderly=False))
def test_programs_in_which_collectives_race_agree_too(case: Case) -> None:
    check(case, stuck=True)


def test_calls_that_move_nothing_keep_groups_of_other_sizes_apart() -> None:
    """Even ranks work no time, odd ones some; a group of two and a group of three of them exchange nothing."""
    platform = Platform((Dimension("d", "Ring", 5, 10.0, 0.0),), groups={2: (1, 2, 4), 3: (0, 3)})
    nothing = {
        "type": CollectiveType.ALL_TO_ALL, "size": 0, "dims": None, "way": [3, 2, 2, 3, 2], "splits": [0],
        "modulus": 1,
    }  # fmt: skip
    check(Case(platform, (("collective", (), nothing), ("compute", (), {"micros": [0, 1]})), (0, 1)))


def test_groups_of_other_sizes_are_not_alike() -> None:
    """One class of ranks, one number of collectives, but a group of twelve and a group of two."""
    dimensions = tuple(Dimension(f"d{i}", "Ring", n, 10.0, 0.0) for i, n in enumerate((2, 3, 3)))
    groups = {1: (*range(11), 12), 2: (11, 13)}
    way = [*[1] * 11, 2, 1, 2, 0, 0, 0, 0]
    o = {"way": way, "type": CollectiveType.ALL_GATHER, "size": 1, "dims": None, "splits": None}
    check(Case(Platform(dimensions, groups=groups), (("collective", (), o),), (0,)))


@settings(deadline=None, max_examples=50)
@given(cases())
def test_no_program_beats_its_bound(case: Case) -> None:
    timeline = armillary.simulate(case.trace(), case.platform)
    assert bound(timeline).ticks <= timeline.total_ticks


def test_members_of_a_collective_that_moves_nothing_are_told_from_others() -> None:
    ring = tuple(Dimension(f"d{i}", "Ring", 2, 10.0, 0.0, Port(10.0, 10.0)) for i in range(2))
    platform = Platform(ring, stragglers={0: 1.0}, groups={1: (0, 2, 3), 2: (1,)})
    nothing = {"size": 0, "way": [1, 2, 1, 1], "type": CollectiveType.ALL_TO_ALL, "dims": None, "splits": [0],
               "modulus": 1}  # fmt: skip
    check(Case(platform, (("collective", (), nothing),), (0,)))


def test_a_choice_sees_what_comes_back_and_what_other_lines_have() -> None:
    """One late rank: its line holds chunks up, which all members must see, and chunks on the way back count."""
    sizes, rates = (3, 2, 2), (10.0, 4.0, 7.0)
    dimensions = tuple(
        Dimension(f"d{i}", "Ring", n, rate, 100.0, Port(rate, rate))
        for i, (n, rate) in enumerate(zip(sizes, rates, strict=True))
    )
    for late in ({}, {5: 700.0}, {0: 2.5, 7: 4_000.0}):
        for size in (4096, 100_001):
            collectives = Collectives(chunks=8, chunk_order="online-greedy")
            o = {"way": None, "type": CollectiveType.ALL_REDUCE, "size": size, "dims": None, "splits": None}
            message = {"to": [*range(1, 12), 0], "size": size, "tag": 1}
            steps = (("permute", (), message), ("collective", (), o), ("collective", (1,), o))
            platform = Platform(dimensions, collectives=collectives, stragglers=late)
            check(Case(platform, steps, (0, 1, 2)))


@pytest.mark.parametrize("urgent", [1, 5_000])
def test_priorities_hold_in_runs_of_weeks(urgent: int) -> None:
    """What is urgent comes weeks after the transfer that it overtakes, or is one of two with high priorities."""
    platform = Platform((Dimension("d", "Ring", 2, 1.0, 0.0),), scheduling="priority")
    late = {"micros": [(1 << 51) // 1000]}
    long, short = ({"to": [1, 0], "size": size, "tag": tag} for size, tag in ((1 << 52, 1), (1 << 40, 2)))
    steps = (
        ("permute", (), long | {"comm_priority": urgent - 1}), ("compute", (), late),
        ("permute", (1,), short | {"comm_priority": urgent}),
    )  # fmt: skip
    case = Case(platform, steps, (0, 1, 2))
    check(case)
    finish, _, end = slowly(case)[0]
    assert finish == (1 << 52) + (1 << 40) and max(end.values()) == finish
    assert min(value for value in end.values() if value > 1 << 51) == 1000 * late["micros"][0] + (1 << 40)


@pytest.mark.parametrize(("alone", "together"), [(None, None), (None, -1), (2, None), (1, 1)])
def test_an_access_of_a_rank_has_its_priority_as_that_of_a_group_has(
    alone: int | None, together: int | None
) -> None:
    """Two accesses of one tick at one stage share it where neither is more urgent; one may have nothing to move."""
    stages = (MemoryStage("path", "npu", 1, 50.0, 50.0, 2.5), MemoryStage("pool", "machine", 1, 50.0, 50.0))
    memory = RemoteMemory("hierarchical", stages=stages, chunk=5000)
    platform = Platform(
        (Dimension("d", "Ring", 2, 10.0, 0.0),), remote_memory=memory, scheduling="priority", groups={1: (0,)}
    )
    for size in (0, 5000):
        access = {"local": None, "store": False, "modulus": 1}
        steps = (
            ("memory", (), access | {"size": 5000, "way": [1, 0], "comm_priority": together}),
            ("memory", (), access | {"size": size, "way": None, "comm_priority": alone}),
        )  # fmt: skip
        check(Case(platform, steps, (0, 1)))
