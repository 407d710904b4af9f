"""A trace on a machine as a GOAL schedule: its computations, and the messages of its collectives.

GOAL knows no collectives: each becomes the sends and receives of the algorithm that the machine takes for it, chunk by
chunk, as the network models that move messages send them. A rank's CPU 0 has its messages, CPU 1 what only waits (it
costs nothing there), CPU 2 reductions, and from CPU 3 on each stream and thread of the trace has its own. What was an
operation of a schedule before has the CPU and NIC that it had there.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil

import numpy as np
from numpy.typing import NDArray

from armillary.base.counts import MOST_RECORDED, check_count
from armillary.base.errors import InputError
from armillary.base.units import format_count
from armillary.collective.algorithms import rounds_alltoallv, rounds_for
from armillary.collective.load import placed
from armillary.collective.rounds import Rounds
from armillary.convert.goal.operation import ANY, CPU, MOST_CPUS, NIC, Kind, Operation
from armillary.engine.common import layout as lk
from armillary.engine.common.items import MEMORY_OPERATIONS
from armillary.engine.common.network import CollectiveCall
from armillary.engine.messages.lower import MessageWorkload
from armillary.engine.physical.lower import Paces
from armillary.engine.physical.nodes import PhysicalNodes
from armillary.engine.physical.phases import PhysicalPhase
from armillary.engine.physical.workload import lines_of
from armillary.platform import Platform, physical_view
from armillary.trace import Trace
from armillary.trace.expand import expand_for

_MESSAGES, _WAITS, _REDUCES, _STREAMS = range(4)
"""CPUs of a rank."""
_TAGS = 1 << 31
Part = tuple[int, Fraction, bool]
"""Of a round: position on the line of the other side, share of the data, and whether it is added there."""
Steps = list[tuple[list[Part], list[Part]]]
"""Of each round, what a member sends and receives."""


@dataclass(frozen=True)
class Scheduled:
    """The operations of every rank, and what the schedule leaves out."""

    ranks: list[list[Operation]]
    warnings: tuple[str, ...]


def schedule_of(trace: Trace, platform: Platform) -> Scheduled:
    """Return the schedule of a trace: what each rank computes, sends and receives on a machine.

    Args:
        trace: The workload.
        platform: Its compute model and memory time computations; its dimensions and algorithms say what messages
            collectives send. Its links are not in the schedule.

    Raises:
        InputError: the trace does not fit the machine, it has something that GOAL cannot say, or it is too long.
    """
    platform = physical_view(platform)
    left_out = []
    if platform.collectives.fit:
        left_out.append(
            "measured times of collectives (collectives.fit): they are messages of their algorithms"
        )
        platform = replace(platform, collectives=replace(platform.collectives, fit=None))
    if platform.terms.slows_communication:
        left_out.append("terms that slow communication")
    build = _Schedule(expand_for(trace, "a GOAL schedule"), platform)
    ranks = [_Rank(build, rank).operations for rank in range(trace.n_ranks)]
    if build.lost:
        left_out.append(f"messages that nobody receives: {format_count(build.lost)}")
    found = [warning for view in build.workload.views for warning in view.nodes.warnings]
    return Scheduled(
        ranks, (*dict.fromkeys(found), *build.warnings, *(f"left out: {text}" for text in left_out))
    )


class _Schedule:
    """What the schedules of all ranks share: the numbers of messages, and the rounds of collectives."""

    def __init__(self, trace: Trace, platform: Platform) -> None:
        self.platform = platform
        self.workload = MessageWorkload(trace, platform)
        self.paces = Paces(self.workload)
        self.warnings: dict[str, None] = {}
        self.count = 0
        """Operations of all ranks so far."""
        self.pair_tags: dict[tuple[int, int], int] = {}
        """Of what sends or receives, by rank and item."""
        self.tags = self.lost = 0
        self._number_messages()
        self._called: dict[tuple[int, int], tuple[CollectiveCall, int]] = {}
        """The calls of each communicator by their place there, and their first tags."""
        self._lines: dict[tuple[int, int], tuple[Rounds, dict[int, tuple[int, list[int]]]]] = {}
        self._steps: dict[tuple[Rounds, int], Steps] = {}

    def _number_messages(self) -> None:
        """Give each message between two ranks a tag of its own: a simulator may let them overtake each other."""
        used: dict[tuple[int, int], int] = defaultdict(int)
        for (_, source, target, _), (sends, receives) in self.workload.read.channels.items():
            first = used[source, target]
            self.lost += max(len(sends) - len(receives), 0)
            self.pair_tags |= {(target, item): first + k for k, item in enumerate(receives)}
            self.pair_tags |= {(source, item): first + k for k, item in enumerate(sends[: len(receives)])}
            used[source, target] += len(receives)
        self.tags = max(used.values(), default=0)

    def tag(self, call: CollectiveCall, place: int, chunks: int) -> int:
        """Return the first of the tags of the chunks of a call, the `place`-th of its communicator.

        Raises:
            InputError: another rank calls something else there.
        """
        key = (call.comm, place)
        if key not in self._called:
            self._called[key] = (call, self.tags)
            self.tags += chunks
            check_count(self.tags, _TAGS, "GOAL tags", "fewer collectives or chunks")
        known, first = self._called[key]
        if known != call:
            raise InputError(
                f"collective {place} of a group is {known.operation} of {known.size} bytes on one rank and "
                f"{call.operation} of {call.size} bytes on another; expected the same on all"
            )
        return first

    def on_line(self, call: CollectiveCall, phase: PhysicalPhase, rank: int) -> tuple[Steps, list[int]]:
        """Return what a rank sends and receives in each round of a phase, and the ranks on its line.

        Raises:
            InputError: switches take part.
        """
        # Phases stay as long as their call, so that their ids are their own.
        key = (call.comm, id(phase))
        if key not in self._lines:
            rounds, order = self._rounds(call, phase), phase.positions
            lines = lines_of(self.platform, self.workload.comms.get(call.comm), phase.dim)
            if phase.dim >= 0:
                dimension = self.platform.dimensions[phase.dim]
                order = placed(rounds, dimension.topology, dimension.size, phase.positions)[1]
            if order != phase.positions:
                lines = lines[:, [phase.positions.index(position) for position in order]]
            self._lines[key] = (
                rounds, {member: (at, line) for line in lines.tolist() for at, member in enumerate(line)}
            )  # fmt: skip
        rounds, members = self._lines[key]
        position, line = members[rank]
        return self._steps_of(rounds, position), line

    def _rounds(self, call: CollectiveCall, phase: PhysicalPhase) -> Rounds:
        if phase.algorithm == "in-switch":
            raise InputError(
                f"{self.platform.source or 'platform'}: collectives: {call.operation}: in-switch, which a GOAL "
                "schedule of sends and receives cannot say; expected another algorithm"
            )
        if call.splits:
            return rounds_alltoallv(np.array(call.splits, np.int64))
        return rounds_for(phase.algorithm, phase.operation, len(phase.positions), chunks=phase.parts)

    def _steps_of(self, rounds: Rounds, member: int) -> Steps:
        if (rounds, member) not in self._steps:
            found: Steps = []
            for each in rounds.rounds:
                moves = each.moves
                apart = moves.source != moves.target
                sends, receives = (
                    [
                        (int(other[at]), Fraction(int(moves.numerator[at]), int(moves.denominator[at])),
                         bool(moves.reduce[at]))
                        for at in np.flatnonzero(apart & (own == member)).tolist()
                    ]
                    for own, other in ((moves.source, moves.target), (moves.target, moves.source))
                )  # fmt: skip
                found += [(sends, receives)] * each.repeat
            self._steps[rounds, member] = found
        return self._steps[rounds, member]


class _Rank:
    """The operations of a rank while they grow."""

    def __init__(self, build: _Schedule, rank: int) -> None:
        self.build, self.rank = build, rank
        self.operations: list[Operation] = []
        self.places: dict[int, int] = defaultdict(int)
        """Calls of a communicator so far."""
        self.view = build.paces.view(rank)
        nodes = self.view.nodes
        assert isinstance(nodes, PhysicalNodes)
        self.nodes = nodes
        self.recorded = [self._recorded(name) for name in (CPU, NIC)]
        self.lasts = nodes.graph.ints("duration_ns", 1)[nodes.order] > 0
        timed = (nodes.kind == lk.FIXED) & (self.recorded[0] < 0)
        self.cpus = {slot: _STREAMS + at for at, slot in enumerate(np.unique(nodes.slot[timed]).tolist())}
        if _STREAMS + len(self.cpus) > MOST_CPUS:
            raise InputError(
                f"rank {rank} uses {len(self.cpus)} streams and threads, expected at most {MOST_CPUS - _STREAMS}: a "
                f"GOAL schedule has {MOST_CPUS} CPUs"
            )
        unslotted = int((timed & (nodes.slot == 0) & (nodes.ticks > 0)).sum())
        if unslotted > 1:
            build.warnings["delays of a rank follow each other: GOAL has a CPU for each computation"] = None
        self._walk()

    def _recorded(self, name: str) -> NDArray[np.int64]:
        """Return (nodes) the CPU or NIC that a node had in a schedule, -1: it comes from none."""
        graph, order = self.nodes.graph, self.nodes.order
        found: NDArray[np.int64] = np.where(graph.has(name), graph.ints(name), -1)[order]
        wrong = np.flatnonzero(graph.has(name)[order] & ((found < 0) | (found >= MOST_CPUS)))
        if len(wrong):
            at = int(wrong[0])
            raise InputError(
                f"{graph.node(int(order[at]))} on rank {self.rank}: {name}: got {found[at]}, expected 0 to "
                f"{MOST_CPUS - 1}"
            )
        return found

    def _walk(self) -> None:
        """Go through the nodes, each after those that it waits for, those of smaller ids first."""
        nodes = self.nodes
        missing = nodes.indegree.tolist()
        first, children = nodes.child_ptr.tolist(), nodes.children.tolist()
        kind, slot = nodes.kind.tolist(), nodes.slot.tolist()
        start = ceil(self.build.platform.stragglers.get(self.rank, 0.0))
        begin = [self._add("calc", start, (), cpu=_WAITS)] if start else []
        waits: list[list[int]] = [list(begin) for _ in kind]
        # A communicator or a stream has one collective at a time.
        lines = {slot[at] for at in range(len(kind)) if kind[at] == lk.COLLECTIVE and slot[at]}
        last: dict[int, list[int]] = defaultdict(list)
        ready = [at for at, count in enumerate(missing) if not count]
        while ready:
            at = heapq.heappop(ready)
            after = waits[at] + (last[slot[at]] if slot[at] in lines else [])
            before = len(self.operations)
            ends = self._node(at, kind[at], list(dict.fromkeys(after)))
            self.build.count += len(self.operations) - before
            check_count(self.build.count, MOST_RECORDED, "GOAL operations", "fewer ranks, layers or chunks")
            if slot[at] in lines:
                last[slot[at]] = ends
            waits[at] = []
            for child in children[first[at] : first[at + 1]]:
                waits[child] += ends
                missing[child] -= 1
                if not missing[child]:
                    heapq.heappush(ready, child)

    def _add(
        self,
        kind: Kind,
        amount: int,
        after: Iterable[int],
        *,
        peer: int = ANY,
        tag: int = 0,
        cpu: int = _MESSAGES,
        nic: int = 0,
    ) -> int:
        self.operations.append(Operation(kind, amount, peer, tag, cpu, nic, ended=sorted(after)))
        return len(self.operations) - 1

    def _together(self, ends: list[int]) -> list[int]:
        """Return one operation that ends with the last of several: so what waits does not have to name them all."""
        return ends if len(ends) < 2 else [self._add("calc", 0, ends, cpu=_WAITS)]

    def _node(self, at: int, kind: int, after: list[int]) -> list[int]:
        """Add what a node does; returns what ends with it."""
        nodes = self.nodes
        if kind == lk.SKIP:
            return self._together(after)
        if kind == lk.FIXED:
            cpu, ticks = int(self.recorded[0][at]), int(nodes.ticks[at])
            if cpu < 0:
                return [self._add("calc", ticks, after, cpu=self.cpus[int(nodes.slot[at])])]
            # A run takes a tick for a computation of none, which a schedule may have.
            return [self._add("calc", ticks if self.lasts[at] else 0, after, cpu=cpu)]
        item = int(nodes.item[at])
        call = self.view.calls[int(self.view.call[item])] if kind == lk.COLLECTIVE else None
        if call and call.operation not in MEMORY_OPERATIONS:
            return self._collective(call, after)
        if kind not in (lk.SEND, lk.RECV):
            raise InputError(
                f"{nodes.graph.node(int(nodes.order[at]))} on rank {self.rank} accesses remote memory, for which GOAL "
                "has no operation; expected a trace without such nodes"
            )
        tag = self.build.pair_tags.get((self.rank, item))
        if tag is None:
            return self._together(after)
        peer, size = int(self.view.peer[item]), int(self.view.size[item])
        what: Kind = "send" if kind == lk.SEND else "recv"
        cpu, nic = (max(int(each[at]), 0) for each in self.recorded)
        return [self._add(what, size, after, peer=peer, tag=tag, cpu=cpu, nic=nic)]

    def _collective(self, call: CollectiveCall, after: list[int]) -> list[int]:
        build, place = self.build, self.places[call.comm]
        self.places[call.comm] += 1
        routes = build.workload.chunk_routes(call)
        if routes.choices:
            raise InputError(
                f"{build.platform.source or 'platform'}: collectives: chunk_order: online-greedy, which chooses during "
                "a run; expected another order for a GOAL schedule, e.g. themis"
            )
        tag = build.tag(call, place, len(routes.chunks))
        after, ends = self._together(after), list[int]()
        for chunk, (size, route) in enumerate(routes.chunks):
            done = after
            for phase in routes.routes[route]:
                done = self._phase(call, phase, size, tag + chunk, done)
            ends += done
        return self._together(list(dict.fromkeys(ends)))

    def _phase(
        self, call: CollectiveCall, phase: PhysicalPhase, size: int, tag: int, after: list[int]
    ) -> list[int]:
        """Add a member's rounds of a phase: each begins when all messages of the one before are there and added."""
        steps, line = self.build.on_line(call, phase, self.rank)
        memory = self.build.platform.npu.memory.bytes_per_s
        for sends, receives in steps:
            done = []
            for other, part, _ in sends:
                moved = max(ceil(part * phase.scale * size), 1)
                done.append(self._add("send", moved, after, peer=line[other], tag=tag))
            for other, part, reduce in receives:
                moved = max(ceil(part * phase.scale * size), 1)
                came = self._add("recv", moved, after, peer=line[other], tag=tag)
                if reduce and memory > 0:
                    came = self._add("calc", ceil(moved / memory * 1e9), [came], cpu=_REDUCES)
                done.append(came)
            after = self._together(done) if done else after
        return after
