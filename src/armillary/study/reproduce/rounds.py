"""All-reduces as rounds of messages on a transport: an NPU sends those of a round when it has all of the one before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from armillary.engine.transport import layout_kernel as lk
from armillary.engine.transport.network import Routes, Stage, lower_network
from armillary.engine.transport.transport import Room, Transport, first_state
from armillary.engine.transport.use import LinkUse, link_use
from armillary.errors import ArmillaryError
from armillary.jit import Mode, load
from armillary.platform.topology.routing import Routing

Ints = NDArray[np.int64]
Algorithm = Literal["direct", "ring"]


@dataclass(frozen=True)
class Round:
    """Messages that need nothing of each other: (messages) NPUs and bytes."""

    source: Ints
    target: Ints
    size: Ints


def exchange(groups: Ints, size: int, algorithm: Algorithm) -> list[Round]:
    """Return the rounds of a reduce-scatter, or of an all-gather, of `size` bytes in every group.

    Args:
        groups: (groups, members) NPUs.
        size: Bytes of the vector of each NPU; a member has a part of it before an all-gather.
        algorithm: `direct`: a part to every other member at once; `ring`: a part to the next, members - 1 times.
    """
    members = groups.shape[1]
    part = -(-size // members)
    shifts = [np.roll(groups, -shift, axis=1).ravel() for shift in range(1, members)]
    source = groups.ravel()
    if algorithm == "ring":
        return [Round(source, shifts[0], np.full(source.size, part)) for _ in shifts]
    if not shifts:
        return []
    every = np.concatenate(shifts)
    return [Round(np.tile(source, len(shifts)), every, np.full(every.size, part))]


def flat(npus: int, size: int, algorithm: Algorithm) -> list[Round]:
    """Return the rounds of an all-reduce among all NPUs: reduce-scatter, then all-gather."""
    return 2 * exchange(np.arange(npus).reshape(1, -1), size, algorithm)


def hierarchical(npus: int, group: int, size: int, algorithm: Algorithm) -> list[Round]:
    """Return the rounds of an all-reduce in groups of `group`: scatter there, reduce across groups, gather there."""
    local = np.arange(npus).reshape(-1, group)
    within = exchange(local, size, algorithm)
    return within + 2 * exchange(local.T, -(-size // group), algorithm) + within


def run(
    rounds: Sequence[Round], transport: Transport, routing: Routing, mode: Mode = "compiled"
) -> tuple[Ints, LinkUse]:
    """Move the messages of rounds, in which every NPU takes part.

    Returns:
        (rounds) ps at which the last message of each arrived, and what links carried.

    Raises:
        ArmillaryError: A message never arrives.
    """
    topology = routing.topology
    source, target, size = (
        np.concatenate([getattr(one, name) for one in rounds]) for name in ("source", "target", "size")
    )
    number = np.repeat(np.arange(len(rounds)), [one.source.size for one in rounds])
    stage, routes = Stage(0.0, routing), Routes()
    pairs, route = np.unique(source * topology.npus + target, return_inverse=True)
    routes.add(stage, pairs // topology.npus, pairs % topology.npus)
    transport = transport.on(topology, routes)
    table = lower_network([stage], routes, transport.options(topology), transport.tables(topology))
    order = np.lexsort((np.arange(len(source)), source, number))
    begin = np.searchsorted(
        (number * topology.npus + source)[order], np.arange(len(rounds) * topology.npus + 1)
    )
    missing = np.zeros((len(rounds), topology.npus), np.int64)
    np.add.at(missing, (number, target), 1)

    kernel = load("armillary.engine.transport.offer_kernel", mode, transport.name)
    net, room = first_state(transport, topology, mode, routes.count), Room(transport, mode)
    offers = np.zeros((len(source), 4), np.int64)
    issued, arrived = np.zeros(len(source), np.int64), np.full(len(source), -1, np.int64)
    ends, at = np.zeros(len(rounds), np.int64), np.zeros(topology.npus, np.int64)
    ready = [(0, npu) for npu in range(topology.npus)]
    fixed: Any = table if mode == "compiled" else table.tolist()
    count = taken = done = 0
    while done < len(source):
        for step, npu in ready:
            chosen = order[begin[step * topology.npus + npu] : begin[step * topology.npus + npu + 1]]
            new = slice(count, count + len(chosen))
            offers[new, 0], offers[new, 1], offers[new, 2] = net[lk.N_NOW], route[chosen], size[chosen]
            issued[new] = chosen
            count += len(chosen)
        ready = []
        given: Any = offers[:count].ravel()
        room.fit(net)
        before = taken
        taken = kernel.run(
            fixed,
            net,
            room.pool,
            room.queue,
            given if mode == "compiled" else given.tolist(),
            arrived,
            taken,
            1,
        )
        fresh = np.flatnonzero(arrived[:count] == net[lk.N_NOW])
        if not len(fresh) and taken == before and net[lk.N_STATUS] != lk.GROW:
            raise ArmillaryError(f"{count - done} messages never arrive: their connections were given up")
        done += len(fresh)
        for message in issued[fresh].tolist():
            npu = int(target[message])
            ends[number[message]] = net[lk.N_NOW]
            missing[number[message], npu] -= 1
            while at[npu] + 1 < len(rounds) and missing[at[npu], npu] == 0:
                at[npu] += 1
                ready.append((int(at[npu]), npu))
    return ends, link_use(np.asarray(net, np.int64), topology)
