"""Several machines that differ from one in speeds, starts and ports, and when a step ends on each."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np

from armillary.engine.physical.grid import GridWorkload
from armillary.engine.physical.lower import Build
from armillary.engine.physical.program import execute
from armillary.engine.physical.retiming.decisions import (
    Decisions,
    Meet,
    Move,
    Reader,
    Receive,
    Step,
    UnknownTimesError,
)
from armillary.engine.physical.retiming.times import NOTHING, ClassTimes, Floats, Ints, Partition, Time
from armillary.engine.physical.terms.step import ITERATIONS
from armillary.engine.physical.terms.straggler import slowest
from armillary.platform import physical_view
from armillary.platform.model import Platform
from armillary.trace import Trace

CELLS = 1 << 19
"""Ranks times machines that are computed at once: their times fit into a few hundred MB."""


@dataclass(frozen=True, eq=False)
class Machines:
    """What differs on each of some machines, (machines, ranks); None: nothing.

    Attributes:
        speed: Of computation, relative to the machine that was run.
        delay: ns that a rank starts later.
        ports: Share of the bandwidth of each dimension, (machines, ranks, dimensions).
    """

    speed: Floats
    delay: Ints | None = None
    ports: Floats | None = None

    def part(self, which: slice) -> Machines:
        """Return some of the machines."""
        delay, ports = self.delay, self.ports
        return Machines(
            self.speed[which],
            None if delay is None else delay[which],
            None if ports is None else ports[which],
        )


class Retiming:
    """A run whose times are computed anew for machines of other speeds."""

    def __init__(self, trace: Trace, platform: Platform) -> None:
        """Run a trace with a grid on a machine, and read what the run decided.

        Raises:
            UnknownTimesError: the run has something whose times cannot be computed anew.
        """
        self.platform = physical_view(platform)
        if trace.grid is None or platform.terms.overlap or platform.jitter or platform.port_speed:
            raise UnknownTimesError
        self.workload = GridWorkload(trace, self.platform)
        if self.workload.loses_messages:
            raise UnknownTimesError
        program = Build(self.workload, self.workload.classify()).assemble([])
        run = execute(program)
        if not program.finished(run):
            raise UnknownTimesError
        self.iterations = trace.about.get(ITERATIONS, 1)
        self.classes = program.classes
        self.ranks = [np.flatnonzero(self.classes == cls) for cls in range(len(program.representatives))]
        self.views = [self.workload.kind(int(rank)) for rank in program.representatives]
        self.base = np.ones(trace.n_ranks)
        for rank, speed in self.platform.npu.speed.items():
            self.base[rank] = speed
        self.decisions: Decisions = Reader(self.workload, program, run).read()
        self.partitions = self._read_partitions()
        """By class and axis set, the groups of its ranks as cells, and the group of each cell."""
        self._columns: dict[tuple[int, int, int], Ints] = {}
        self.total = self._host(int(run.table("FINISH").max(initial=0)))
        """Ticks of the run."""
        same = Machines(np.ones((1, trace.n_ranks)))
        # Without a difference the times are those of the run; if not, an assumption does not hold.
        if int(self.ends(same)[0]) != self.total:
            raise UnknownTimesError

    def _host(self, ticks: int) -> int:
        terms = self.platform.terms
        found: int = ticks + ceil(terms.step_time * self.iterations) + ceil(terms.step_share * ticks)
        return found

    def _read_partitions(self) -> list[dict[int, tuple[Partition, Ints]]]:
        """Return by class and axis set the groups of its ranks as cells, and the group of each cell."""
        used = {
            (cls, each.axis_set)
            for each in self.decisions.operations
            if isinstance(each, Meet)
            for cls in each.classes
        }
        found: list[dict[int, tuple[Partition, Ints]]] = [{} for _ in self.ranks]
        for cls, axis_set in used:
            groups = self.workload.axis_sets.all[axis_set].group_of[self.ranks[cls]]
            numbers, cell = np.unique(groups, return_inverse=True)
            found[cls][axis_set] = Partition(cell.astype(np.int64)), numbers.astype(np.int64)
        return found

    def ends(self, machines: Machines) -> Ints:
        """Return the ticks of the step on each machine, (machines,)."""
        count, ranks = machines.speed.shape
        each = max(1, CELLS // ranks)
        parts = [_Times(self, machines.part(slice(at, at + each))).run() for at in range(0, count, each)]
        return np.array([self._host(ticks) for part in parts for ticks in part.tolist()], np.int64)

    def columns(self, cls: int, route: int, sender: int) -> Ints:
        """Return where among the ranks of the sending class the peer of each rank of a class is."""
        key = cls, route, sender
        if key not in self._columns:
            peers = self.workload.messages.peers[self.views[cls]]
            table = peers.table[np.searchsorted(peers.ranks, self.ranks[cls]), route]
            at = np.minimum(np.searchsorted(self.ranks[sender], table), len(self.ranks[sender]) - 1)
            if (self.ranks[sender][at] != table).any():
                raise UnknownTimesError
            self._columns[key] = at
        return self._columns[key]


class _Times:
    """The times of all nodes on some machines, while they are computed."""

    def __init__(self, retiming: Retiming, machines: Machines) -> None:
        self.retiming, self.machines = retiming, machines
        self.time: dict[int, Time] = {}
        terms, count = retiming.platform.terms, len(machines.speed)
        # In the order of `Paces`: a last bit can be another tick.
        stretch = 1.0 / (machines.speed * retiming.base)
        if terms.straggler:
            stretch = stretch * slowest(terms.straggler, retiming.platform.npus)
        self.of_class, self.begin = [], []
        for ranks, groups in zip(retiming.ranks, retiming.partitions, strict=True):
            cells = {name: each for name, (each, _) in groups.items()}
            times = ClassTimes(stretch[:, ranks], cells)
            self.of_class.append(times)
            delays = np.array([ceil(retiming.platform.stragglers.get(int(r), 0.0)) for r in ranks[:1]])
            start = np.full((count, 1), int(delays[0]), np.int64)
            if machines.delay is None:
                self.begin.append(Time(start, times.together))
            else:
                self.begin.append(Time(start + machines.delay[:, ranks], times.alone))
        self._cells: dict[tuple[int, int, int, Partition], tuple[Partition, Ints]] = {}

    def run(self) -> Ints:
        """Return the end of the step on each machine."""
        decisions = self.retiming.decisions
        for operation, spent in zip(decisions.operations, decisions.spent, strict=True):
            if isinstance(operation, Step):
                time = self._after(operation.cls, operation.after)
                if operation.kernel is not None:
                    time = time._replace(chain=time.chain.then(operation.kernel))
                self.time[operation.node] = time
            elif isinstance(operation, Meet):
                self._meet(operation)
            elif isinstance(operation, Move):
                self._move(operation)
            else:
                self._receive(operation)
            for node in spent:
                del self.time[node]
        found = np.zeros((len(self.machines.speed), 1), np.int64)
        for node, cls in decisions.last:
            times = self.of_class[cls]
            found = np.maximum(found, times.most(self.time[node], times.together).max(axis=1, keepdims=True))
        return found[:, 0]

    def _after(self, cls: int, nodes: tuple[int, ...]) -> Time:
        if not nodes:
            return self.begin[cls]
        if len(nodes) == 1:
            return self.time[nodes[0]]
        return self.of_class[cls].latest(self.time[node] for node in nodes)

    def _meet(self, meet: Meet) -> None:
        cells = [self.retiming.partitions[cls][meet.axis_set] for cls in meet.classes]
        come = [
            self.of_class[cls].most(self.time[node], partition)
            for cls, node, (partition, _) in zip(meet.classes, meet.nodes, cells, strict=True)
        ]
        numbers, places = cells[0][1], [slice(None)] * len(cells)
        wide: list[Ints | slice] = list(places)
        if len(cells) == 1:
            last = come[0]
        else:
            numbers = np.unique(np.concatenate([groups for _, groups in cells]))
            wide = [np.searchsorted(numbers, groups) for _, groups in cells]
            last = np.zeros((len(self.machines.speed), len(numbers)), np.int64)
            for at, values in zip(wide, come, strict=True):
                last[:, at] = np.maximum(last[:, at], values)
        slower = self._slower(meet, numbers)
        for node, ticks, at, (partition, _) in zip(meet.nodes, meet.ticks, wide, cells, strict=True):
            lasts = ticks if slower is None else np.ceil(ticks * slower[:, at]).astype(np.int64)
            end = (last if last.shape[1] == 1 else last[:, at]) + lasts
            self.time[node] = Time(end, partition)

    def _slower(self, meet: Meet, numbers: Ints) -> Floats | None:
        """Return how much longer a collective takes in each group, (machines, groups): the slowest port counts."""
        ports = self.machines.ports
        if ports is None or not any(meet.shares):
            return None
        members = self.retiming.workload.axis_sets.all[meet.axis_set].members[numbers]
        found = np.ones((len(ports), len(numbers)))
        for dim, share in enumerate(meet.shares):
            if share:
                found += share * (1 / ports[:, members, dim].min(axis=2) - 1)
        return found

    def _move(self, move: Move) -> None:
        times = self.of_class[move.sender]
        time = self.time[move.node]
        if move.before >= 0:
            left = self.time[move.before]
            time = times.latest((time, left._replace(anchor=left.anchor - move.latency)))
        slower = self._slower_message(move)
        if slower is None and time.chain is NOTHING:
            self.time[move.node] = time._replace(anchor=time.anchor + move.ticks)
            return
        lasts: int | Ints = move.ticks
        if slower is not None:
            lasts = move.latency + np.ceil((move.ticks - move.latency) * slower).astype(np.int64)
        self.time[move.node] = Time(times.of_ranks(time) + lasts, times.alone)

    def _slower_message(self, move: Move) -> Floats | None:
        """Return how much longer a message of each sender takes: the slowest of all ports that it crosses counts."""
        ports, ranks = self.machines.ports, self.retiming.ranks
        if ports is None or not move.dimensions:
            return None
        columns = self.retiming.columns(move.receiver, move.route, move.sender)
        crossed = ports[:, :, list(move.dimensions)].min(axis=2)
        own = crossed[:, ranks[move.sender]]
        own[:, columns] = np.minimum(own[:, columns], crossed[:, ranks[move.receiver]])
        found: Floats = 1 / own
        return found

    def _receive(self, receive: Receive) -> None:
        came = self._across(self.time[receive.sent], receive)
        posted = self._after(receive.cls, receive.after)
        self.time[receive.node] = self.of_class[receive.cls].latest((posted, came))

    def _across(self, time: Time, receive: Receive) -> Time:
        """Return the time of a sender on the ranks that receive from it."""
        times = self.of_class[receive.cls]
        if time.anchor.shape[1] == 1:
            return Time(time.anchor, times.together)
        columns = self.retiming.columns(receive.cls, receive.route, receive.sender)
        key = receive.cls, receive.route, receive.sender, time.partition
        if key not in self._cells:
            cell, found = time.partition.cell[columns], (times.alone, time.partition.cell[columns])
            for partition in times.partitions.values():
                # The groups of the senders may be those of the receivers: one time for each is enough.
                if (cell == cell[partition.example][partition.cell]).all():
                    found = partition, cell[partition.example]
                    break
            self._cells[key] = found
        partition, cells = self._cells[key]
        return Time(time.anchor[:, cells], partition)
