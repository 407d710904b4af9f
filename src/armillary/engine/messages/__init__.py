"""Profile `physical` over a network that moves every message: collectives as rounds of sends and receives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from armillary.engine.messages.program import MessageProgram, MessageRun
    from armillary.platform.model import Platform
    from armillary.trace import Trace


def run_messages(
    trace: Trace, platform: Platform, network_model: str
) -> tuple[MessageProgram, MessageRun, dict[str, Any]]:
    """Lower and run; returns the program, its final state and what a timeline says about the machine.

    Raises:
        InputError: the trace does not fit the platform, or something in it cannot be simulated.
    """
    from armillary.engine.messages.lower import lower_messages
    from armillary.engine.messages.run import events, execute
    from armillary.engine.messages.stages import stages_of
    from armillary.engine.physical import machine_info
    from armillary.engine.transport.models import transport_of
    from armillary.platform import check_physical
    from armillary.trace.expand import expand_for

    check_physical(platform)
    transport = transport_of(network_model, platform)
    program = lower_messages(
        expand_for(trace, f"network model {network_model}"), platform, stages_of(platform)
    )
    run = execute(program, transport)
    return program, run, machine_info(program, platform) | {"events": events(run)}
