"""Kernels whose every array access is checked: over programs in which very much happens at once.

Within `jit.checking` a run gets exactly the room that it asks for, an event at a time, so that what an event adds
without asking is found as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.base import jit
from armillary.base.errors import InputError
from armillary.base.jit import Mode
from armillary.collective import synthesize
from armillary.collective.synthesis import OPERATIONS, check_schedule
from armillary.engine.astra_sim import program as astra_sim
from armillary.engine.astra_sim import run as astra_sim_run
from armillary.engine.messages import run as messages_run
from armillary.engine.messages.lower import lower_messages
from armillary.engine.messages.plan import simulate_schedule
from armillary.engine.messages.stages import stages_of
from armillary.engine.physical import lower as physical
from armillary.engine.physical import program as physical_run
from armillary.engine.transport.congestion import Congestion
from armillary.engine.transport.control.dcqcn import Dcqcn
from armillary.engine.transport.credit import Credit
from armillary.engine.transport.flow import Flow
from armillary.engine.transport.models import transport_of
from armillary.engine.transport.offer import offer
from armillary.engine.transport.packet import Packet
from armillary.engine.transport.tcp import Tcp
from armillary.engine.transport.transport import Transport
from armillary.platform.memory import LocalMemory
from armillary.platform.model import Npu, Platform, recorded_machine
from armillary.platform.network import Dimension
from armillary.platform.topology import from_dimensions
from armillary.platform.topology.dimension_order import DimensionOrder
from armillary.trace import GraphBuilder, Trace

from .crowds import Crowd, crowds, machines, trace_of

Model = Callable[[Trace, Platform, Mode], Any]
KINDS = ("compute", "skip", "memory", "message", "message", "collective")
FAST = settings(deadline=None, max_examples=10)
SLOW = settings(deadline=None, max_examples=40)


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


def agree(
    model: Model, trace: Trace, platform: Platform, mode: Mode, checked_mode: Mode | None = None
) -> None:
    """Run with and without checks; the ticks are the same, and nothing was touched that must not be."""
    try:
        plain = model(trace, platform, mode)
    except InputError:
        return
    with jit.checking():
        checked = model(trace, platform, checked_mode or mode)
    for name in ("NODE_START", "NODE_END"):
        assert plain.table(name).tolist() == checked.table(name).tolist()


def draw(data: st.DataObject, most: int, astra: bool) -> tuple[Trace, Platform]:
    platform = data.draw(machines(astra))
    return trace_of(data.draw(crowds(most, KINDS)), platform.npus), platform


@pytest.mark.parametrize("model", PHYSICAL)
@FAST
@given(st.data())
def test_small_crowds(model: str, data: st.DataObject) -> None:
    agree(PHYSICAL[model], *draw(data, 30, False), "interpreted")


@pytest.mark.parametrize("model", ASTRA_SIM)
@FAST
@given(st.data())
def test_small_crowds_of_astra_sim(model: str, data: st.DataObject) -> None:
    agree(ASTRA_SIM[model], *draw(data, 30, True), "interpreted")


TRANSPORTS = (
    Congestion(),
    Flow(),
    Packet(mtu=1000),
    Packet(mtu=1000, buffer=30_000, kmin=1000, kmax=5000, dcqcn=Dcqcn()),
    Credit(packet=512),
    Credit(packet=512, vcs=4, depth=8, switching="store-and-forward"),
    Tcp(buffer=4000),
    Tcp("newreno", buffer=4000, sack=False, persistent=False, jitter=0.0),
    Tcp("dctcp", mark=2000, handshake=True),
)


@pytest.mark.parametrize("transport", TRANSPORTS, ids=lambda transport: transport.name)
@FAST
@given(st.data())
def test_offers(transport: Transport, data: st.DataObject) -> None:
    offers(transport, data, 60, "interpreted")


@pytest.mark.slow
@pytest.mark.parametrize("transport", TRANSPORTS, ids=lambda transport: transport.name)
@SLOW
@given(st.data())
def test_many_offers(transport: Transport, data: st.DataObject) -> None:
    offers(transport, data, 3000, "compiled")


def offers(transport: Transport, data: st.DataObject, most: int, mode: Mode) -> None:
    """Offer messages with and without checks; they arrive at the same times."""
    sizes = data.draw(st.sampled_from([(2,), (5,), (70,), (4, 4)]))
    topology = from_dimensions(
        [
            Dimension(f"d{i}", "Ring", n, data.draw(st.sampled_from([1.0, 10.0])), 500.0)
            for i, n in enumerate(sizes)
        ]
    )
    random = np.random.default_rng(data.draw(st.integers(0, 1000)))
    count = data.draw(st.sampled_from([1, most // 10, most]))
    ends = random.integers(0, data.draw(st.sampled_from([2, topology.npus])), (2, count))
    size = random.choice(data.draw(st.sampled_from([[0], [1, 0], [1500, 0, 20_000]])), count)
    begin = random.integers(0, data.draw(st.sampled_from([1, 10**6])), count)
    key = random.integers(0, data.draw(st.sampled_from([1, 3])), count)

    def arrived() -> list[int]:
        found = offer(transport, DimensionOrder(topology), *ends, size, begin, key=key, mode=mode)
        return found.arrived.tolist()  # type: ignore[no-any-return]

    plain = arrived()
    with jit.checking():
        assert arrived() == plain


@FAST
@given(
    st.integers(2, 5), st.integers(1, 4), st.sampled_from(OPERATIONS), st.sampled_from(["congestion", "flow"])
)
def test_schedules_that_are_searched_for(n: int, m: int, operation: str, model: str) -> None:
    dimensions = (Dimension("a", "Ring", n, 50.0, 500.0), Dimension("b", "FullyConnected", m, 10.0, 0.0))
    platform = Platform(dimensions if m > 1 else dimensions[:1])
    topology = from_dimensions(list(platform.dimensions))

    def simulated() -> tuple[int, int]:
        schedule = synthesize(topology, operation, 1 << 20, tries=2)
        check_schedule(schedule, "interpreted")
        return schedule.messages, simulate_schedule(schedule, platform, model, "interpreted").time

    plain = simulated()
    with jit.checking():
        assert simulated() == plain


@pytest.mark.slow
@pytest.mark.parametrize("model", PHYSICAL)
@SLOW
@given(st.data())
def test_crowds(model: str, data: st.DataObject) -> None:
    agree(PHYSICAL[model], *draw(data, 700, False), "compiled")


@pytest.mark.slow
@pytest.mark.parametrize("model", ASTRA_SIM)
@SLOW
@given(st.data())
def test_crowds_of_astra_sim(model: str, data: st.DataObject) -> None:
    agree(ASTRA_SIM[model], *draw(data, 700, True), "compiled")


@pytest.mark.slow
@pytest.mark.parametrize("model", [*PHYSICAL, *ASTRA_SIM])
@pytest.mark.parametrize("kind", ["message", "collective", "compute"])
def test_thousands_at_once(model: str, kind: str) -> None:
    trace = trace_of([Crowd(kind, 3000, 1000, 0, 1000, 1)], 2)
    dialect = {"dialect": "astra-sim"} if model in ASTRA_SIM else {}
    platform = Platform(
        (Dimension("d", "Ring", 2, 50.0, 500.0),), npu=Npu(memory=LocalMemory(50.0)), **dialect
    )
    agree((PHYSICAL | ASTRA_SIM)[model], trace, platform, "compiled")


@pytest.mark.slow
@pytest.mark.parametrize("model", [*PHYSICAL, *ASTRA_SIM])
def test_five_thousand_ranks(model: str) -> None:
    sizes = (5, 1000)
    graphs = []
    for rank in range(5000):
        b = GraphBuilder(rank=rank)
        b.send((rank + 1) % 5000, 1000)
        received = b.recv((rank - 1) % 5000, 1000)
        if model != "packet":
            b.all_reduce("c", 5000, dims=[True, False], after=[received])
        graphs.append(b.graph(f"rank {rank}"))
    dialect = {"dialect": "astra-sim"} if model in ASTRA_SIM else {}
    npu = Npu(memory=LocalMemory(50.0))
    platform = Platform(tuple(Dimension("d", "Ring", n, 50.0, 500.0) for n in sizes), npu, **dialect)
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
