"""Kernels whose every array access is checked: over programs in which very much happens at once.

Within `jit.checking` a run gets exactly the room that it asks for, an event at a time, so that what an event adds
without asking is found as well.
"""

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
from armillary.platform.model import Dimension, Platform, System
from armillary.platform.recorded import recorded_machine
from armillary.trace import GraphBuilder, Trace

from .crowds import Crowd, crowds, machines, trace_of

Model = Callable[[Trace, Platform, Mode], Any]
KINDS = ("compute", "skip", "memory", "message", "message", "collective")
FAST = settings(deadline=None, max_examples=10, suppress_health_check=list(HealthCheck))
SLOW = settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))


def analytical(trace: Trace, platform: Platform, mode: Mode) -> Any:
    """Profile physical: messages that share ports."""
    return physical_run.execute(physical.lower(trace, platform), mode)


def unfolded(trace: Trace, platform: Platform, mode: Mode) -> Any:
    """The same, every rank on its own."""
    return physical_run.execute(physical.lower(trace, platform, fold_ranks=False), mode)


def moved(model: str) -> Model:
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


PHYSICAL: dict[str, Model] = {
    "analytical": analytical,
    "unfolded": unfolded,
    **{name: moved(name) for name in ("congestion", "flow", "packet")},
}
ASTRA_SIM: dict[str, Model] = {"unaware": unaware, "by message": by_message, "aware": aware}


def agree(model: Model, trace: Trace, platform: Platform, mode: Mode) -> None:
    """Run with and without checks; the ticks are the same, and nothing was touched that must not be."""
    try:
        plain = model(trace, platform, mode)
    except InputError:
        return
    with jit.checking():
        checked = model(trace, platform, mode)
    for name in ("NODE_START", "NODE_END"):
        assert plain.table(name).tolist() == checked.table(name).tolist()


def _draw(data: st.DataObject, most: int, astra: bool) -> tuple[Trace, Platform]:
    platform = data.draw(machines(astra))
    return trace_of(data.draw(crowds(most, KINDS)), platform.npus), platform


@pytest.mark.parametrize("model", PHYSICAL)
@FAST
@given(st.data())
def test_small_crowds(model: str, data: st.DataObject) -> None:
    agree(PHYSICAL[model], *_draw(data, 30, False), "interpreted")


@pytest.mark.parametrize("model", ASTRA_SIM)
@FAST
@given(st.data())
def test_small_crowds_of_astra_sim(model: str, data: st.DataObject) -> None:
    agree(ASTRA_SIM[model], *_draw(data, 30, True), "interpreted")


@pytest.mark.slow
@pytest.mark.parametrize("model", PHYSICAL)
@SLOW
@given(st.data())
def test_crowds(model: str, data: st.DataObject) -> None:
    agree(PHYSICAL[model], *_draw(data, 700, False), "compiled")


@pytest.mark.slow
@pytest.mark.parametrize("model", ASTRA_SIM)
@SLOW
@given(st.data())
def test_crowds_of_astra_sim(model: str, data: st.DataObject) -> None:
    agree(ASTRA_SIM[model], *_draw(data, 700, True), "compiled")


@pytest.mark.slow
@pytest.mark.parametrize("model", [*PHYSICAL, *ASTRA_SIM])
@pytest.mark.parametrize("kind", ["message", "collective", "compute"])
def test_thousands_at_once(model: str, kind: str) -> None:
    trace = trace_of([Crowd(kind, 3000, 1000, 0, 1000, 1)], 2)
    dialect = {"dialect": "astra-sim"} if model in ASTRA_SIM else {}
    platform = Platform(
        (Dimension("d", "Ring", 2, 50.0, 500.0),), System(local_mem_bandwidth=50e9), **dialect
    )
    agree((PHYSICAL | ASTRA_SIM)[model], trace, platform, "compiled")


@pytest.mark.slow
@pytest.mark.parametrize("model", [*PHYSICAL, *ASTRA_SIM])
def test_five_thousand_ranks(model: str) -> None:
    sizes = (50, 100)
    graphs = []
    for rank in range(5000):
        b = GraphBuilder(rank=rank)
        b.send((rank + 1) % 5000, 1000)
        received = b.recv((rank - 1) % 5000, 1000)
        if model != "packet":
            b.all_reduce("c", 5000, dims=[True, False], after=[received])
        graphs.append(b.graph(f"rank {rank}"))
    dialect = {"dialect": "astra-sim"} if model in ASTRA_SIM else {}
    system = System(local_mem_bandwidth=50e9)
    platform = Platform(tuple(Dimension("d", "Ring", n, 50.0, 500.0) for n in sizes), system, **dialect)
    agree((PHYSICAL | ASTRA_SIM)[model], Trace.from_ranks(graphs), platform, "compiled")


@pytest.mark.parametrize("count", [100, 2000])
def test_a_rank_that_only_replays_starts_any_number_of_nodes_at_once(count: int) -> None:
    trace = trace_of([Crowd("message", count, 0, 0, 1000, count)], 2)
    run = analytical(trace, recorded_machine(2), "interpreted")
    assert set(run.table("NODE_END").tolist()) == {1}


def test_twenty_thousand_messages_wait_behind_one_node() -> None:
    trace = trace_of([Crowd("message", 5000, 1000, 0, 1000, 1)], 2)
    platform = Platform((Dimension("d", "Switch", 2, 50.0, 500.0),))
    run = analytical(trace, platform, "interpreted")
    # 1 ms of waiting, then 20 ns for each message, and the latency of two links
    assert int(run.table("NODE_END").max()) == 1_000_000 + 20 * 5000 + 1000
