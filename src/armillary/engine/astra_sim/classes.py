"""From ranks to classes: the phases of all collective calls, and the fold."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from armillary.engine.astra_sim import layout as lk
from armillary.engine.astra_sim.phases import CallChunks, CallPhase, chunks_of_call
from armillary.engine.common.fold import Order, Ring, by_place, fold, pairs_of, world_lines
from armillary.engine.common.items import Workload, check_members, node_of
from armillary.engine.common.network import CollectiveCall

Ints = NDArray[np.int64]
CallPhases = dict[CollectiveCall, CallChunks]
Carried = frozenset[tuple[CollectiveCall, CollectiveCall]]
"""Pairs of calls: work of the first may be left over when the second begins."""


def order_of(phase: CallPhase) -> frozenset[Order]:
    """Return the orders of both variants of a phase."""
    found = set()
    for schedule in phase.schedules:
        # Peers are relative to the member, so one role stands for all; modulo n, as anticlockwise ones are
        # negative.
        peers = () if phase.uniform else tuple(np.unique(schedule.roles[0].send_peer % schedule.n).tolist())
        found.add(Order(schedule.relative, peers, phase.uniform))
    return frozenset(found)


def find_phases(workload: Workload, carried: Carried = frozenset()) -> tuple[CallPhases, list[str]]:
    """Return the phases of every call, and warnings of what is odd about them; `carried`: see `lower`.

    Raises:
        InputError: a rank uses a group it is not in, or a collective cannot run.
    """
    found: CallPhases = {}
    warnings: list[str] = []
    check_members(workload)
    # A call of several nodes is looked up once; the first node that makes it is named in warnings.
    for view in workload.views:
        for j, call in enumerate(view.calls):
            comm = workload.comms.get(call.comm)
            if call not in found:
                where = node_of(view, j)
                found[call] = chunks_of_call(
                    call,
                    comm,
                    workload.platform,
                    where,
                    [a for a, b in sorted(carried, key=repr) if b == call],
                )
                warnings += _oddities(call, found[call].routes[0], where)
    return found, warnings


def _oddities(call: CollectiveCall, found: Sequence[CallPhase], where: str) -> list[str]:
    if not found:
        return [f"{where}: no dimension takes part; the collective takes no time"]
    odd = [f"{where} moves 0 bytes"] if call.size == 0 else []
    for phase in found:
        if phase.schedules and phase.schedules[0].relative == "pair" and phase.n & (phase.n - 1):
            odd.append(
                f"{where}: halvingDoubling all-gather over {phase.n} members runs as in ASTRA-sim, "
                "but not every member gets every block"
            )
    return odd


def classify(workload: Workload, call_phases: CallPhases, structure: NDArray[np.int32]) -> Ints:
    """Return the class of every rank; ranks that share a memory server are each their own."""
    views, view_of = workload.views, workload.view_of
    # A shared memory serves requests in rank order, so no two of its ranks behave alike.
    if workload.platform.remote_memory.kind in ("pool", "per-node") and any(
        (view.nodes.kind == lk.MEMORY).any() for view in views
    ):
        return np.arange(workload.trace.n_ranks)
    patterns: dict[bytes, int] = {}
    pattern = np.array([patterns.setdefault(view.pattern(), len(patterns)) for view in views])
    colour = structure.astype(np.int64) * len(patterns) + pattern[view_of]
    pairs = pairs_of(views, view_of, workload.channels, workload.platform)
    # Pairs of ranks with different distances must not fall into one class.
    colour = by_place(colour, workload.channels)
    return fold(colour, _rings(workload, call_phases), pairs, workload.platform.dimensions)


def _rings(workload: Workload, call_phases: CallPhases) -> list[Ring]:
    orders: dict[tuple[int, int], frozenset[Order]] = defaultdict(frozenset)
    for call, found in call_phases.items():
        # Routes share phases: each is counted once.
        for phase in {phase for route in found.routes for phase in route}:
            orders[(call.comm, phase.dim)] |= order_of(phase)
    rings = []
    for (number, dim), seen in orders.items():
        members = workload.comms.get(number).members
        # dim -1: all members form one line, in the order of the group.
        lines = members[None, :] if dim < 0 else world_lines(workload.platform, dim)
        rings.append(Ring(dim, lines, seen, workload.slots_in(number, lines)))
    return rings
