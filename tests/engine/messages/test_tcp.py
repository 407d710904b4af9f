"""Workloads over TCP: what finishes on FIFO links finishes there."""

from __future__ import annotations

from hypothesis import given, settings

from armillary.base.errors import StuckError
from armillary.engine.common.diagnose import check_finished
from armillary.engine.messages.lower import lower_messages
from armillary.engine.messages.run import execute
from armillary.engine.messages.stages import stages_of
from armillary.engine.transport.congestion import Congestion
from armillary.engine.transport.tcp import Tcp
from armillary.engine.transport.transport import Transport
from armillary.engine.transport.use import link_use

from ..physical.programs import Case
from .test_reference import programs


def finished(case: Case, transport: Transport) -> tuple[bool, int]:
    """Tell whether all nodes ran, and return the bytes that links carried."""
    stages = stages_of(case.platform)
    program = lower_messages(case.trace(), case.platform, stages)
    run = execute(program, transport, "interpreted")
    carried = int(link_use(run.net, stages[0].topology).size.sum())
    try:
        check_finished(program, run)
    except StuckError:
        return False, carried
    return True, carried


@settings(max_examples=25, deadline=None)
@given(programs())
def test_what_finishes_on_fifo_links_finishes_over_tcp(case: Case) -> None:
    fifo, plain = finished(case, Congestion())
    tcp, with_headers = finished(case, Tcp(min_rto=1))
    assert tcp == fifo
    assert with_headers >= plain
