"""Kernels whose every array access is checked: over programs in which very much happens at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from armillary import jit
from armillary.engine import program as astra_sim
from armillary.engine import run as astra_sim_run
from armillary.engine.messages import run as messages_run
from armillary.engine.messages.lower import lower_messages
from armillary.engine.messages.stages import stages_of
from armillary.engine.physical import lower as physical
from armillary.engine.physical import run as physical_run
from armillary.engine.transport.models import transport_of
from armillary.errors import InputError
from armillary.jit import Mode
from armillary.platform.model import Platform
from armillary.trace import Trace

from .crowds import crowds, machines, trace_of

Lower = Callable[[Trace, Platform], Any]
Execute = Callable[[Any, Mode], Any]
POINT_TO_POINT = ("compute", "skip", "memory", "message", "message")
ALL = (*POINT_TO_POINT, "collective")


def analytical(trace: Trace, platform: Platform, mode: Mode) -> Any:
    """Profile physical: messages that share ports."""
    return physical_run.execute(physical.lower(trace, platform), mode)


def moved(model: str) -> Callable[[Trace, Platform, Mode], Any]:
    """Profile physical: messages that cross links."""

    def run(trace: Trace, platform: Platform, mode: Mode) -> Any:
        program = lower_messages(trace, platform, stages_of(platform))
        return messages_run.execute(program, transport_of(model, platform), mode)

    return run


def unaware(trace: Trace, platform: Platform, mode: Mode, **options: bool) -> Any:
    """Profile astra-sim."""
    return astra_sim_run.execute(astra_sim.lower(trace, platform, **options), mode)


def by_message(trace: Trace, platform: Platform, mode: Mode) -> Any:
    """Profile astra-sim, every message of the collectives."""
    return unaware(trace, platform, mode, messages=True)


def aware(trace: Trace, platform: Platform, mode: Mode) -> Any:
    """Profile astra-sim: messages that wait for links."""
    return unaware(trace, platform, mode, contention=True)


PHYSICAL = {"analytical": analytical} | {name: moved(name) for name in ("congestion", "flow", "packet")}
ASTRA_SIM = {"unaware": unaware, "by message": by_message, "aware": aware}


def agree(
    model: Callable[[Trace, Platform, Mode], Any], trace: Trace, platform: Platform, mode: Mode
) -> None:
    """Run with and without checks; the ticks are the same, and nothing was touched that must not be."""
    try:
        plain = model(trace, platform, mode)
    except InputError:
        return
    with jit.checking():
        checked = model(trace, platform, mode)
    for name in ("NODE_START", "NODE_END"):
        assert plain.table(name).tolist() == checked.table(name).tolist()


@pytest.mark.parametrize("model", PHYSICAL)
@settings(deadline=None, max_examples=12, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_small_crowds(model: str, data: st.DataObject) -> None:
    trace, platform = _draw(data, 30, ALL, False)
    agree(PHYSICAL[model], trace, platform, "interpreted")


@pytest.mark.parametrize("model", ASTRA_SIM)
@settings(deadline=None, max_examples=12, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_small_crowds_of_astra_sim(model: str, data: st.DataObject) -> None:
    trace, platform = _draw(data, 30, ALL, True)
    agree(ASTRA_SIM[model], trace, platform, "interpreted")


def _draw(data: st.DataObject, most: int, kinds: tuple[str, ...], astra: bool) -> tuple[Trace, Platform]:
    platform = data.draw(machines(astra))
    return trace_of(data.draw(crowds(most, kinds)), platform.npus), platform
