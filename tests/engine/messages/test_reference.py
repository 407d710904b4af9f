"""Messages on FIFO links: the kernel against the slow reference, every node of every rank, to the tick."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings

from armillary.base.errors import InputError, StuckError
from armillary.base.jit import Mode
from armillary.engine.common.diagnose import check_finished
from armillary.engine.common.result import timeline_of
from armillary.engine.messages.lower import lower_messages
from armillary.engine.messages.run import execute
from armillary.engine.messages.stages import stages_of
from armillary.engine.transport.congestion import Congestion
from armillary.engine.transport.use import link_use

from ..physical.programs import Case
from .programs import in_switches, programs
from .reference import MessageMachine


def kernel(case: Case, mode: Mode) -> tuple[list[dict[int, tuple[int, int]]] | str, dict[int, int]]:
    """Return (start, end) by node id of every rank, or "stuck", and the bytes on every link that carried any."""
    trace, platform = case.trace(), case.platform
    stages = stages_of(platform)
    program = lower_messages(trace, platform, stages)
    run = execute(program, Congestion(), mode)
    use = link_use(run.net, stages[0].topology)
    carried = {link: size for link, size in enumerate(use.size.tolist()) if size}
    assert (use.series.sum(axis=1) == use.size).all()
    try:
        check_finished(program, run)
    except StuckError:
        return "stuck", carried
    timeline = timeline_of(program, run, platform, {})
    result = []
    for rank in range(trace.n_ranks):
        start, end = timeline.spans(int(timeline.rank_class[rank]))
        ids = trace.graph(rank).ids.tolist()
        result.append(dict(zip(ids, zip(start.tolist(), end.tolist(), strict=True), strict=True)))
    return result, carried


def expected(case: Case) -> tuple[list[dict[int, tuple[int, int]]] | str, dict[int, int]]:
    """Return the same as `kernel`, of the reference."""
    reference = MessageMachine(case.trace(), case.platform)
    reference.run()
    carried = {link: size for link, size in reference.carried.items() if size}
    spans = [
        {node.id: (node.start, node.end) for node in reference.ranks[rank]}
        for rank in range(len(reference.ranks))
    ]
    stuck = any(end < 0 for rank in spans for _, end in rank.values())
    return "stuck" if stuck else spans, carried


@settings(deadline=None, max_examples=60)
@given(programs())
def test_the_kernel_is_the_reference(case: Case) -> None:
    wanted = expected(case)
    for mode in ("interpreted", "compiled"):
        assert kernel(case, mode) == wanted, mode


@settings(deadline=None, max_examples=60)
@given(in_switches())
def test_collectives_in_switches_are_those_of_the_reference(case: Case) -> None:
    try:
        wanted = expected(case)
    except InputError as error:
        reason = str(error).rpartition(": ")[2]  # which call it is, the reference does not say
        with pytest.raises(InputError, match=re.escape(reason)):
            kernel(case, "interpreted")
        return
    for mode in ("interpreted", "compiled"):
        assert kernel(case, mode) == wanted, mode
