"""Checks that a network model fulfils its contract, to be called from the tests of the package that provides it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from armillary.base.errors import ArmillaryError
from armillary.engine import simulate
from armillary.engine.transport.models import transport_of
from armillary.engine.transport.offer import offer
from armillary.platform.model import Platform
from armillary.platform.network import Dimension
from armillary.platform.topology.dimension_order import DimensionOrder
from armillary.platform.topology.grids import from_dimensions
from armillary.trace import CollectiveType, GraphBuilder, Trace

SIZES = (0, 1, 4096, 100_000, 1_000_000)
"""Sizes of messages to try, in bytes."""
MESSAGES = 40
"""Number of messages, which begin within `SPAN` ps, between random NPUs."""
# 20 µs: 1 MB takes longer than this on the slow dimension, so that messages meet on links.
SPAN = 20_000_000
ALONE = 1000
"""ps by which the latency of a message on an idle network may depend on its start: one tick."""


_COLLECTIVES = (
    CollectiveType.ALL_REDUCE, CollectiveType.ALL_GATHER, CollectiveType.REDUCE_SCATTER, CollectiveType.ALL_TO_ALL,
    CollectiveType.BROADCAST, CollectiveType.BARRIER,
)  # fmt: skip
# Factor 64, so that "more takes no less" is not about rounding.
_BYTES = (1000, 64_000)
"""Sizes of what runs, in bytes."""


def check_network_model(name: str, platform: Platform | None = None) -> None:
    """Check a network model of profile physical that is built in or installed.

    Messages must arrive, none before it leaves, whatever else is on its way; alone, a larger one no earlier, and as
    soon whenever it leaves; the same messages at the same times, also in a second simulation. Then collectives and
    messages of all kinds run to their end on the machine, twice in the same time, and more bytes take no less.

    Args:
        name: Its entry point, or a built-in name.
        platform: A machine of at least 4 NPUs whose network has dimensions, with the options of the model
            (`Platform.network_model`, `Platform.packets`); absent: 4 x 4 NPUs, a ring and a switch.

    Raises:
        AssertionError: it does not; the message says in what.
        InputError: there is none of that name.
    """
    machine = platform or sample_machine()
    # Analytical counts phases and has no messages to check.
    moves = name != "analytical"
    if moves:
        # For its errors, before anything is tried.
        transport_of(name, machine)
    try:
        if moves:
            _check_messages(name, machine)
        _check_runs(name, machine)
    except ArmillaryError as error:
        raise AssertionError(str(error)) from error


def sample_machine() -> Platform:
    """Return 4 x 4 NPUs: rings, joined by switches."""
    return Platform(
        (Dimension("ring", "Ring", 4, 100.0, 200.0), Dimension("switch", "Switch", 4, 25.0, 500.0))
    )


def _check_messages(name: str, machine: Platform) -> None:
    # Dimension order: one route per pair, so that no choice of route hides an error of the model.
    routing = DimensionOrder(from_dimensions(machine.dimensions))

    def moved(
        source: ArrayLike, target: ArrayLike, size: ArrayLike, begin: ArrayLike = 0
    ) -> NDArray[np.int64]:
        # Interpreted: nothing is compiled for forty messages.
        found = offer(transport_of(name, machine), routing, source, target, size, begin, mode="interpreted")
        return found.arrived

    source, target = 0, machine.npus - 1
    before = 0
    for size in SIZES:
        (alone,) = moved(source, target, size).tolist()
        what = f"{name}: a message of {size} bytes that leaves at 0 ps"
        assert alone >= 0, f"{what} never arrives"
        assert alone >= before, f"{what} arrives at {alone} ps, one of fewer bytes at {before} ps"
        (later,) = moved(source, target, size, SPAN).tolist()
        assert abs(later - SPAN - alone) <= ALONE, (
            f"{what} takes {alone} ps, one that leaves at {SPAN} ps takes {later - SPAN} ps: the network was idle"
        )
        before = alone
    # A message to itself crosses no link.
    (here,) = moved(source, source, SIZES[-1], SPAN).tolist()
    assert here == SPAN, f"{name}: a message of an NPU to itself takes {here - SPAN} ps, expected none"
    draw = np.random.default_rng(0)
    starts, ends = draw.integers(machine.npus, size=(2, MESSAGES))
    # Begins are whole ns: events of the engines fall on ticks.
    sizes, begin = draw.choice(SIZES, MESSAGES), draw.integers(SPAN // 1000, size=MESSAGES) * 1000
    # Twice, with new transports: no state may be left from before.
    one, other = (moved(starts, ends, sizes, begin) for _ in range(2))
    lost, early = np.flatnonzero(one < 0), np.flatnonzero(one < begin)
    assert not len(lost), f"{name}: {len(lost)} of {MESSAGES} messages never arrive"
    assert not len(early), f"{name}: {len(early)} of {MESSAGES} messages arrive before they leave"
    assert (one == other).all(), f"{name}: the same messages arrive at other times when moved again"


def _check_runs(name: str, machine: Platform) -> None:
    for what, small, large in _workloads(machine.npus):
        runs = [simulate(trace, machine, network_model=name) for trace in (small, small, large)]
        for run in runs:
            assert (run.node_end >= run.node_start).all(), f"{name}: {what}: a node ends before it begins"
        first, again, more = runs
        assert (first.node_end == again.node_end).all(), f"{name}: {what} takes another time when run again"
        assert more.total_ticks >= first.total_ticks, (
            f"{name}: {what} takes {first.total_ticks} ns, with more bytes {more.total_ticks} ns"
        )
        # Barriers carry no bytes.
        if first.network is not None and what != "barrier":
            assert first.network.use.size.any(), f"{name}: {what} moves no bytes over links"


def _workloads(npus: int) -> Iterator[tuple[str, Trace, Trace]]:
    """Yield what is done, with few bytes and with more."""
    for kind in _COLLECTIVES:
        made = []
        for size in _BYTES:
            b = GraphBuilder()
            b.collective("call", kind, 0 if kind == CollectiveType.BARRIER else size)
            made.append(Trace.replicate(b.graph(), npus))
        yield kind.name.lower().replace("_", "-"), made[0], made[1]
    pair = []
    for size in _BYTES:
        builders = [GraphBuilder(rank=rank) for rank in range(npus)]
        # Both directions of the ring of ranks: every rank sends to the next and receives from the one before.
        for rank, b in enumerate(builders):
            b.send((rank + 1) % npus, size, 0)
            b.recv((rank - 1) % npus, size, 0)
        pair.append(Trace.from_ranks([b.graph() for b in builders]))
    yield "a message to the next rank", pair[0], pair[1]
